//! Crashes at random moments of random histories, many times over on the same disk.

use crate::backup::support::{MiniLog, open, options};
use sprat_chance::Chance;
use sprat_disk::{Fault, Latency, MemControl};
use sprat_net::Nanos;
use sprat_store::backup::{Durability, OpenError};
use sprat_wire::entry::entry_len;
use sprat_wire::expiry::NEVER;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Power,
    Kill,
    Either,
}

/// Runs several processes on one disk, one after the other. Panics, with the seed, when a process
/// does not find what its predecessor left.
fn lives(seed: u64, durability: Durability, ending: Ending) {
    let mut random = Chance::new(seed);
    let control = MemControl::new(seed);
    control.set_latency(Latency { base: 5, durable: 40, jitter: 60 });
    let options = options(durability);
    let mut log = MiniLog::new(seed);
    let mut clock = 0;
    for life in 0..6 {
        // Opening may be interrupted as well. The next process must cope with what the interrupted
        // opening had written.
        if random.one_in(3) {
            // An operation that fails may nevertheless have been executed.
            let how = if ending == Ending::Either { Fault::Io } else { Fault::Hang };
            control.fail(random.draw() % 8, how);
        }
        let opened = open(control.open().expect("closed"), &options);
        if ending == Ending::Either {
            control.clear_faults();
        }
        let (mut backup, report, segments, newest) = match opened {
            Ok(opened) => opened,
            Err(OpenError::Failed(_)) => {
                end(&control, ending, &mut random);
                continue;
            }
            Err(error) => panic!("seed {seed}, life {life}: {error}"),
        };
        let promised = durability == Durability::Sync || ending == Ending::Kill;
        log.check(&segments, newest, promised);
        assert!(segments.keys().all(|id| *id <= report.highest_segment));
        log = MiniLog::after(random.draw(), segments, report.highest_segment);
        if backup.failure().is_some() {
            end(&control, ending, &mut random);
            continue;
        }

        let steps = random.index(400);
        if random.one_in(2) {
            control.fail(random.draw() % 100, Fault::Hang);
        }
        for _ in 0..steps {
            match random.index(8) {
                0..3 => {
                    let len = if random.one_in(6) { random.index(9000) } else { random.index(200) };
                    log.append(&backup, len);
                }
                3 => log.pass(&mut backup).unwrap(),
                4 => {
                    log.pass(&mut backup).unwrap();
                    backup.submit(Nanos(clock)).unwrap();
                }
                5 if random.one_in(6) => log.survive(&backup),
                5 => {}
                _ => {
                    clock += random.draw() % 60;
                    if durability == Durability::Buffered && random.one_in(20) {
                        clock += 1_000_000_000;
                    }
                    control.set_now(clock);
                    log.poll(&mut backup, clock).unwrap();
                }
            }
        }
        if random.one_in(5) {
            // Poll a last time, in some of the runs: what replay finds must not depend on that.
            log.poll(&mut backup, clock).unwrap();
        }
        end(&control, ending, &mut random);
        drop(backup);
    }
}

fn end(control: &MemControl, ending: Ending, random: &mut Chance) {
    let power = ending == Ending::Power || (ending == Ending::Either && random.one_in(2));
    if power {
        control.crash()
    } else {
        control.kill()
    }
    control.clear_faults();
}

#[test]
fn durable_bytes_survive_power_failures() {
    for seed in 0..300 {
        lives(seed, Durability::Sync, Ending::Power);
    }
}

#[test]
fn durable_bytes_survive_kills() {
    for seed in 0..100 {
        lives(seed, Durability::Sync, Ending::Kill);
        lives(seed, Durability::Buffered, Ending::Kill);
    }
}

#[test]
fn durable_bytes_survive_mixed_crashes() {
    for seed in 0..600 {
        lives(seed, Durability::Sync, Ending::Either);
    }
}

#[test]
fn a_buffered_log_survives_power_failures_up_to_some_moment() {
    for seed in 0..300 {
        lives(seed, Durability::Buffered, Ending::Power);
    }
}

#[test]
fn completions_are_dropped_when_their_entry_is_missing() {
    for whole in [false, true] {
        let control = MemControl::new(1);
        let (mut backup, ..) =
            open(control.open().expect("closed"), &options(Durability::Sync)).unwrap();
        let mut log = MiniLog::new(1);
        assert!(log.append(&backup, 100));
        log.append_completion();
        if whole {
            assert!(log.append(&backup, 100));
        }
        log.settle(&mut backup);
        drop(backup);
        // Opens the log twice: the first opening seals the head, so the second finds a sealed one.
        for life in 0..2 {
            control.kill();
            let (backup, report, segments, newest) =
                open(control.open().expect("closed"), &options(Durability::Sync)).unwrap();
            assert_eq!(report.entries, if whole { 3 } else { 1 }, "life {life}");
            log.check(&segments, newest, true);
            drop(backup);
        }
    }
}

#[test]
fn a_group_is_dropped_when_an_entry_of_it_is_missing() {
    for missing in 0..3 {
        let control = MemControl::new(1);
        let (mut backup, ..) =
            open(control.open().expect("closed"), &options(Durability::Sync)).unwrap();
        let mut log = MiniLog::new(1);
        assert!(log.append(&backup, 100));
        log.settle(&mut backup);
        let before = log.segments.clone();
        log.append_mark(2 * entry_len(8, 100, NEVER));
        for _ in missing..2 {
            assert!(log.append(&backup, 100));
        }
        if missing == 0 {
            // What follows a group may be missing.
            assert!(log.append(&backup, 100));
        }
        log.settle(&mut backup);
        drop(backup);
        let expected = if missing == 0 { &log.segments } else { &before };
        // The first opening cuts the log before the group, and seals it there.
        for life in 0..2 {
            control.kill();
            let (backup, report, segments, _) =
                open(control.open().expect("closed"), &options(Durability::Sync)).unwrap();
            assert_eq!(report.entries, if missing == 0 { 4 } else { 1 }, "life {life}");
            assert_eq!(report.cut.is_some(), missing > 0 && life == 0, "life {life}");
            assert!(segments == *expected, "life {life}, {missing} missing");
            drop(backup);
        }
    }
}

/// Kills a log after `steps` steps, or earlier if the log has begun to write behind its last frame.
/// Returns the disk, the log and the number of steps.
fn killed_while_growing(seed: u64, steps: u64) -> (MemControl, MiniLog, u64) {
    let control = MemControl::new(seed);
    control.set_latency(Latency { base: 5, durable: 40, jitter: 0 });
    let (mut backup, ..) =
        open(control.open().expect("closed"), &options(Durability::Sync)).unwrap();
    let mut log = MiniLog::new(seed);
    let (before, start) = (control.contents().len(), control.now());
    for step in 0.. {
        if step == steps || control.contents().len() > before {
            control.kill();
            return (control, log, step);
        }
        log.append(&backup, 100);
        log.pass(&mut backup).unwrap();
        backup.submit(Nanos(0)).unwrap();
        control.set_now(start + step);
        log.poll(&mut backup, step).unwrap();
    }
    unreachable!("it grows, or reaches the step")
}

/// A header does not count frames that are only in the kernel's memory, whether or not the header's
/// write succeeds.
#[test]
fn a_start_that_fails_after_growth_was_interrupted_leaves_a_log_that_opens() {
    for seed in 0..100 {
        let (.., grown) = killed_while_growing(seed, u64::MAX);
        // At this step the log writes the first zeroes of the new frames, and no sync is under way.
        let (control, log, _) = killed_while_growing(seed, grown - 2);
        control.fail(seed % 2, Fault::Io);
        open(control.open().expect("closed"), &options(Durability::Sync))
            .err()
            .expect("the disk fails");
        control.crash();
        control.clear_faults();
        let (_, _, segments, newest) =
            open(control.open().expect("closed"), &options(Durability::Sync)).unwrap();
        log.check(&segments, newest, true);
    }
}
