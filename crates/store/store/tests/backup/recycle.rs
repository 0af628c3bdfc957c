//! Frames that are reused: their old contents never come back, and are never overwritten too early.

use crate::backup::support::{FRAME, open, options};
use sprat_disk::{MemControl, MemDisk};
use sprat_net::Nanos;
use sprat_store::backup::{Backup, Durability, Options};
use sprat_wire::entry::{Entry, Kind, Role, SegmentHeader};
use sprat_wire::expiry::NEVER;
use sprat_wire::frame::{CHUNK_HEADER_BYTES, FRAMES_OFFSET};
use sprat_wire::value::ValueType;

/// The first entry of a segment.
fn header(id: u64, role: Role, digest: &[u64]) -> Vec<u8> {
    let value = SegmentHeader { id, safe_version: 1, role, digest: digest.to_vec() }.encode();
    encode(Kind::Segment, 0, &[], &value)
}

fn object(key: &[u8], len: usize) -> Vec<u8> {
    encode(Kind::Object, 1, key, &vec![9; len])
}

fn encode(kind: Kind, table: u32, key: &[u8], value: &[u8]) -> Vec<u8> {
    let entry = Entry {
        kind,
        successor: false,
        table,
        version: 1,
        key,
        value,
        value_type: ValueType::Bytes,
        expires: NEVER,
    };
    let mut bytes = vec![0; entry.encoded_len()];
    entry.encode(&mut bytes);
    bytes
}

/// Commits until nothing is under way. Then the kernel has everything, but the medium may not.
fn commit(backup: &mut Backup<MemDisk>) {
    while backup.submit(Nanos(0)).unwrap() || backup.is_committing() {
        backup.poll(Nanos(0), |_| ()).unwrap();
    }
}

#[test]
fn a_lost_life_does_not_come_back_when_its_segment_id_does() {
    let control = MemControl::new(1);
    let options = options(Durability::Buffered);
    // The first chunk ends exactly where its block ends, so the next chunk has a block of its own.
    let mut first = header(1, Role::Head, &[1]);
    let filler = 4096 - CHUNK_HEADER_BYTES - first.len() - object(b"key", 0).len();
    first.extend(object(b"key", filler));
    let second = object(b"unsaid", 100);

    let (mut backup, ..) = open(control.open().unwrap(), &options).unwrap();
    backup.append(1, 0, [&first[..]], false).unwrap();
    commit(&mut backup);
    backup.append(1, u32::try_from(first.len()).unwrap(), [&second[..]], false).unwrap();
    commit(&mut backup);
    control.kill();
    drop(backup);
    // The power failure lost the first block and left the second.
    control.patch(FRAMES_OFFSET, &[0; 4096]);

    let (mut backup, report, segments, _) = open(control.open().unwrap(), &options).unwrap();
    assert!(segments.is_empty());
    assert_eq!(report.garbage.len(), 1, "what is left of the segment is reported");
    assert_eq!(
        report.highest_segment, 1,
        "and its id is known, so that a log would not take it again"
    );
    backup.append(1, 0, [&first[..]], false).unwrap();
    commit(&mut backup);
    control.kill();
    drop(backup);

    let (_, report, segments, _) = open(control.open().unwrap(), &options).unwrap();
    assert_eq!(segments[&1], first);
    assert_eq!(report.cut, None);
}

#[test]
fn stale_chunks_behind_a_short_segment_do_not_count() {
    let control = MemControl::new(1);
    let options = Options { max_frames: 2, ..options(Durability::Sync) };
    let (mut backup, ..) = open(control.open().unwrap(), &options).unwrap();
    // Heads alternate between two frames. Each head is shorter than the one before it, and has
    // fewer chunks.
    let mut lives = Vec::new();
    for id in 1..=8u64 {
        let mut log = header(id, Role::Head, &[id]);
        backup.append(id, 0, [&log[..]], false).unwrap();
        commit(&mut backup);
        if id > 1 {
            backup.free(id - 1);
        }
        for _ in id..9 {
            let entry = object(b"k", 1500);
            backup.append(id, u32::try_from(log.len()).unwrap(), [&entry[..]], false).unwrap();
            commit(&mut backup);
            log.extend(entry);
        }
        backup.append(id, u32::try_from(log.len()).unwrap(), [], true).unwrap();
        commit(&mut backup);
        lives.push(log);
    }
    assert_eq!(
        control.contents().len() as u64,
        FRAMES_OFFSET + 2 * u64::from(FRAME),
        "two frames were enough"
    );
    control.kill();
    drop(backup);
    let (_, report, segments, newest) = open(control.open().unwrap(), &options).unwrap();
    assert_eq!((newest, segments.len(), &segments[&8]), (Some(8), 1, &lives[7]));
    assert_eq!((report.cut, report.garbage[0].segment), (None, Some(7)));
}

#[test]
fn a_frame_freed_by_a_buffered_head_waits_for_the_head_to_be_on_the_medium() {
    for seed in 0..40 {
        let control = MemControl::new(seed);
        let options = Options { max_frames: 4, ..options(Durability::Buffered) };
        let (mut backup, ..) = open(control.open().unwrap(), &options).unwrap();
        for (id, digest) in [(1, &[1][..]), (2, &[1, 2]), (3, &[2, 3])] {
            backup.append(id, 0, [&header(id, Role::Head, digest)[..]], id < 3).unwrap();
            commit(&mut backup);
        }
        // The kernel has head 3, which no longer lists segment 1. Two survivors need frames, and
        // only one frame is free.
        backup.free(1);
        for id in [4, 5] {
            let log = header(id, Role::Survivor, &[]);
            backup.append(id, 0, [&log[..], &object(b"moved", 5000)[..]], true).unwrap();
        }
        commit(&mut backup);
        control.crash();
        drop(backup);
        let (_, _, segments, newest) = open(control.open().unwrap(), &options)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let listed: Vec<u64> = segments.keys().copied().collect();
        match newest {
            Some(2) => assert_eq!(listed, [1, 2]),
            Some(3) => assert_eq!(listed, [2, 3]),
            other => panic!(
                "seed {seed}: head 2 was synced before head 3 began, and {other:?} is the newest"
            ),
        }
    }
}
