//! Measures the round-trip times of the flows that pass, from the middle and without sending
//! packets.
//!
//! A packet that will be answered leaves a *stamp*: the time at which it reached the box. When the
//! answer reaches the box, the age of the stamp is the time over the line to the far host and back
//! to the box. That is one *half* of a round trip; the other direction measures the other half.
//! Each part of the way belongs to exactly one half, so the sum of both halves is the round trip
//! that the hosts see. TCP packets and their answers are matched by TCP timestamps (RFC 7323), or
//! otherwise by sequence and acknowledgement numbers. ICMP echoes are matched by their numbers.
//!
//! Different threads handle the two directions of a box. They share a table of 64-bit words
//! ([`Stamps`]), one for each stamp, without a lock. A word that is overwritten costs one sample.

mod join;
mod probe;
mod tracker;

use crate::frame::Flow;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use sprat_chance::mix;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub use join::join;
pub(crate) use tracker::Tracker;

/// Number of stamps that a box remembers, a power of two; they take 256 KB. With more packets under
/// way, some stamps are overwritten and give no sample.
pub const STAMPS: usize = 1 << 15;

/// Limit on a half of a round trip. It leaves room for the longest delays that can be set, and for
/// a slow host. An older stamp belongs to another packet, and is not counted.
pub const LONGEST: Duration = Duration::from_secs(10);

/// The parts of a word of the table. One bit is set if there is a stamp, and another if its packet
/// had a payload. A tag, which is a part of the [`Key`], distinguishes stamps with equal indices.
/// The time is in units of [`GRAIN`] nanoseconds.
const PRESENT: u64 = 1 << 63;
const PAYLOAD: u64 = 1 << 62;
const TIME_BITS: u32 = 38;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
const TAG_MASK: u64 = !(PRESENT | PAYLOAD | TIME_MASK);

/// Resolution of a stamp, in nanoseconds. The times wrap around after five hours.
const GRAIN: u64 = 64;

/// The stamps of all flows of a box.
#[derive(Debug)]
pub struct Stamps {
    words: Box<[AtomicU64]>,
}

impl Stamps {
    /// Makes an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self { words: std::iter::repeat_with(AtomicU64::default).take(STAMPS).collect() }
    }

    fn record(&self, key: Key, payload: bool, now: Time) {
        let payload = if payload { PAYLOAD } else { 0 };
        self.word(key).store(PRESENT | payload | key.tag() | grains(now), Relaxed);
    }

    /// Removes a stamp. Returns its age, and whether its packet had a payload.
    fn take(&self, key: Key, now: Time) -> Option<(Duration, bool)> {
        let place = self.word(key);
        let word = place.load(Relaxed);
        if word & (PRESENT | TAG_MASK) != PRESENT | key.tag() {
            return None;
        }
        // If another thread has overwritten the word in the meantime, the new stamp stays.
        place.compare_exchange(word, 0, Relaxed, Relaxed).ok()?;
        let age = grains(now).wrapping_sub(word) & TIME_MASK;
        let age = Duration::from_nanos(age * GRAIN);
        (age <= LONGEST).then_some((age, word & PAYLOAD != 0))
    }

    fn forget(&self, key: Key) {
        let place = self.word(key);
        let word = place.load(Relaxed);
        if word & (PRESENT | TAG_MASK) == PRESENT | key.tag() {
            let _ = place.compare_exchange(word, 0, Relaxed, Relaxed); // it may be gone already
        }
    }

    fn word(&self, key: Key) -> &AtomicU64 {
        let index = usize::try_from(key.0 % STAMPS as u64).expect("less than the number of words");
        &self.words[index]
    }
}

impl Default for Stamps {
    fn default() -> Self {
        Self::new()
    }
}

fn grains(now: Time) -> u64 {
    (now.0 / GRAIN) & TIME_MASK
}

/// Identifies a stamp: a hash of a flow and of a number in that flow. Some bits of the hash are the
/// index, others are the tag.
#[derive(Clone, Copy, Debug)]
struct Key(u64);

impl Key {
    /// Returns the key of a number in a flow; `flow` is the hash of the flow.
    fn new(flow: u64, number: u64) -> Self {
        Self(mix(flow ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn tag(self) -> u64 {
        self.0 & TAG_MASK
    }
}

/// Returns the hash of a flow, which is the same in every thread.
fn hash(flow: &Flow) -> u64 {
    let mut hasher = DefaultHasher::new();
    flow.hash(&mut hasher);
    hasher.finish()
}

/// What is known of a flow's round trips.
///
/// A half begins when a packet of the opposite direction reaches the box. It ends when the answer
/// of this flow's sender reaches the box. So it covers the line to the sender, the sender itself,
/// and the way back.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct RoundTrips {
    /// Number of halves that were measured.
    pub samples: u64,
    /// The last half, in nanoseconds.
    pub last_ns: u64,
    /// The shortest half, in nanoseconds.
    pub min_ns: u64,
    /// Moving average of the halves, in nanoseconds; each sample counts an eighth, as in RFC 6298.
    pub smoothed_ns: u64,
    /// Moving average of the whole round trip, in nanoseconds. Only [`join()`] sets it, and only if
    /// both directions are known.
    pub whole_ns: Option<u64>,
}

impl RoundTrips {
    fn count(&mut self, half: Duration) {
        let half = crate::time::nanos(half);
        self.min_ns = if self.samples == 0 { half } else { self.min_ns.min(half) };
        self.smoothed_ns = if self.samples == 0 {
            half
        } else {
            self.smoothed_ns - self.smoothed_ns / 8 + half / 8
        };
        self.last_ns = half;
        self.samples += 1;
    }
}
