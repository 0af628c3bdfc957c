//! Runs clients while the network fails, and compares acknowledged changes with what the clients
//! read.

use crate::partitions::cluster::Clients;
use sprat_client::Error;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Number of keys that are written in each table, in addition to its counter.
const KEYS: u64 = 64;

/// Lower limit on the rounds and on the reads of a test: with fewer, it has tested nothing.
const LEAST: u64 = 100;

/// The clients' progress.
#[derive(Default)]
pub(crate) struct Load {
    ends: AtomicBool,
    /// Number of rounds that are complete. Every counter is at least this high.
    raised: AtomicU64,
    looks: AtomicU64,
    /// The longest time without an acknowledged change since the last [`gap`](Self::gap).
    gap: Mutex<Duration>,
}

impl Load {
    /// Returns the number of rounds that are complete.
    pub(crate) fn raised(&self) -> u64 {
        self.raised.load(Ordering::Acquire)
    }

    /// Returns the longest time without an acknowledged change since the last call.
    pub(crate) fn gap(&self) -> Duration {
        std::mem::take(&mut self.gap.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs the first client. In each round it increments the counter of each table, and writes one
    /// of the table's keys. Every increment must count exactly once, and no write may fail.
    fn increment_counters(&self, clients: &Clients) {
        let (mut client, tables) = clients.client();
        let (mut last, mut known) = (Instant::now(), BTreeMap::new());
        for round in 1.. {
            if self.ends.load(Ordering::Acquire) {
                break;
            }
            for &table in &tables {
                let sum = client
                    .increment_i64(table, b"counter", 1)
                    .expect("it is tried until it is done")
                    .0;
                assert_eq!(sum.cast_unsigned(), round, "each counts once");
                let key = (round % KEYS).to_le_bytes();
                client
                    .put(table, &key, &round.to_le_bytes())
                    .expect("it is tried until it is done");
                known.insert((table.0, key), round);
                let mut gap = self.gap.lock().unwrap_or_else(PoisonError::into_inner);
                *gap = last.elapsed().max(*gap);
                last = Instant::now();
            }
            self.raised.store(round, Ordering::Release);
        }
        for ((table, key), round) in known {
            let found = client
                .get(sprat_client::Table(table), &key)
                .expect("it is tried until it is answered");
            assert_eq!(
                found.map(|object| object.value),
                Some(round.to_le_bytes().to_vec()),
                "the acknowledged value"
            );
        }
    }

    /// Runs the second client, which reads the counters. A read must return at least the highest
    /// sum that was acknowledged before the read began.
    fn read_counters(&self, clients: &Clients) {
        let (mut client, tables) = clients.client();
        while !self.ends.load(Ordering::Acquire) {
            for &table in &tables {
                let least = self.raised();
                match client.get(table, b"counter") {
                    Ok(found) => {
                        let found = found.map_or(0, |object| {
                            u64::from_le_bytes(object.value.try_into().expect("8 B"))
                        });
                        assert!(found >= least, "{found} was read after {least} was told");
                        self.looks.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(Error::Timeout { .. } | Error::Recovering { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

/// Makes the clients end when dropped, even if the test's own thread panics.
struct EndOnDrop<'a>(&'a Load);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.ends.store(true, Ordering::Release);
    }
}

/// Runs the clients before, during and for some time after `faults`. They must see nothing wrong.
/// Returns the least value that every counter must have.
pub(crate) fn under_load(clients: &Clients, faults: impl FnOnce(&Load)) -> u64 {
    let load = Load::default();
    thread::scope(|scope| {
        let workers = [
            scope.spawn(|| clients.on(|| load.increment_counters(clients))),
            scope.spawn(|| clients.on(|| load.read_counters(clients))),
        ];
        {
            let _ends = EndOnDrop(&load);
            pause(Duration::from_millis(500));
            faults(&load);
            pause(Duration::from_millis(500));
        }
        workers.into_iter().for_each(|worker| worker.join().expect("clients see nothing wrong"));
    });
    let (raised, looks) = (load.raised(), load.looks.into_inner());
    eprintln!("{raised} rounds, {looks} reads");
    assert!(raised > LEAST && looks > LEAST, "{raised} rounds, {looks} reads");
    raised
}

#[expect(clippy::disallowed_methods, reason = "a test's thread is no node")]
pub(crate) fn pause(duration: Duration) {
    thread::sleep(duration);
}
