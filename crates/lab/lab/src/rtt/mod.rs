//! Round-trip times of the flows that pass, seen from the middle and without a packet of our own.
//!
//! A packet that asks to be answered leaves a *stamp*: when it came to the box. The answer finds it
//! and tells how long the way from there was: over the line, to the far host, and back to the box.
//! That is one *half* of a round trip, and the other direction has the other one; each bit of the
//! way is in exactly one of them, so the sum is what the hosts see. TCP asks and answers with its
//! time stamps (RFC 7323), or else with sequence numbers and acknowledgements; echoes of ICMP do by
//! number.
//!
//! The directions of a box are turned by different threads. What they share is a table of single
//! words ([`Stamps`]): no lock, and a word that is overwritten costs one sample.

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

/// Stamps that a box remembers, a power of two: 256 KB. With more than that on their way some are
/// overwritten, and give no sample.
pub const STAMPS: usize = 1 << 15;

/// Longest half round trip that is believed: three of the longest delays that can be set, and a
/// host that takes its time. What is older is an answer to something else.
pub const LONGEST: Duration = Duration::from_secs(10);

/// Bits of a word: one that says that there is a stamp, one whether its packet had a payload, a tag
/// that tells stamps of one place apart, and the time in [`GRAIN`] nanoseconds.
const PRESENT: u64 = 1 << 63;
const PAYLOAD: u64 = 1 << 62;
const TIME_BITS: u32 = 38;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
const TAG_MASK: u64 = !(PRESENT | PAYLOAD | TIME_MASK);

/// Nanoseconds that a stamp tells apart; the times come round after five hours.
const GRAIN: u64 = 64;

/// The stamps of all flows of a box.
#[derive(Debug)]
pub struct Stamps {
    words: Box<[AtomicU64]>,
}

impl Stamps {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self { words: std::iter::repeat_with(AtomicU64::default).take(STAMPS).collect() }
    }

    fn leave(&self, key: Key, payload: bool, now: Time) {
        let payload = if payload { PAYLOAD } else { 0 };
        self.word(key).store(PRESENT | payload | key.tag() | grains(now), Relaxed);
    }

    /// Takes a stamp out: how old it is, and whether its packet had a payload.
    fn take(&self, key: Key, now: Time) -> Option<(Duration, bool)> {
        let place = self.word(key);
        let word = place.load(Relaxed);
        if word & (PRESENT | TAG_MASK) != PRESENT | key.tag() {
            return None;
        }
        // Whoever overwrote it meanwhile has left another.
        place.compare_exchange(word, 0, Relaxed, Relaxed).ok()?;
        let age = grains(now).wrapping_sub(word) & TIME_MASK;
        let age = Duration::from_nanos(age * GRAIN);
        (age <= LONGEST).then_some((age, word & PAYLOAD != 0))
    }

    fn forget(&self, key: Key) {
        let place = self.word(key);
        let word = place.load(Relaxed);
        if word & (PRESENT | TAG_MASK) == PRESENT | key.tag() {
            let _ = place.compare_exchange(word, 0, Relaxed, Relaxed); // gone already is as good
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

/// Which stamp: a flow, and a number in it, as a hash of which some bits say where and others are
/// the tag.
#[derive(Clone, Copy, Debug)]
struct Key(u64);

impl Key {
    /// `flow` is a hash of its own already.
    fn new(flow: u64, number: u64) -> Self {
        Self(mix(flow ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn tag(self) -> u64 {
        self.0 & TAG_MASK
    }
}

/// The same in every thread.
fn hash(flow: &Flow) -> u64 {
    let mut hasher = DefaultHasher::new();
    flow.hash(&mut hasher);
    hasher.finish()
}

/// What is known of a flow's round trips.
///
/// A half begins when a packet of the other direction comes to the box, and ends when the answer of
/// this flow's sender does: the line to the sender, the sender, and the way from there.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct RoundTrips {
    /// Halves that were seen.
    pub samples: u64,
    /// The last, in nanoseconds.
    pub last_ns: u64,
    /// The shortest, in nanoseconds.
    pub min_ns: u64,
    /// Mean of late, each sample counting an eighth (as the smoothed time of RFC 6298 does), in
    /// nanoseconds.
    pub smoothed_ns: u64,
    /// The whole round trip, smoothed, in nanoseconds: known to whoever sees both directions, and
    /// where both have been seen.
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
