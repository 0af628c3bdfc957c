//! A master whose log is replicated on backups that crash, restart and are replaced. Whichever
//! backups are left, a recovery finds everything acknowledged, or reports the loss.
//!
//! The backups are models, which keep exactly the bytes that a backup must keep. The real backups
//! have tests of their own.

mod backup;
mod client;
mod world;

use proptest::prelude::*;
use sprat_store::recovery::{Inventory, Lost};
use sprat_wire::op::{REPLICA_BYTES, ReplicaRecord};
use std::time::Duration;
use world::{Verdict, World};

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Nothing is lost if fewer backups are gone than there are copies when the master dies.
    #[test]
    fn acknowledged_writes_are_found(seed: u64, copies in 1usize..4, more in 0usize..3) {
        let mut world = World::new(seed, copies, copies + more);
        world.run(400);
        world.crash_some();
        world.run(seed % 60);
        let acknowledged = world.acknowledged();
        match world.recover_without(copies - 1) {
            Verdict::Complete => {}
            Verdict::Missing(what) => prop_assert!(false, "of {acknowledged} writes: {what}"),
            Verdict::Reported(lost) => {
                prop_assert!(false, "said to be lost, of {acknowledged}: {lost}")
            }
        }
    }

    /// However many backups are gone, a recovery reports what is lost.
    #[test]
    fn loss_is_reported(seed: u64, copies in 1usize..4, more in 0usize..3, gone in 1usize..5) {
        let mut world = World::new(seed, copies, copies + more);
        world.run(400);
        world.crash_some();
        world.run(seed % 60);
        if let Verdict::Missing(what) = world.recover_without(gone.min(copies + more - 1)) {
            prop_assert!(false, "{what}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// All backups are replaced one after the other. The master has time to re-replicate, so
    /// nothing is lost.
    #[test]
    fn replicas_of_lost_backups_are_re_replicated(
        seed: u64, copies in 1usize..4, more in 0usize..2,
    ) {
        let mut world = World::new(seed, copies, copies + more);
        for _ in 0..copies + more {
            world.run(150);
            world.exchange(1 + usize::try_from(seed % copies as u64).unwrap() / 2);
            world.run(seed % 40);
            world.re_replicate(copies);
            world.go_on();
        }
        world.run(seed % 60);
        let acknowledged = world.acknowledged();
        match world.recover_without(copies - 1) {
            Verdict::Complete => {}
            other => prop_assert!(false, "of {acknowledged} writes: {other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The master dies while it re-replicates and writes. Each new copy has all writes that were
    /// acknowledged.
    #[test]
    fn a_copy_has_all_acknowledged_writes(seed: u64, copies in 2usize..4, more in 0usize..2) {
        let mut world = World::new(seed, copies, copies + more);
        world.run(300);
        world.exchange(1);
        world.run(5 + seed % 60);
        match world.recover_without(copies - 2) {
            Verdict::Complete => {}
            other => prop_assert!(false, "{other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// The coordinator is silent, and backups crash and refuse leases. While the master has a
    /// lease, the backups that would answer a fence are too few to recover it.
    #[test]
    fn a_master_with_a_lease_from_backups_cannot_be_recovered(
        seed: u64, copies in 1usize..4, more in 0usize..3,
    ) {
        let mut world = World::new(seed, copies, copies + more);
        // A backup that was given up can have the whole log only while the log is short.
        world.run(30);
        world.silence_coordinator();
        world.refuse_leases();
        for _ in 0..500 {
            world.run(3);
            world.check_lease();
        }
    }
}

#[test]
fn writes_go_on_while_the_coordinator_is_silent() {
    for seed in 0..8 {
        let mut world = World::new(seed, 2, 4);
        world.stop_faults();
        world.run(100);
        world.silence_coordinator();
        let before = world.acknowledged();
        let leased = (0..1000).filter(|_| {
            world.run(2);
            world.check_lease()
        });
        assert!(leased.count() > 990, "seed {seed}: all requests are granted");
        assert!(world.acknowledged() > before + 200, "seed {seed}: writes go on");
    }
}

#[test]
fn writes_go_on_when_backups_fail() {
    let mut replaced = 0;
    for seed in 0..20 {
        let mut world = World::new(seed, 3, 5);
        world.run(600);
        world.calm();
        let before = world.acknowledged();
        world.run(100);
        assert!(world.acknowledged() > before + 20, "seed {seed}: writes go on");
        replaced += world.replaced();
    }
    assert!(replaced > 20, "replicas were made anew: {replaced}");
}

/// Bytes of a segment: more than one request carries, so a replacement replica is incomplete for
/// some time.
const LONG_SEGMENT: usize = 6 << 20;

/// The only replica of a segment is replaced by one on another backup. At every moment, whichever
/// of the two replicas is left, the plan knows whether the replica is complete.
#[test]
fn an_incomplete_replacement_is_never_taken_for_the_log() {
    for seed in 0..4 {
        let mut world = World::with_segments(seed, 1, 2, LONG_SEGMENT);
        world.stop_faults();
        while world.keeps_head().1 < 2 * REPLICA_BYTES - (REPLICA_BYTES >> 1) {
            world.run(1);
        }
        let (old, _) = world.keeps_head();
        world.restart(old);
        let before = world.acknowledged();
        let (mut only_new, mut only_old) = ([false; 2], [false; 2]);
        for _ in 0..4000 {
            world.run_for(Duration::from_micros(25));
            for (left, seen) in [(1 - old, &mut only_new), (old, &mut only_old)] {
                match world.recover(&[left]) {
                    Verdict::Complete => seen[0] = true,
                    Verdict::Reported(_) => seen[1] = true,
                    Verdict::Missing(what) => {
                        panic!("seed {seed}, only backup {left} is left: {what}")
                    }
                }
            }
            if world.acknowledged() > before + 10 {
                break;
            }
        }
        assert_eq!(
            (only_new, only_old),
            ([true; 2], [true; 2]),
            "seed {seed}: enough here first, then there"
        );
    }
}

#[test]
fn too_few_backups_refuse_writes() {
    let mut world = World::new(1, 3, 2);
    world.stop_faults();
    world.run(300);
    assert_eq!(
        (world.acknowledged(), world.take_refused()),
        (0, vec![]),
        "they may be about to come"
    );
    world.run(3000);
    let refused = world.take_refused();
    assert!(refused.len() > 3, "each is refused at once: {refused:?}");
    let expected = ("4 servers needed (-r 3), 3 here".to_owned(), false);
    assert!(refused.iter().all(|refusal| *refusal == expected), "{refused:?}");
    world.join();
    world.run(300);
    let acknowledged = world.acknowledged();
    assert!(acknowledged > 20 && world.take_refused().len() <= 1, "{acknowledged}");
    // A backup is lost. The write that is under way at that moment may have been executed.
    world.lose();
    world.run(5000);
    let refused = world.take_refused();
    assert!(
        refused.len() > 3 && refused.iter().skip(1).all(|refusal| *refusal == expected),
        "{refused:?}"
    );
    world.join();
    world.run(300);
    assert!(world.acknowledged() > acknowledged + 20);
    world.re_replicate(3);
    assert!(matches!(world.recover_without(2), Verdict::Complete));
}

#[test]
fn full_backups_are_named() {
    let mut world = World::new(2, 2, 3);
    world.stop_faults();
    world.run(300);
    let before = world.acknowledged();
    assert!(before > 20);
    world.set_full(true);
    world.run(8000);
    let refused = world.take_refused();
    assert!(refused.len() > 3, "each is refused at once: {refused:?}");
    let named = |(reason, _): &(String, bool)| {
        reason.starts_with(
            "3 servers needed (-r 2), 4 here, 3 of them without room for replicas (server 1: ",
        ) && reason.contains(backup::FULL)
    };
    assert!(refused.iter().all(named), "{refused:?}");
    let (first, others) = refused.split_first().unwrap();
    assert!(
        first.1 && others.iter().all(|(_, perhaps)| !perhaps),
        "only what was under way may count"
    );
    world.set_full(false);
    world.run(300);
    assert!(world.acknowledged() > before + 20, "there is room again, and writes go on");
    assert!(matches!(world.recover_without(1), Verdict::Complete));
}

/// A regression test. The master had executed a write, some of its backups had it, and it could not
/// become durable, because the master was being recovered. The master answered with `Retry`, and
/// once its lease had ended with *busy* to the same batch: the client took the write for one that
/// was not executed.
#[test]
fn a_write_that_was_executed_is_passed_on_when_the_master_is_recovered() {
    for seed in 0..4 {
        let mut world = World::new(seed, 2, 3);
        world.stop_faults();
        world.run(300);
        let before = world.acknowledged();
        assert!(before > 20 && world.passed_on() == 0);
        world.set_fenced();
        world.run(300);
        let acknowledged = world.acknowledged();
        assert!(acknowledged <= before + 1, "a write may have been durable already");
        assert_eq!(world.passed_on(), 1, "the write that was under way");
        assert!(matches!(world.recover_without(0), Verdict::Complete));
    }
}

/// A backup says that it has a whole replica of a segment whose seal was sent to none. It is given
/// up, and writes go on with others.
#[test]
fn a_backup_that_has_more_than_was_sent_is_given_up() {
    for seed in 0..10 {
        let mut world = World::new(seed, 1, 3);
        world.stop_faults();
        (1..3).for_each(|at| world.make_faulty(at));
        for round in 0..5 {
            let before = world.acknowledged();
            world.run(1000);
            assert!(world.acknowledged() > before + 20, "seed {seed}, round {round}");
            // Its replica of the head goes to another backup, and the head is sealed.
            world.restart(0);
        }
        assert!(world.replaced() > 5, "seed {seed}");
    }
}

/// A replacement replica that is not complete does not count, because the replicas that it replaces
/// may have more acknowledged bytes.
#[test]
fn an_incomplete_replacement_does_not_count() {
    let record =
        |segment, len, head, sealed| ReplicaRecord { segment, len, head, sealed, unsure: false };
    let plan = |before: ReplicaRecord| {
        let mut inventory = Inventory::default();
        inventory.add(1, [before, record(2, 60, true, false)]);
        inventory.plan(&[1, 2], 60, 1)
    };
    assert!(plan(record(1, 500, true, false)).is_ok(), "the replica counts as a head");
    assert_eq!(plan(record(1, 500, false, false)), Err(Lost::Segment { segment: 1, head: 2 }));
    assert!(plan(record(1, 500, false, true)).is_ok());
}
