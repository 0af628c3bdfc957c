//! What a line is to do. All of it may change while packets are on it.

use crate::chance::Probability;
use crate::frame::WIRE_OVERHEAD;
use std::num::NonZeroU32;
use std::time::Duration;

/// Longest delay one way, and longest of what may come on top of it (jitter, being held back).
pub const MAX_DELAY: Duration = Duration::from_millis(500);

/// Lowest rate, in bits per second: a frame takes seconds.
pub const MIN_RATE: u64 = 1_000;

/// Highest rate, in bits per second.
pub const MAX_RATE: u64 = 1_000_000_000_000;

/// Largest buffer, in bytes.
pub const MAX_BUFFER: u64 = 8 << 30;

/// Buffer of a line with a rate, unless told: bytes on the wire.
pub const DEFAULT_BUFFER: u64 = 64_000_000;

/// Most segments that can be told to be lost by their number.
pub const MAX_LISTED: usize = 4_096;

/// A rate in bits per second, between [`MIN_RATE`] and [`MAX_RATE`].
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Rate(u64);

impl Rate {
    /// `None` outside the limits.
    #[must_use]
    pub fn new(bits_per_second: u64) -> Option<Self> {
        (MIN_RATE..=MAX_RATE).contains(&bits_per_second).then_some(Self(bits_per_second))
    }

    /// As a number.
    #[must_use]
    pub fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Bytes that leave in this time, rounded up.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bits = time.as_nanos() * u128::from(self.0);
        u64::try_from(bits.div_ceil(8_000_000_000)).unwrap_or(u64::MAX)
    }

    /// Time that these bytes take, rounded down to a nanosecond.
    #[must_use]
    pub fn time_of(self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes.saturating_mul(8_000_000_000) / self.0)
    }
}

/// How packets wait for the transmitter.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Discipline {
    /// In one queue, whose end is cut off when the buffer is full.
    #[default]
    DropTail,
    /// In a queue for each flow, served by deficit round robin; when the buffer is full, the
    /// longest queue is cut at its head.
    Harmonize,
}

/// When the first bit of a frame may leave.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Timing {
    /// When its last bit is in.
    #[default]
    StoreAndForward,
    /// When its header is in, the line it came over being as fast as this one.
    CutThrough,
}

/// Which segments are lost on the way.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with this probability.
    Random(Probability),
    /// In bursts, after Gilbert and Elliott: a good state and a bad one.
    Bursts(GilbertElliott),
    /// Those with these numbers, counted from 1 from the first that came, without what kernels send
    /// of their own accord; sorted.
    Listed(Vec<u64>),
}

/// The model of Gilbert (1960) and Elliott (1963).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GilbertElliott {
    /// From good to bad, looked at before each segment.
    pub to_bad: Probability,
    /// From bad to good.
    pub to_good: Probability,
    /// Loss while it is bad.
    pub loss_bad: Probability,
    /// Loss while it is good.
    pub loss_good: Probability,
}

/// Segments that are held back, so that those behind overtake them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reorder {
    /// Which.
    pub share: Probability,
    /// For how long; up to [`MAX_DELAY`].
    pub by: Duration,
}

/// What a line does. The default is a cable: everything at once, and nothing lost.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Propagation: from the last bit's leaving to its arrival. Up to [`MAX_DELAY`].
    pub delay: Duration,
    /// Rate of the transmitter; none: at once.
    pub rate: Option<Rate>,
    /// Bytes on the wire that may wait, what is being transmitted included; beyond that arriving
    /// segments are dropped. Means something only with a rate.
    pub buffer: u64,
    /// How packets wait.
    pub queue: Discipline,
    /// Rate of each flow, where they wait in queues of their own.
    pub flow_rate: Option<Rate>,
    /// Most segments that leave together: longer super-packets are cut as they arrive. Each cut
    /// costs memory for headers, and each piece a system call. None: they stay whole.
    pub burst: Option<NonZeroU32>,
    /// When a frame may leave.
    pub timing: Timing,
    /// What a frame needs on the wire besides its bytes; 0: the rate is of frames without check
    /// sequence, preamble and gap.
    pub overhead: u16,
    /// Which segments are lost.
    pub loss: Loss,
    /// Segments are late by up to this, equally likely each; they stay in order. Up to
    /// [`MAX_DELAY`].
    pub jitter: Duration,
    /// Segments that others overtake.
    pub reorder: Option<Reorder>,
    /// Segments that come twice.
    pub duplicate: Probability,
    /// Segments of which one bit is turned, behind the Ethernet header.
    pub corrupt: Probability,
    /// Seed of all chance: the same seed does the same to the same segments.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            rate: None,
            buffer: DEFAULT_BUFFER,
            queue: Discipline::default(),
            flow_rate: None,
            burst: None,
            timing: Timing::default(),
            overhead: WIRE_OVERHEAD,
            loss: Loss::default(),
            jitter: Duration::ZERO,
            reorder: None,
            duplicate: Probability::NEVER,
            corrupt: Probability::NEVER,
            seed: 1,
        }
    }
}

impl Settings {
    /// Bytes on the wire that can be on this line at once: what waits, and what is under way.
    /// `assumed` is the rate where none is set.
    #[must_use]
    pub fn capacity(&self, assumed: Rate) -> u64 {
        let held = self.reorder.map_or(Duration::ZERO, |reorder| reorder.by);
        let under_way = self.rate.unwrap_or(assumed).bytes_in(self.delay + self.jitter + held);
        under_way + if self.limited() { self.buffer } else { 0 }
    }

    /// Whether something can have to wait.
    #[must_use]
    pub fn limited(&self) -> bool {
        self.rate.is_some() || (self.flow_rate.is_some() && self.queue == Discipline::Harmonize)
    }
}
