//! Flipped bits: damage is reported with file, offset and replica, and the damaged bytes are never
//! served.

use crate::replicas::support::{FRAME, SEGMENT, World, bytes_of, id, open};
use sprat_chance::Chance;
use sprat_disk::{MemControl, MemDisk};
use sprat_store::replicas::{Durability, OpenReport};
use sprat_wire::frame::FRAMES_OFFSET;
use sprat_wire::op::{ReplicaId, Status};
use std::collections::BTreeMap;

/// The contents of a file: each replica's length, whether it is sealed, and where its last write
/// began.
type Truth = BTreeMap<u64, (usize, bool, usize)>;

/// Makes a file with replicas, some of which are freed again.
fn build(seed: u64, close: bool) -> (Vec<u8>, Truth) {
    let control = MemControl::new(seed);
    let (mut world, _) = open(&control, Durability::Sync);
    let mut random = Chance::new(seed);
    let mut truth = Truth::new();
    for segment in 1..=8 {
        let replica = id(3 + u32::try_from(segment % 2).unwrap(), segment);
        let (mut len, mut last) = (0, 0);
        for _ in 0..2 + random.index(6) {
            last = len;
            let next = (len + 1 + random.index(2500)).min(SEGMENT as usize);
            world.put(replica, len..next, false);
            len = next;
        }
        let sealed = random.one_in(2);
        if sealed {
            last = len;
            world.put(replica, len..len, true);
        }
        truth.insert(replica.word(), (len, sealed, last));
        if segment % 4 == 0 {
            world.free(replica);
            truth.remove(&replica.word());
            (0..5).for_each(|_| world.turn());
        }
    }
    if close {
        world.close();
    } else {
        drop(world);
    }
    control.kill();
    (control.contents(), truth)
}

fn reopen(contents: &[u8], flip: Option<(u64, u32)>) -> (MemControl, World<MemDisk>, OpenReport) {
    let control = MemControl::new(1);
    control.patch(0, contents);
    if let Some((offset, bit)) = flip {
        control.flip(offset, bit);
    }
    let (world, report) = open(&control, Durability::Sync);
    (control, world, report)
}

fn frame_of(offset: u64) -> u64 {
    (offset - FRAMES_OFFSET) / u64::from(FRAME)
}

/// Lists all replicas.
fn listed(world: &mut World<MemDisk>) -> BTreeMap<u64, (usize, bool)> {
    let mut all = BTreeMap::new();
    for master in [3, 4] {
        for record in world.fence(master) {
            all.insert(id(master, record.segment).word(), (record.len as usize, record.sealed));
            assert!(!record.unsure);
        }
    }
    all
}

#[test]
fn a_flipped_bit_is_reported_or_harmless() {
    let (mut damaged, mut torn, mut harmless) = (0, 0, 0);
    for seed in 0..10 {
        let close = seed % 2 == 0;
        let (contents, truth) = build(seed, close);
        let (_, mut world, report) = reopen(&contents, None);
        assert_eq!((report.clean, &report.damaged, &report.torn), (close, &vec![], &vec![]));
        let whole: BTreeMap<_, _> =
            truth.iter().map(|(word, (len, sealed, _))| (*word, (*len, *sealed))).collect();
        assert_eq!(listed(&mut world), whole);
        let mut random = Chance::new(seed);
        for _ in 0..120 {
            let offset = FRAMES_OFFSET + random.draw() % (contents.len() as u64 - FRAMES_OFFSET);
            let what = format!("seed {seed}, offset {offset}");
            let (_, mut world, report) = reopen(&contents, Some((offset, 3)));
            let now = listed(&mut world);
            let hit: Vec<u64> =
                whole.keys().filter(|word| now.get(word) != whole.get(word)).copied().collect();
            assert!(
                now.keys().all(|word| whole.contains_key(word)),
                "{what}: freed ones stay away"
            );
            if let [found] = &report.damaged[..] {
                damaged += 1;
                assert_eq!(frame_of(found.offset), frame_of(offset), "{what}: {found}");
                assert!(found.to_string().contains("memory is damaged at offset"), "{found}");
                let Some(replica) = found.replica else {
                    // The bit is in a mark that was never written, or in a replica that has only
                    // one write.
                    let mark =
                        offset >= FRAMES_OFFSET + (frame_of(offset) + 1) * u64::from(FRAME) - 4096;
                    assert!(mark || close, "{what}: {found}");
                    assert!(
                        hit.iter().all(|word| !mark && truth[word].2 == 0),
                        "{what}: another write would name it"
                    );
                    continue;
                };
                assert!(hit.iter().all(|word| *word == replica.word()), "{what}: {found}, {hit:?}");
                if whole.contains_key(&replica.word()) {
                    let reply = world.read(replica).unwrap_err();
                    assert!(
                        reply.status == Status::Refused && reply.text() == found.to_string(),
                        "{what}: {reply:?}"
                    );
                }
            } else if let [found] = &report.torn[..] {
                torn += 1;
                assert!(!close, "{what}: closed in order, nothing was torn: {found:?}");
                assert_eq!(frame_of(found.offset), frame_of(offset), "{what}");
                // Only the bytes of the replica's last write are gone.
                for word in hit {
                    let kept = now.get(&word).map_or(0, |(len, _)| *len);
                    assert!(kept >= truth[&word].2, "{what}: {kept} B");
                }
            } else {
                assert!(report.damaged.is_empty() && report.torn.is_empty(), "{what}");
                harmless += 1;
                assert_eq!(hit, [0; 0], "{what}");
            }
            for (word, (len, _)) in now {
                let replica = ReplicaId::of_word(word);
                assert_eq!(world.read(replica).unwrap(), bytes_of(replica, len), "{what}");
            }
        }
    }
    eprintln!("{damaged} damaged, {torn} torn, {harmless} where nothing is kept");
    assert!(damaged > 100 && torn > 5 && harmless > 100);
}

/// The offset of a replica's bytes in a file.
fn offset_of(contents: &[u8], replica: ReplicaId) -> u64 {
    let bytes = bytes_of(replica, 40);
    contents.windows(bytes.len()).position(|window| window == bytes).expect("it is in the file")
        as u64
}

#[test]
fn a_replica_with_a_damaged_beginning_is_named() {
    let (contents, truth) = build(3, false);
    let replica = ReplicaId::of_word(*truth.keys().next().unwrap());
    let frame = offset_of(&contents, replica) - 36;
    for offset in frame..frame + 60 {
        let (_, mut world, report) = reopen(&contents, Some((offset, 1)));
        assert_eq!(report.damaged.len(), 1, "offset {offset}: {:?}", report.torn);
        assert_eq!((report.damaged[0].replica, report.damaged[0].offset), (Some(replica), frame));
        assert!(world.fence(replica.master).iter().all(|record| record.segment != replica.segment));
        assert_eq!(world.read(replica).unwrap_err().status, Status::Refused);
    }
}

#[test]
fn later_damage_is_found_by_a_read() {
    let control = MemControl::new(1);
    let (mut world, _) = open(&control, Durability::Sync);
    let (a, b) = (id(3, 1), id(3, 2));
    for (replica, len) in [(a, 9000), (b, 8000)] {
        world.put(replica, 0..4000, false);
        world.put(replica, 4000..len, false);
        world.put(replica, len..len, true);
    }
    let at = offset_of(&control.contents(), a) + 4000 + 36 + 77;
    control.flip(at, 0);
    let reply = world.read(a).unwrap_err();
    assert!(
        reply.status == Status::Refused && reply.text().contains("segment 1 of server 3"),
        "{reply:?}"
    );
    assert_eq!(world.figure("replicas_damaged_total"), 1);
    assert_eq!(world.fence(3).iter().map(|record| record.segment).collect::<Vec<_>>(), [2]);
    assert_eq!(world.read(b).unwrap(), bytes_of(b, 8000));
    // The segment can be written again, as from another replica.
    let (mut world, _) = (drop(world), open(&control, Durability::Sync)).1;
    assert_eq!(
        world.read(a).unwrap_err().status,
        Status::Refused,
        "the fence holds, and so does the damage"
    );
    world.free(a);
    world.free(b);
    (0..5).for_each(|_| world.turn());
    drop(world);
    let (mut world, report) = open(&control, Durability::Sync);
    assert_eq!((report.replicas, &report.damaged), (0, &vec![]));
    world.put(a, 0..9000, true);
    assert_eq!(world.read(a).unwrap(), bytes_of(a, 9000));
}

#[test]
fn a_damaged_replica_can_be_begun_again() {
    let (contents, truth) = build(5, false);
    let (word, (len, ..)) = truth.iter().next().unwrap();
    let replica = ReplicaId::of_word(*word);
    let at = offset_of(&contents, replica) + 3;
    let (control, mut world, report) = reopen(&contents, Some((at, 2)));
    assert_eq!(report.damaged.len(), 1);
    assert_eq!(world.write(replica, *len..len + 1, false).status, Status::NotFound);
    world.put(replica, 0..*len, true);
    assert_eq!(world.read(replica).unwrap(), bytes_of(replica, *len));
    drop(world);
    control.crash();
    let (mut world, report) = open(&control, Durability::Sync);
    assert_eq!(report.damaged, []);
    assert_eq!(world.read(replica).unwrap(), bytes_of(replica, *len));
}

/// Misdirected writes, lost blocks and foreign bytes change the frames. Whatever is in the frames,
/// only bytes that a master wrote are served.
#[test]
fn corrupted_frames_are_never_served() {
    let (mut whole, mut reported) = (0, 0);
    for seed in 0..300 {
        let (contents, truth) = build(seed % 4, seed % 8 < 4);
        let mut random = Chance::new(seed);
        let control = MemControl::new(seed);
        control.patch(0, &contents);
        let frames = contents.len() - usize::try_from(FRAMES_OFFSET).unwrap();
        let offset = |random: &mut Chance, unit: usize| random.index(frames / unit) * unit;
        for _ in 0..1 + random.index(4) {
            let unit = [1, 512, 4096][random.index(3)];
            let (to, from) = (offset(&mut random, unit), offset(&mut random, unit));
            let len = (unit * (1 + random.index(6))).min(frames - to.max(from));
            let start = usize::try_from(FRAMES_OFFSET).unwrap() + from;
            let bytes = match random.index(3) {
                0 => vec![0; len],
                1 => bytes_of(id(99, seed + 1), len),
                _ => contents[start..start + len].to_vec(),
            };
            control.patch(FRAMES_OFFSET + to as u64, &bytes);
        }
        let (mut world, report) = open(&control, Durability::Sync);
        reported += report.damaged.len() + report.torn.len();
        for master in [3, 4] {
            for record in world.fence(master) {
                let replica = id(master, record.segment);
                let bytes = world.read(replica).unwrap();
                assert_eq!(bytes.len(), record.len as usize, "seed {seed}");
                assert_eq!(bytes, bytes_of(replica, bytes.len()), "seed {seed}: {replica}");
                let known = truth.get(&replica.word());
                whole += usize::from(known.is_some_and(|(len, sealed, _)| {
                    (*len, *sealed) == (bytes.len(), record.sealed)
                }));
            }
        }
        // The file can still be used.
        let again = id(5, 1);
        world.put(again, 0..3000, true);
        assert_eq!(world.read(again).unwrap(), bytes_of(again, 3000), "seed {seed}");
    }
    eprintln!("{whole} whole, {reported} told of");
    assert!(whole > 1000 && reported > 50);
}
