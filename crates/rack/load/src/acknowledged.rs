//! Which writes were acknowledged, and whether what is stored agrees.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most lost writes that are named; those beyond are counted.
pub const MAX_LOST: usize = 100;

/// Of each key the highest number of a write that was acknowledged.
///
/// Writes carry their number as Cassandra's write timestamp, so that the highest one stays, in
/// whichever order they arrive.
#[derive(Debug)]
pub struct Acknowledged {
    base: u64,
    highest: Vec<AtomicU64>,
}

/// What is to be said of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It has what was acknowledged last.
    Kept,
    /// It has a later write, which was never acknowledged to us, or is another run's: allowed.
    Ahead,
    /// A write that was acknowledged is gone.
    Lost(Lost),
}

/// An acknowledged write that is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Lost {
    /// Whose.
    pub key: u64,
    /// Its number.
    pub acknowledged: u64,
    /// The number that is there instead; 0: nothing of this run.
    pub found: u64,
}

/// What verification found.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Verified {
    /// Keys that were read.
    pub checked: u64,
    /// Keys that could not be read: nothing is known of them.
    pub unread: u64,
    /// Keys with a later write than the last that was acknowledged.
    pub ahead: u64,
    /// Keys of which an acknowledged write is gone.
    pub lost_keys: u64,
    /// The first [`MAX_LOST`] of them.
    pub lost: Vec<Lost>,
}

impl Acknowledged {
    /// Of `keys` keys none is acknowledged yet. `base` is what stamps begin from: when the run
    /// began, us since 1970.
    #[must_use]
    pub fn new(base: u64, keys: u64) -> Self {
        Self { base, highest: (0..keys).map(|_| AtomicU64::new(0)).collect() }
    }

    /// A write was acknowledged.
    pub fn note(&self, key: u64, stamp: u64) {
        assert!(stamp > self.base, "numbers begin with 1");
        self.of(key).fetch_max(stamp - self.base, Ordering::AcqRel);
    }

    /// The highest number of a key that is acknowledged; 0: none.
    #[must_use]
    pub fn highest(&self, key: u64) -> u64 {
        self.of(key).load(Ordering::Acquire)
    }

    /// How many keys there are.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.highest.len() as u64
    }

    /// What to say of a key of which `acknowledged` was the highest number before it was read, and
    /// whose value has the stamp `found`. Earlier runs' stamps are below this run's base: rates
    /// are limited so that numbers stay behind microseconds.
    #[must_use]
    pub fn judge(&self, key: u64, acknowledged: u64, found: Option<u64>) -> Verdict {
        let found = found.map_or(0, |stamp| stamp.saturating_sub(self.base));
        match found.cmp(&acknowledged) {
            std::cmp::Ordering::Equal => Verdict::Kept,
            std::cmp::Ordering::Greater => Verdict::Ahead,
            std::cmp::Ordering::Less => Verdict::Lost(Lost { key, acknowledged, found }),
        }
    }

    fn of(&self, key: u64) -> &AtomicU64 {
        &self.highest[usize::try_from(key).expect("as many as fit into memory")]
    }
}

impl Verified {
    /// Counts a key that was read.
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

    /// Counts what another one found.
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
