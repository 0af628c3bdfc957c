//! Counters of a bridge.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a bridge since it was opened, and the keys that wait for delivery.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct BridgeStats {
    /// Reads answered from memory.
    pub hits: u64,
    /// Reads answered from the home.
    pub misses: u64,
    /// Writes and deletions that were acknowledged.
    pub writes: u64,
    /// Deliveries that reached the home. One delivery may cover several writes of a key.
    pub applied: u64,
    /// Deliveries that failed. Each is tried again.
    pub failed: u64,
    /// Objects evicted from memory.
    pub evicted: u64,
    /// Keys of this bridge whose last write is possibly not in the home yet.
    pub dirty: usize,
    /// How long the oldest dirty key has waited, in seconds.
    pub lag: f64,
    /// Number of completed sweeps over the whole table.
    pub sweeps: u64,
    /// The last error of a delivery or a sweep. `None` if there was no error yet.
    #[serde(rename = "trouble")]
    pub last_error: Option<String>,
}

/// The counters while the bridge runs.
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
    pub(crate) fn stats(&self) -> BridgeStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BridgeStats {
            hits: read(&self.hits),
            misses: read(&self.misses),
            writes: read(&self.writes),
            applied: read(&self.applied),
            failed: read(&self.failed),
            evicted: read(&self.evicted),
            sweeps: read(&self.sweeps),
            ..BridgeStats::default()
        }
    }
}
