//! Clients at work while the network fails: what they were told is held against what they find.

use crate::partitions::cluster::Clients;
use sprat_client::Error;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Keys of each table that are written, besides its counter.
const KEYS: u64 = 64;

/// Rounds at least in a whole test, and reads, or nothing was tried.
const LEAST: u64 = 100;

/// What clients do, seen from outside.
#[derive(Default)]
pub(crate) struct Load {
    ends: AtomicBool,
    /// Rounds done: every counter is as high.
    raised: AtomicU64,
    looks: AtomicU64,
    /// The longest time without an acknowledged change since it was last asked for.
    gap: Mutex<Duration>,
}

impl Load {
    /// Rounds done so far.
    pub(crate) fn raised(&self) -> u64 {
        self.raised.load(Ordering::Acquire)
    }

    /// The longest time without an acknowledged change since this was last asked.
    pub(crate) fn gap(&self) -> Duration {
        std::mem::take(&mut self.gap.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One adds one to the counter of each table, and writes a key of each, over and over; every
    /// addition counts once, no write fails.
    fn raise(&self, clients: &Clients) {
        let (mut client, tables) = clients.client();
        let (mut last, mut known) = (Instant::now(), BTreeMap::new());
        for turn in 1.. {
            if self.ends.load(Ordering::Acquire) {
                break;
            }
            for &table in &tables {
                let sum = client
                    .increment_i64(table, b"counter", 1)
                    .expect("it is tried until it is done")
                    .0;
                assert_eq!(sum.cast_unsigned(), turn, "each counts once");
                let key = (turn % KEYS).to_le_bytes();
                client.put(table, &key, &turn.to_le_bytes()).expect("it is tried until it is done");
                known.insert((table.0, key), turn);
                let mut gap = self.gap.lock().unwrap_or_else(PoisonError::into_inner);
                *gap = last.elapsed().max(*gap);
                last = Instant::now();
            }
            self.raised.store(turn, Ordering::Release);
        }
        for ((table, key), turn) in known {
            let found = client
                .get(sprat_client::Table(table), &key)
                .expect("it is tried until it is answered");
            assert_eq!(
                found.map(|object| object.value),
                Some(turn.to_le_bytes().to_vec()),
                "what was acknowledged"
            );
        }
    }

    /// Another reads the counters: what was told to anybody before a read began is the least that
    /// it may give.
    fn look(&self, clients: &Clients) {
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

/// Tells the clients to end, also when the test's own thread panics.
struct Ends<'a>(&'a Load);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.ends.store(true, Ordering::Release);
    }
}

/// Has clients at work while `faults` does its part, and until some time behind it; they must have
/// seen nothing wrong. Returns how high every counter is at least.
pub(crate) fn under_load(clients: &Clients, faults: impl FnOnce(&Load)) -> u64 {
    let load = Load::default();
    thread::scope(|scope| {
        let workers = [
            scope.spawn(|| clients.on(|| load.raise(clients))),
            scope.spawn(|| clients.on(|| load.look(clients))),
        ];
        {
            let _ends = Ends(&load);
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
