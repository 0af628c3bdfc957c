//! Remembers which writes were acknowledged, and compares them with what is stored.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limit on the lost writes that are listed. Those beyond it are only counted.
pub const MAX_LOST: usize = 100;

/// The highest acknowledged write of each key.
///
/// A write's timestamp in Cassandra is its stamp: the base of the run plus the number of the write.
/// So Cassandra keeps the write with the highest number of each key, in whichever order the writes
/// arrive. Threads may call [`note`](Self::note) at the same time.
#[derive(Debug)]
pub struct AcknowledgedWrites {
    base: u64,
    highest: Vec<AtomicU64>,
}

/// The result of comparing a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The last acknowledged write is stored, or no write was acknowledged and none of this run is
    /// stored.
    Kept,
    /// A later write is stored. It was not acknowledged to this load, or belongs to another run.
    Ahead,
    /// An acknowledged write is gone.
    Lost(LostWrite),
}

/// An acknowledged write that is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct LostWrite {
    /// The key of the write.
    pub key: u64,
    /// The write's number among the operations of the run, from 1.
    pub acknowledged: u64,
    /// The number that is stored instead; 0 if no write of this run is stored.
    pub found: u64,
}

/// The result of a verification.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Verification {
    /// Keys that were read.
    pub checked: u64,
    /// Keys that could not be read in three tries. They do not count as `checked`.
    pub unread: u64,
    /// Keys with a later write than the last acknowledged one.
    pub ahead: u64,
    /// Keys that lost an acknowledged write.
    pub lost_keys: u64,
    /// The lost writes of these keys, ordered by key, up to [`MAX_LOST`].
    pub lost: Vec<LostWrite>,
}

impl AcknowledgedWrites {
    /// Creates a record of `keys` keys without acknowledged writes. `base` is the start of the run
    /// in us since 1970. The stamp of a write is `base` plus the number of the write, from 1.
    #[must_use]
    pub fn new(base: u64, keys: u64) -> Self {
        Self { base, highest: (0..keys).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Records that a write was acknowledged.
    ///
    /// # Panics
    /// If `stamp` is not above the run's base, or there is no such key.
    pub fn note(&self, key: u64, stamp: u64) {
        assert!(stamp > self.base, "numbers begin with 1");
        self.of(key).fetch_max(stamp - self.base, Ordering::AcqRel);
    }

    /// Returns the highest acknowledged number of a key, or 0.
    #[must_use]
    pub fn highest(&self, key: u64) -> u64 {
        self.of(key).load(Ordering::Acquire)
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.highest.len() as u64
    }

    /// Compares a key. `acknowledged` is the key's highest acknowledged number before it was read,
    /// and `found` is the stamp of the value that was read. Stamps of earlier runs are below this
    /// run's base, since the rate is limited to one operation per microsecond.
    #[must_use]
    pub fn compare(&self, key: u64, acknowledged: u64, found: Option<u64>) -> Verdict {
        let found = found.map_or(0, |stamp| stamp.saturating_sub(self.base));
        match found.cmp(&acknowledged) {
            std::cmp::Ordering::Equal => Verdict::Kept,
            std::cmp::Ordering::Greater => Verdict::Ahead,
            std::cmp::Ordering::Less => Verdict::Lost(LostWrite { key, acknowledged, found }),
        }
    }

    fn of(&self, key: u64) -> &AtomicU64 {
        &self.highest[usize::try_from(key).expect("as many as fit into memory")]
    }
}

impl Verification {
    /// Counts a key that was read. If the key lost a write and fewer than [`MAX_LOST`] are listed,
    /// adds this write to the list.
    pub fn add(&mut self, verdict: Verdict) {
        self.checked += 1;
        match verdict {
            Verdict::Kept => {}
            Verdict::Ahead => self.ahead += 1,
            Verdict::Lost(lost) => {
                self.lost_keys += 1;
                if self.lost.len() < MAX_LOST {
                    self.lost.push(lost);
                }
            }
        }
    }

    /// Adds another reader's result. Of the lost writes, keeps the [`MAX_LOST`] with the lowest
    /// keys.
    pub fn merge(&mut self, other: Self) {
        self.checked += other.checked;
        self.unread += other.unread;
        self.ahead += other.ahead;
        self.lost_keys += other.lost_keys;
        self.lost.extend(other.lost);
        self.lost.sort_unstable_by_key(|lost| lost.key);
        self.lost.truncate(MAX_LOST);
    }
}
