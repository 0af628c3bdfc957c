//! The settings of a line. All of them may change while packets are on the line.

use crate::chance::Probability;
use crate::frame::WIRE_OVERHEAD;
use std::num::NonZeroU32;
use std::time::Duration;

/// Limit on the one-way delay. Jitter, and the time for which a segment is held back, have the same
/// limit.
pub const MAX_DELAY: Duration = Duration::from_millis(500);

/// The lowest rate of a line, in bits per second. At this rate, a full frame takes 12 seconds.
pub const MIN_RATE: u64 = 1_000;

/// The highest rate of a line, in bits per second.
pub const MAX_RATE: u64 = 1_000_000_000_000;

/// Limit on a line's buffer, in bytes.
pub const MAX_BUFFER: u64 = 8 << 30;

/// Default buffer of a line with a rate, in bytes on the wire.
pub const DEFAULT_BUFFER: u64 = 64_000_000;

/// Limit on the number of segments in [`Loss::Listed`].
pub const MAX_LISTED: usize = 4_096;

/// A rate in bits per second, between [`MIN_RATE`] and [`MAX_RATE`].
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Rate(u64);

impl Rate {
    /// Returns a rate, or `None` if it is outside the limits.
    #[must_use]
    pub fn new(bits_per_second: u64) -> Option<Self> {
        (MIN_RATE..=MAX_RATE).contains(&bits_per_second).then_some(Self(bits_per_second))
    }

    /// Returns the rate in bits per second.
    #[must_use]
    pub fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Returns the number of bytes that leave in `time`, rounded up.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bits = time.as_nanos() * u128::from(self.0);
        u64::try_from(bits.div_ceil(8_000_000_000)).unwrap_or(u64::MAX)
    }

    /// Returns the time that `bytes` take to leave, rounded down to a nanosecond.
    #[must_use]
    pub fn time_of(self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes.saturating_mul(8_000_000_000) / self.0)
    }
}

/// How packets wait for the transmitter.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Discipline {
    /// In one queue. Segments that do not fit into the buffer are dropped.
    #[default]
    DropTail,
    /// In a queue for each flow, served by deficit round robin. When the buffer is full, packets
    /// are dropped at the head of the longest queue.
    Harmonize,
}

/// When the first bit of a frame may leave.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Timing {
    /// When the last bit of the frame has arrived.
    #[default]
    StoreAndForward,
    /// When the Ethernet header has arrived. Assumes that the frame arrives at this line's rate.
    CutThrough,
}

/// Selects the segments that are lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// No segment is lost.
    #[default]
    None,
    /// Each segment is lost with this probability.
    Random(Probability),
    /// Segments are lost in bursts, by the Gilbert-Elliott model.
    Bursts(GilbertElliott),
    /// The segments with these numbers are lost; the numbers must be sorted. All segments of the
    /// line are counted from 1, except packets that kernels send by themselves and packets longer
    /// than the port's MTU.
    Listed(Vec<u64>),
}

/// The loss model of Gilbert (1960) and Elliott (1963): a good and a bad state, each with its own
/// probability of loss.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GilbertElliott {
    /// Probability of a change from good to bad, drawn before each segment.
    pub to_bad: Probability,
    /// Probability of a change from bad to good, drawn before each segment.
    pub to_good: Probability,
    /// Probability that a segment is lost in the bad state.
    pub loss_bad: Probability,
    /// Probability that a segment is lost in the good state.
    pub loss_good: Probability,
}

/// Selects segments that are held back, so that later segments overtake them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reorder {
    /// Probability that a segment is held back.
    pub share: Probability,
    /// How long a segment is held back; at most [`MAX_DELAY`].
    pub by: Duration,
}

/// What a line does to packets. The default is a cable: no delay, no rate limit, no loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LineSettings {
    /// Propagation delay, counted from when the last bit leaves the transmitter. At most
    /// [`MAX_DELAY`].
    pub delay: Duration,
    /// Rate of the transmitter. With `None`, transmission takes no time.
    pub rate: Option<Rate>,
    /// Bytes on the wire that may wait, including the frame that is being sent. If a segment does
    /// not fit, `queue` says which segments are dropped. Applies only with `rate`, or with
    /// `flow_rate` and [`Discipline::Harmonize`].
    pub buffer: u64,
    /// How packets wait for the transmitter.
    pub queue: Discipline,
    /// Rate limit of each flow. Applies only with [`Discipline::Harmonize`].
    pub flow_rate: Option<Rate>,
    /// Limit on the segments of a super-packet that leaves. A longer super-packet is split when it
    /// arrives. Each piece costs memory for headers and a system call. With `None`, super-packets
    /// are not split.
    pub burst: Option<NonZeroU32>,
    /// When the first bit of a frame may leave.
    pub timing: Timing,
    /// Bytes that a frame takes on the wire in addition to its own. With 0, the rate counts frames
    /// without check sequence, preamble and gap.
    pub overhead: u16,
    /// Selects the segments that are lost.
    pub loss: Loss,
    /// Each packet arrives later by a random time from 0 to this, uniformly distributed. A
    /// super-packet is delayed as one. Packets stay in order. At most [`MAX_DELAY`].
    pub jitter: Duration,
    /// Segments that are held back, so that later segments overtake them.
    pub reorder: Option<Reorder>,
    /// Probability that a segment is duplicated.
    pub duplicate: Probability,
    /// Probability that one bit of a segment is flipped, behind the Ethernet header.
    pub corrupt: Probability,
    /// Seed of all random draws. Equal seeds impair the same segments in the same way.
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
    /// Returns the number of bytes on the wire that can be on the line at the same time: the
    /// buffer, and packets under way. `assumed` is used as the rate if no rate is set.
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
