//! Random masters, and crashes at random moments: acknowledged writes survive, and freed replicas
//! do not.

use crate::replicas::support::{SEGMENT, World, bytes_of, id, open};
use sprat_chance::Chance;
use sprat_disk::{Fault, Latency, MemControl, MemDisk};
use sprat_rpc::CallId;
use sprat_store::replicas::Durability;
use sprat_wire::op::{BackupRequest, ReplicaId, Status};
use std::collections::BTreeMap;
use std::time::Duration;

/// How a run of the backup ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Power,
    Kill,
    Close,
}

/// What a master knows of one of its replicas.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Bytes sent.
    sent: usize,
    /// Bytes acknowledged.
    acked: usize,
    seal_sent: bool,
    seal_acked: bool,
    /// Whether the replica can no longer be appended to: it must be begun again.
    earlier: bool,
    /// Whether the replica was found at the start of this run.
    found: bool,
}

/// A call under way.
struct Sent {
    call: CallId,
    replica: ReplicaId,
    end: usize,
    sealed: bool,
}

/// The replicas found, by their id as one number: length in bytes, whether sealed, and whether
/// acknowledged bytes may be missing.
type Found = BTreeMap<u64, (usize, bool, bool)>;

/// The model of a disk.
struct Model {
    random: Chance,
    known: BTreeMap<u64, Known>,
    /// Replicas that the master has freed or replaced, by their id as one number. After a crash
    /// they may still be there.
    ghosts: BTreeMap<u64, Vec<Known>>,
    under_way: Vec<Sent>,
}

impl Model {
    /// Notes that the master frees or replaces a replica.
    fn give_up(&mut self, word: u64) {
        self.ghosts.entry(word).or_default().extend(self.known.remove(&word));
    }

    /// Begins a write, a seal, a free, or a new replica.
    fn step(&mut self, world: &mut World<MemDisk>) {
        let replica =
            id(1 + u32::try_from(self.random.index(3)).unwrap(), 1 + self.random.draw() % 5);
        let word = replica.word();
        if self.under_way.iter().any(|sent| sent.replica == replica) || self.under_way.len() > 5 {
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
            // Begin the replica again at offset 0. The backup itself replaces an open replica that
            // it found at its start, but a replica of this run must be freed first, and so must a
            // whole one.
            let known = &self.known[&word];
            if !known.found || known.seal_acked {
                world.free(replica);
            }
            self.give_up(word);
        }
        let known = self.known.entry(word).or_default();
        if known.earlier || known.seal_sent {
            return;
        }
        let most = (SEGMENT as usize - 1000).saturating_sub(known.sent);
        let len = 1 + if self.random.one_in(5) {
            self.random.index(3000)
        } else {
            self.random.index(200)
        };
        let sealed = self.random.one_in(8) || len > most;
        let end = known.sent + len.min(most);
        let call = world.begin_write(replica, known.sent..end, sealed);
        (known.sent, known.seal_sent) = (end, sealed);
        self.under_way.push(Sent { call, replica, end, sealed });
    }

    /// Takes the replies that have arrived. Returns whether the disk has failed.
    fn take_replies(&mut self, world: &mut World<MemDisk>) -> bool {
        let mut failed = false;
        for sent in std::mem::take(&mut self.under_way) {
            let Some(reply) = world.take(sent.call) else {
                self.under_way.push(sent);
                continue;
            };
            let word = sent.replica.word();
            let known = self.known.get_mut(&word).expect("it was asked for");
            match reply.status {
                Status::Ok => {
                    known.acked = known.acked.max(sent.end);
                    known.seal_acked |= sent.sealed;
                }
                // The frame is full before the segment is: the write was not made, and no write can
                // follow.
                Status::Refused if reply.text().contains("B left here") => {
                    (known.sent, known.seal_sent, known.earlier) = (known.acked, false, true);
                }
                Status::Refused => failed = true,
                other => panic!("{other}: {}", reply.text()),
            }
        }
        failed
    }

    /// Compares the replicas found with the model. If `certain`, no acknowledged bytes may be
    /// missing.
    fn check(&mut self, found: &Found, certain: bool, what: &str) {
        let fits = |known: &Known, len: usize, sealed: bool| {
            let possible = len <= known.sent && (!sealed || known.seal_sent);
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
            let is_valid = candidates.any(|known| fits(known, *len, *sealed));
            assert!(is_valid, "{what}: {} has {len} B, {sealed}", ReplicaId::of_word(*word));
        }
        self.ghosts.clear();
        let known = |(word, (len, sealed, _)): (&u64, &(usize, bool, bool))| {
            let (sent, acked, seal_sent, seal_acked) = (*len, *len, *sealed, *sealed);
            (*word, Known { sent, acked, seal_sent, seal_acked, earlier: true, found: true })
        };
        self.known = found.iter().map(known).collect();
    }
}

/// Lists all replicas on a disk by fencing every master, on a copy of the disk.
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

/// Runs a backup on one disk several times.
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
            // Until a power failure, a failed write may still reach the medium.
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
            if model.take_replies(&mut world) {
                break;
            }
        }
        if !faulty && (ending == Ending::Close || sync && model.random.one_in(2)) {
            // Once the disk is idle, no crash brings back a freed replica.
            (0..200).for_each(|_| world.turn());
            model.take_replies(&mut world);
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
fn acknowledged_writes_survive_power_failures() {
    for seed in 0..150 {
        lives(seed, Durability::Sync, &[Ending::Power]);
    }
}

#[test]
fn acknowledged_writes_survive_any_ending() {
    for seed in 0..150 {
        lives(seed, Durability::Sync, &[Ending::Power, Ending::Kill, Ending::Close]);
    }
}

#[test]
fn buffered_replicas_are_reported_unsure() {
    for seed in 0..150 {
        lives(seed, Durability::Buffered, &[Ending::Power, Ending::Kill, Ending::Close]);
    }
}

/// A regression test. A start used to mark a torn first write as free. After a clean close, the
/// next start then reported this write as damage.
#[test]
fn a_torn_beginning_is_no_damage_after_a_close_in_order() {
    lives(1233, Durability::Buffered, &[Ending::Power, Ending::Kill, Ending::Close]);
}
