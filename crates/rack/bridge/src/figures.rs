//! How it goes.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a bridge has done since it was opened, and what it has yet to do.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Figures {
    /// Reads answered from memory.
    pub hits: u64,
    /// Reads that asked the home.
    pub misses: u64,
    /// Writes and deletions acknowledged.
    pub writes: u64,
    /// What reached the home; several writes of a key may be one.
    pub applied: u64,
    /// Deliveries that failed, and are tried again.
    pub failed: u64,
    /// Objects that left memory.
    pub evicted: u64,
    /// Keys that are not at home yet, of those this bridge knows.
    pub dirty: usize,
    /// How long the oldest of them has waited, seconds.
    pub lag: f64,
    /// Times that all of the table was looked through.
    pub sweeps: u64,
    /// What went wrong last with a delivery or a sweep.
    pub trouble: Option<String>,
}

/// The same while it grows.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) applied: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) sweeps: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn figures(&self) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            hits: read(&self.hits),
            misses: read(&self.misses),
            writes: read(&self.writes),
            applied: read(&self.applied),
            failed: read(&self.failed),
            evicted: read(&self.evicted),
            sweeps: read(&self.sweeps),
            ..Figures::default()
        }
    }
}
