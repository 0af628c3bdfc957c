//! Crashes at random moments of random histories, many times over on the same disk.

use crate::support::{MiniLog, Random, open, options};
use sprat_disk::{Fault, Latency, MemControl};
use sprat_net::Nanos;
use sprat_store::backup::{Durability, OpenError};

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Power,
    Kill,
}

/// Several lives of one disk. Panics, naming the seed, when one is not what the one before left.
fn lives(seed: u64, durability: Durability, ending: Ending) {
    let mut random = Random(seed);
    let control = MemControl::new(seed);
    control.set_latency(Latency { base: 5, durable: 40, jitter: 60 });
    let options = options(durability);
    let mut log = MiniLog::new(seed);
    let mut clock = 0;
    for life in 0..6 {
        // Opening may be cut short too: whatever it had written by then must do for the next one.
        if random.one_in(3) {
            control.fail(random.next() % 8, Fault::Hang);
        }
        let opened = open(control.open().expect("closed"), &options);
        let (mut backup, report, segments, newest) = match opened {
            Ok(opened) => opened,
            Err(OpenError::Failed(_)) => {
                end(&control, ending);
                continue;
            }
            Err(error) => panic!("seed {seed}, life {life}: {error}"),
        };
        let promised = durability == Durability::Sync || ending == Ending::Kill;
        log.check(&segments, newest, promised);
        assert!(segments.keys().all(|id| *id <= report.highest_segment));
        log = MiniLog::after(random.next(), segments, report.highest_segment);
        if backup.failure().is_some() {
            end(&control, ending);
            continue;
        }

        let steps = random.below(400);
        if random.one_in(2) {
            control.fail(random.next() % 100, Fault::Hang);
        }
        for _ in 0..steps {
            match random.below(8) {
                0..3 => {
                    let len = if random.one_in(6) { random.below(9000) } else { random.below(200) };
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
                    clock += random.next() % 60;
                    if durability == Durability::Buffered && random.one_in(20) {
                        clock += 1_000_000_000;
                    }
                    control.set_now(clock);
                    log.poll(&mut backup, clock).unwrap();
                }
            }
        }
        if random.one_in(5) {
            // Recovery must not depend on order at the end either.
            log.poll(&mut backup, clock).unwrap();
        }
        end(&control, ending);
        drop(backup);
    }
}

fn end(control: &MemControl, ending: Ending) {
    match ending {
        Ending::Power => control.crash(),
        Ending::Kill => control.kill(),
    }
}

#[test]
fn what_is_reported_durable_survives_power_failures() {
    for seed in 0..300 {
        lives(seed, Durability::Sync, Ending::Power);
    }
}

#[test]
fn what_is_reported_durable_survives_kills() {
    for seed in 0..100 {
        lives(seed, Durability::Sync, Ending::Kill);
        lives(seed, Durability::Buffered, Ending::Kill);
    }
}

#[test]
fn a_buffered_log_survives_power_failures_up_to_some_moment() {
    for seed in 0..300 {
        lives(seed, Durability::Buffered, Ending::Power);
    }
}
