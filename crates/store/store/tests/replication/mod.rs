//! A master whose log is kept by backups that come and go: whatever is left of them, either
//! everything that was acknowledged is found, or it is known that something is missing.
//!
//! The backups are models: what they promise, and no more. The real ones have tests of their own.

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

    /// Fewer backups than copies are gone when the master dies: nothing is lost.
    #[test]
    fn what_was_acknowledged_is_found(seed: u64, copies in 1usize..4, more in 0usize..3) {
        let mut world = World::new(seed, copies, copies + more);
        world.run(400);
        world.crash_some();
        world.run(seed % 60);
        let acknowledged = world.acknowledged();
        match world.recover_without(copies - 1) {
            Verdict::Found => {}
            Verdict::Missing(what) => prop_assert!(false, "of {acknowledged} writes: {what}"),
            Verdict::Known(lost) => prop_assert!(false, "said to be lost, of {acknowledged}: {lost}"),
        }
    }

    /// However many are gone: what is missing is known to be.
    #[test]
    fn loss_is_known(seed: u64, copies in 1usize..4, more in 0usize..3, gone in 1usize..5) {
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

    /// All backups go for good, one after the other and with time to make anew what they had: nothing is lost.
    #[test]
    fn what_is_lost_with_a_backup_is_made_anew(seed: u64, copies in 1usize..4, more in 0usize..2) {
        let mut world = World::new(seed, copies, copies + more);
        for _ in 0..copies + more {
            world.run(150);
            world.exchange(1 + usize::try_from(seed % copies as u64).unwrap() / 2);
            world.run(seed % 40);
            world.heal(copies);
            world.go_on();
        }
        world.run(seed % 60);
        let acknowledged = world.acknowledged();
        match world.recover_without(copies - 1) {
            Verdict::Found => {}
            other => prop_assert!(false, "of {acknowledged} writes: {other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The master dies while it makes replicas anew, and writes: none of those that it had made says less than those before.
    #[test]
    fn a_copy_says_what_was_acknowledged(seed: u64, copies in 2usize..4, more in 0usize..2) {
        let mut world = World::new(seed, copies, copies + more);
        world.run(300);
        world.exchange(1);
        world.run(5 + seed % 60);
        match world.recover_without(copies - 2) {
            Verdict::Found => {}
            other => prop_assert!(false, "{other:?}"),
        }
    }
}

#[test]
fn backups_that_fail_do_not_keep_writes_from_being_acknowledged() {
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

/// Longer than what one request carries: a replica that is made anew has a part of it for a while.
const LONG_SEGMENT: usize = 6 << 20;

/// The only replica is made anew elsewhere: whichever of the two is left, at every moment, it is
/// known whether it is enough.
#[test]
fn between_two_backups_nothing_is_taken_for_all() {
    for seed in 0..4 {
        let mut world = World::with_segments(seed, 1, 2, LONG_SEGMENT);
        world.spare();
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
                    Verdict::Found => seen[0] = true,
                    Verdict::Known(_) => seen[1] = true,
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
fn fewer_backups_than_copies_acknowledge_nothing_and_say_so() {
    let mut world = World::new(1, 3, 2);
    world.spare();
    world.run(300);
    assert_eq!(
        (world.acknowledged(), world.take_refused()),
        (0, vec![]),
        "they may be about to come"
    );
    world.run(3000);
    let refused = world.take_refused();
    assert!(refused.len() > 3, "each is refused at once: {refused:?}");
    let words = ("4 servers needed (-r 3), 3 here".to_owned(), false);
    assert!(refused.iter().all(|told| *told == words), "{refused:?}");
    world.join();
    world.run(300);
    let acknowledged = world.acknowledged();
    assert!(acknowledged > 20 && world.take_refused().len() <= 1, "{acknowledged}");
    // One of those that there are goes: what was under way then may count.
    world.lose();
    world.run(5000);
    let refused = world.take_refused();
    assert!(refused.len() > 3 && refused.iter().skip(1).all(|told| *told == words), "{refused:?}");
    world.join();
    world.run(300);
    assert!(world.acknowledged() > acknowledged + 20);
    world.heal(3);
    assert!(matches!(world.recover_without(2), Verdict::Found));
}

#[test]
fn backups_that_take_nothing_are_named() {
    let mut world = World::new(2, 2, 3);
    world.spare();
    world.run(300);
    let before = world.acknowledged();
    assert!(before > 20);
    world.fill(true);
    world.run(8000);
    let refused = world.take_refused();
    assert!(refused.len() > 3, "each is refused at once: {refused:?}");
    let named = |told: &(String, bool)| {
        told.0.starts_with(
            "3 servers needed (-r 2), 4 here, 3 of them without room for replicas (server 1: ",
        ) && told.0.contains(backup::FULL)
    };
    assert!(refused.iter().all(named), "{refused:?}");
    let (first, others) = refused.split_first().unwrap();
    assert!(
        first.1 && others.iter().all(|(_, perhaps)| !perhaps),
        "only what was under way may count"
    );
    world.fill(false);
    world.run(300);
    assert!(world.acknowledged() > before + 20, "there is room again, and writes go on");
    assert!(matches!(world.recover_without(1), Verdict::Found));
}

/// What was sent so far of a replica that is being made anew says nothing: others may have been
/// acknowledged more.
#[test]
fn a_replica_that_is_being_made_anew_does_not_count() {
    let record =
        |segment, len, head, sealed| ReplicaRecord { segment, len, head, sealed, unsure: false };
    let plan = |before: ReplicaRecord| {
        let mut inventory = Inventory::default();
        inventory.add(1, [before, record(2, 60, true, false)]);
        inventory.plan(&[1, 2], 60, 1)
    };
    assert!(plan(record(1, 500, true, false)).is_ok(), "it was there from the beginning");
    assert_eq!(plan(record(1, 500, false, false)), Err(Lost::Segment { segment: 1, head: 2 }));
    assert!(plan(record(1, 500, false, true)).is_ok());
}
