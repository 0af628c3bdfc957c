//! The settings of a line. All of them may change while packets are on it.

use crate::chance::Probability;
use crate::frame::WIRE_OVERHEAD;
use std::num::NonZeroU32;
use std::time::Duration;

/// Limit on the one-way delay. It also applies to jitter, and to the time for which a segment is
/// held back.
pub const MAX_DELAY: Duration = Duration::from_millis(500);

/// The lowest rate of a line, in bits per second. A frame then takes seconds.
pub const MIN_RATE: u64 = 1_000;

/// The highest rate of a line, in bits per second.
pub const MAX_RATE: u64 = 1_000_000_000_000;

/// Limit on a line's buffer, in bytes.
pub const MAX_BUFFER: u64 = 8 << 30;

/// Default buffer of a line with a rate, in bytes on the wire.
pub const DEFAULT_BUFFER: u64 = 64_000_000;

/// Limit on the segments in [`Loss::Listed`].
pub const MAX_LISTED: usize = 4_096;

/// A rate in bits per second, between [`MIN_RATE`] and [`MAX_RATE`].
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Rate(u64);

impl Rate {
    /// Returns the rate, or `None` outside the limits.
    #[must_use]
    pub fn new(bits_per_second: u64) -> Option<Self> {
        (MIN_RATE..=MAX_RATE).contains(&bits_per_second).then_some(Self(bits_per_second))
    }

    /// Returns the rate as a number.
    #[must_use]
    pub fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Returns the bytes that leave in `time`, rounded up.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bits = time.as_nanos() * u128::from(self.0);
        u64::try_from(bits.div_ceil(8_000_000_000)).unwrap_or(u64::MAX)
    }

    /// Returns the time that `bytes` take, rounded down to a nanosecond.
    #[must_use]
    pub fn time_of(self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes.saturating_mul(8_000_000_000) / self.0)
    }
}

/// How packets wait for the transmitter.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Discipline {
    /// In one queue; a packet that arrives when the buffer is full is dropped.
    #[default]
    DropTail,
    /// In a queue for each flow, served by deficit round robin. When the buffer is full, packets
    /// are dropped at the head of the longest queue.
    Harmonize,
}

/// When the first bit of a frame may leave.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Timing {
    /// When its last bit has arrived.
    #[default]
    StoreAndForward,
    /// When its header has arrived, assuming that the frame arrives at this line's rate.
    CutThrough,
}

/// Which segments are lost on the way.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// No segment.
    #[default]
    None,
    /// Each with this probability.
    Random(Probability),
    /// In bursts, by the Gilbert-Elliott model.
    Bursts(GilbertElliott),
    /// Those with these numbers, sorted. Segments are counted from 1, without packets that kernels
    /// send by themselves.
    Listed(Vec<u64>),
}

/// The loss model of Gilbert (1960) and Elliott (1963): a good and a bad state, each with its own
/// loss.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GilbertElliott {
    /// Probability of a change from good to bad, drawn before each segment.
    pub to_bad: Probability,
    /// Probability of a change from bad to good.
    pub to_good: Probability,
    /// Loss in the bad state.
    pub loss_bad: Probability,
    /// Loss in the good state.
    pub loss_good: Probability,
}

/// Holds segments back, so that later ones overtake them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reorder {
    /// Share of segments that are held back.
    pub share: Probability,
    /// For how long; at most [`MAX_DELAY`].
    pub by: Duration,
}

/// What a line does to packets. The default is a cable: no delay, no rate limit, no loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LineSettings {
    /// Propagation delay, from when the last bit leaves the transmitter. At most [`MAX_DELAY`].
    pub delay: Duration,
    /// Rate of the transmitter; with `None`, transmission takes no time.
    pub rate: Option<Rate>,
    /// Bytes on the wire that may wait, including the frame that is being sent; segments that
    /// arrive when it is full are dropped. Ignored without a rate.
    pub buffer: u64,
    /// How packets wait.
    pub queue: Discipline,
    /// Rate limit of each flow, if flows have queues of their own.
    pub flow_rate: Option<Rate>,
    /// Limit on the segments of a super-packet that leaves. A longer one is split when it arrives,
    /// which costs memory for headers, and a system call for each piece. With `None`, super-packets
    /// are not split.
    pub burst: Option<NonZeroU32>,
    /// When a frame may leave.
    pub timing: Timing,
    /// Bytes that a frame takes on the wire besides its own. With 0, the rate is that of frames
    /// without check sequence, preamble and gap.
    pub overhead: u16,
    /// Selects the segments that are lost.
    pub loss: Loss,
    /// Each segment is late by a random time up to this, uniformly distributed; segments stay in
    /// order. At most [`MAX_DELAY`].
    pub jitter: Duration,
    /// Segments that later ones overtake.
    pub reorder: Option<Reorder>,
    /// Probability that a segment is duplicated.
    pub duplicate: Probability,
    /// Probability that one bit of a segment is flipped, behind the Ethernet header.
    pub corrupt: Probability,
    /// Seed of all random draws: the same seed impairs the same segments in the same way.
    pub seed: u64,
}

impl Default for LineSettings {
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

impl LineSettings {
    /// Returns the bytes on the wire that can be on the line at once: the buffer, and what is under
    /// way. `assumed` is the rate if none is set.
    #[must_use]
    pub fn capacity(&self, assumed: Rate) -> u64 {
        let held = self.reorder.map_or(Duration::ZERO, |reorder| reorder.by);
        let under_way = self.rate.unwrap_or(assumed).bytes_in(self.delay + self.jitter + held);
        under_way + if self.limited() { self.buffer } else { 0 }
    }

    /// Returns whether packets may have to wait.
    #[must_use]
    pub fn limited(&self) -> bool {
        self.rate.is_some() || (self.flow_rate.is_some() && self.queue == Discipline::Harmonize)
    }
}
