//! Random masters, crashes at random moments: what was acknowledged is there, and what was freed is
//! not.

use crate::replicas::support::{SEGMENT, World, bytes_of, id, open};
use sprat_chance::Chance;
use sprat_disk::{Fault, Latency, MemControl, MemDisk};
use sprat_rpc::CallId;
use sprat_store::replicas::Durability;
use sprat_wire::op::{BackupRequest, ReplicaId, Status};
use std::collections::BTreeMap;
use std::time::Duration;

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Power,
    Kill,
    Close,
}

/// What a master knows of a replica of its own.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Bytes asked for, and acknowledged; and the seal.
    asked: usize,
    acked: usize,
    seal_asked: bool,
    seal_acked: bool,
    /// Nothing can follow: it can only be begun again.
    earlier: bool,
    /// It was there at the beginning of this life.
    found: bool,
}

/// A call under way.
struct Asked {
    call: CallId,
    replica: ReplicaId,
    end: usize,
    sealed: bool,
}

/// What was found: length, seal, and whether acknowledged bytes may be missing.
type Found = BTreeMap<u64, (usize, bool, bool)>;

/// All that is known of a disk.
struct Model {
    random: Chance,
    known: BTreeMap<u64, Known>,
    /// What was given up not long ago, and may still be there after a crash.
    ghosts: BTreeMap<u64, Vec<Known>>,
    under_way: Vec<Asked>,
}

impl Model {
    /// Gives a replica up.
    fn give_up(&mut self, word: u64) {
        self.ghosts.entry(word).or_default().extend(self.known.remove(&word));
    }

    /// Begins a write, a seal, a free, or a new replica.
    fn step(&mut self, world: &mut World<MemDisk>) {
        let replica =
            id(1 + u32::try_from(self.random.index(3)).unwrap(), 1 + self.random.draw() % 5);
        let word = replica.word();
        if self.under_way.iter().any(|asked| asked.replica == replica) || self.under_way.len() > 5 {
            return;
        }
        if self.known.contains_key(&word) && self.random.one_in(20) {
            assert_eq!(world.ask(BackupRequest::Free { replica }).status, Status::Ok);
            return self.give_up(word);
        }
        if self.known.get(&word).is_some_and(|known| known.earlier) && self.random.one_in(3) {
            if world.figure("replica_frames_live") > 20 {
                return;
            }
            // Begun again, at zero: the backup gives up what is there. What it has of this life it
            // would keep.
            if !self.known[&word].found {
                world.free(replica);
            }
            self.give_up(word);
        }
        let known = self.known.entry(word).or_default();
        if known.earlier || known.seal_asked {
            return;
        }
        let most = (SEGMENT as usize - 1000).saturating_sub(known.asked);
        let len = 1 + if self.random.one_in(5) {
            self.random.index(3000)
        } else {
            self.random.index(200)
        };
        let sealed = self.random.one_in(8) || len > most;
        let end = known.asked + len.min(most);
        let call = world.begin_write(replica, known.asked..end, sealed);
        (known.asked, known.seal_asked) = (end, sealed);
        self.under_way.push(Asked { call, replica, end, sealed });
    }

    /// Takes what has been answered. Whether the disk has failed.
    fn hear(&mut self, world: &mut World<MemDisk>) -> bool {
        let mut failed = false;
        for asked in std::mem::take(&mut self.under_way) {
            let Some(told) = world.take(asked.call) else {
                self.under_way.push(asked);
                continue;
            };
            let word = asked.replica.word();
            let known = self.known.get_mut(&word).expect("it was asked for");
            match told.status {
                Status::Ok => {
                    known.acked = known.acked.max(asked.end);
                    known.seal_acked |= asked.sealed;
                }
                // The frame is full before the segment: what was asked for is not there, and
                // nothing follows.
                Status::Refused if told.text().contains("has room") => {
                    (known.asked, known.seal_asked, known.earlier) = (known.acked, false, true);
                }
                Status::Refused => failed = true,
                other => panic!("{other}: {}", told.text()),
            }
        }
        failed
    }

    /// Holds what is there against what is known. `certain`: nothing acknowledged may be missing.
    fn check(&mut self, found: &Found, certain: bool, what: &str) {
        let fits = |known: &Known, len: usize, sealed: bool| {
            let possible = len <= known.asked && (!sealed || known.seal_asked);
            possible && (!certain || len >= known.acked && (sealed || !known.seal_acked))
        };
        for (word, known) in &self.known {
            if certain && known.acked > 0 {
                let there =
                    found.get(word).is_some_and(|(len, sealed, _)| fits(known, *len, *sealed));
                assert!(
                    there,
                    "{what}: {}: {known:?}, found {:?}",
                    ReplicaId::of_word(*word),
                    found.get(word)
                );
            }
        }
        for (word, (len, sealed, _)) in found {
            let ghosts = self.ghosts.get(word).into_iter().flatten();
            let mut candidates = self.known.get(word).into_iter().chain(ghosts);
            let lawful = candidates.any(|known| fits(known, *len, *sealed));
            assert!(lawful, "{what}: {} has {len} B, {sealed}", ReplicaId::of_word(*word));
        }
        self.ghosts.clear();
        let known = |(word, (len, sealed, _)): (&u64, &(usize, bool, bool))| {
            let (asked, acked, seal_asked, seal_acked) = (*len, *len, *sealed, *sealed);
            (*word, Known { asked, acked, seal_asked, seal_acked, earlier: true, found: true })
        };
        self.known = found.iter().map(known).collect();
    }
}

/// All that a disk holds, found by fencing every master: on a copy, as nobody is to be fenced.
fn look(control: &MemControl, durability: Durability, what: &str) -> Found {
    let copy = MemControl::new(1);
    copy.patch(0, &control.contents());
    let (mut world, report) = open(&copy, durability);
    assert_eq!(report.damaged, [], "{what}");
    let mut found = Found::new();
    for master in 1..=3 {
        for record in world.fence(master) {
            let (replica, len) = (id(master, record.segment), record.len as usize);
            assert_eq!(world.read(replica).unwrap(), bytes_of(replica, len), "{what}: {replica}");
            let sure = record.sealed || durability == Durability::Sync || report.clean;
            assert!(
                !(sure && record.unsure) || !record.sealed && report.clean,
                "{what}: {replica}"
            );
            assert!(sure || record.unsure, "{what}: {replica} may lack something");
            found.insert(replica.word(), (len, record.sealed, record.unsure));
        }
    }
    found
}

/// Several lives of one disk.
fn lives(seed: u64, durability: Durability, endings: &[Ending]) {
    let control = MemControl::new(seed);
    control.set_latency(Latency { base: 5_000, durable: 40_000, jitter: 60_000 });
    let mut model = Model {
        random: Chance::new(seed),
        known: BTreeMap::new(),
        ghosts: BTreeMap::new(),
        under_way: Vec::new(),
    };
    let sync = durability == Durability::Sync;
    let mut certain = true;
    for life in 0..6 {
        let what = format!("seed {seed}, life {life}");
        model.check(&look(&control, durability, &what), certain, &what);
        let (mut world, report) = open(&control, durability);
        assert_eq!(report.damaged, [], "{what}");

        let ending = endings[model.random.index(endings.len())];
        let faulty = ending != Ending::Close && model.random.one_in(2);
        if faulty {
            // A write that failed may still come to the medium, until a power failure has decided
            // it.
            let io = ending == Ending::Power && model.random.one_in(2);
            let fault = if io { Fault::Io } else { Fault::Hang };
            control.fail(model.random.draw() % 200, fault);
        }
        for _ in 0..model.random.index(500) {
            model.step(&mut world);
            if !sync && model.random.one_in(30) {
                world.pass(Duration::from_millis(60));
            }
            world.turn();
            if model.hear(&mut world) {
                break;
            }
        }
        if !faulty && (ending == Ending::Close || sync && model.random.one_in(2)) {
            // When the disk has come to rest, what was given up is gone for good.
            (0..200).for_each(|_| world.turn());
            model.hear(&mut world);
            assert!(model.under_way.is_empty(), "{what}: all was answered");
            model.ghosts.clear();
        }
        certain = sync || ending == Ending::Close;
        match ending {
            Ending::Power => control.crash(),
            Ending::Kill => control.kill(),
            Ending::Close => world.close(),
        }
        model.under_way.clear();
        control.clear_faults();
    }
}

#[test]
fn what_was_acknowledged_survives_power_failures() {
    for seed in 0..150 {
        lives(seed, Durability::Sync, &[Ending::Power]);
    }
}

#[test]
fn what_was_acknowledged_survives_whatever_comes() {
    for seed in 0..150 {
        lives(seed, Durability::Sync, &[Ending::Power, Ending::Kill, Ending::Close]);
    }
}

#[test]
fn buffered_replicas_say_that_they_are_unsure() {
    for seed in 0..150 {
        lives(seed, Durability::Buffered, &[Ending::Power, Ending::Kill, Ending::Close]);
    }
}

/// A beginning that was torn, and marked as free by the next start, was taken for damage by the one
/// after a close in order.
#[test]
fn a_torn_beginning_is_no_damage_after_a_close_in_order() {
    lives(1233, Durability::Buffered, &[Ending::Power, Ending::Kill, Ending::Close]);
}
