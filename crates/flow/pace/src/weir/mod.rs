//! *Weir*, the controller that chooses a connection's rate from the kernel's statistics. Like a
//! weir in a river, it keeps a level and lets everything else pass.
//!
//! The controller has no clock and no socket: its rates depend only on the samples that it gets.
//! `docs/pacing.md` explains it.

mod cruise;
mod history;
mod seen;
mod shared;
mod start;

use history::History;
use seen::{Observation, counted, round_trip};
use shared::QUIET_ROUNDS;
use std::time::Duration;

/// The number of samples per round trip that the controller expects.
pub const TICKS_PER_RTT: u32 = 32;

/// Limit on the rate, in bytes a second: a terabit a second.
const MOST_RATE: f64 = 125e9;

/// Bytes sent in the first round trip, not counting the knock. Together with the knock, this is
/// what the first window of a receiver allows.
const FIRST_ROUND_BYTES: f64 = 52_000.0;

/// A knock is the burst at the beginning of each round of the start. Its rate is this many times
/// the rate of the rest of the round. It lasts until the first sample after a `KNOCK_PART`th of a
/// round trip.
pub(crate) const KNOCK: f64 = 5.0;
const KNOCK_PART: u32 = 16;

/// Growth of the rate per round trip in mode `Cruise`, as a share of the rate: its smallest and its
/// largest value.
const LEAST_GROWTH: f64 = 0.005;
const MOST_GROWTH: f64 = 0.25;

/// The shortest silence is a `SILENCE_PART`th of a round trip, but at least [`LEAST_ROUND`]. If
/// nothing arrives for longer than that, although bytes are in flight, the samples say nothing
/// about the path.
const SILENCE_PART: u32 = 4;

/// Number of round trips of silence after which the path is measured again.
const LONG_SILENCE: u32 = 4;

/// The shortest period over which bytes are counted (except in modes `Start` and `Drain`), and the
/// longest pause in the arrivals that never counts as a silence. Other programs on the machine
/// delay this program for less time.
const LEAST_ROUND: Duration = Duration::from_millis(64);

/// Limits on the share by which the rate is decreased to drain a queue.
const LEAST_DECREASE: f64 = 0.04;
const MOST_DECREASE: f64 = 0.3;

/// The kernel's statistics of a connection at one moment. Counters start with the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// The time of the sample, on any clock that does not jump.
    pub now: Duration,
    /// Bytes of a full segment.
    pub mss: u32,
    /// Bytes sent, including retransmissions.
    pub sent: u64,
    /// Bytes retransmitted.
    pub retransmitted: u64,
    /// Bytes that have reached the other end, whether or not in order.
    pub delivered: u64,
    /// Bytes that are considered lost and have not been retransmitted yet.
    pub lost: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_variation: Duration,
    /// Minimum round-trip time.
    pub min_rtt: Duration,
    /// Whether there were fewer bytes to send than the rate allowed.
    pub idle: bool,
}

/// What the controller is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// The controller measures the path's capacity.
    Start(Round),
    /// The controller lets its own queue drain.
    Drain {
        /// When this mode ends at the latest.
        until: Duration,
    },
    /// The controller fills the path almost without a queue.
    Cruise {
        /// Growth of the rate per round trip, as a share of the rate.
        growth: f64,
        /// Set when the path has pushed back (its queue grew, or it lost bytes), until it is known
        /// whether our own queue was the cause.
        doubt: Option<Doubt>,
    },
    /// The controller takes a fair share of a path that other flows also use.
    Shared {
        /// The time since which the path has not pushed back.
        quiet_since: Duration,
    },
}

/// A round of the start: a knock, and then the base rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// The base rate, in bytes a second.
    base: f64,
    /// When the round began.
    since: Duration,
    /// Bytes sent by the knock, and the knock's duration. `None` until the knock has ended.
    knocked: Option<(f64, Duration)>,
    /// The rate that the previous knock measured, in bytes a second, if that knock exceeded the
    /// capacity.
    failed: Option<f64>,
}

/// The situation in which the path pushed back and the rate was decreased. If the queue consists of
/// our own bytes, it must shrink after the decrease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Doubt {
    /// The rate before the decrease, in bytes a second. It was first reduced to the arrival rate,
    /// if the bytes that arrived had been sent at about the current rate.
    arrived: f64,
    /// Share by which the rate was decreased.
    less: f64,
    /// Whether more was lost than errors of the line explain.
    overflowed: bool,
    /// A time, and the queue at that time: first when the decrease can have had an effect, later
    /// when the queue was last found to be shorter. `None` while there can be no effect.
    shown: Option<(Duration, Duration)>,
}

/// The controller of one connection.
///
/// Call [`Weir::update`] with a [`Sample`] about [`TICKS_PER_RTT`] times per round trip, and send
/// at the rate that it returns. The controller first measures the capacity with short bursts
/// (knocks). Then it fills the path almost without a queue, and takes a fair share when other flows
/// appear. [`Weir::mode`] and [`Weir::capacity`] show what it does. It owns no system resources.
/// Each connection needs a controller of its own.
#[derive(Debug)]
pub struct Weir {
    mode: Mode,
    /// The current rate, in bytes a second.
    rate: f64,
    /// The estimate of the highest rate that the path carries, in bytes a second; slowly reduced.
    capacity: f64,
    /// Whether the path was full when `capacity` was measured.
    sure: bool,
    /// Number of quiet round trips after which the other flows are assumed to have ended, and the
    /// time at which mode `Shared` last ended.
    patience: u32,
    left_shared: Duration,
    /// When the rate was last decreased, mode `Start` or `Drain` ended, mode `Shared` began, or a
    /// silence ended: whichever was last.
    last_decrease: Duration,
    /// The time until which no rate beyond the capacity is tried.
    rest_until: Duration,
    /// When bytes last arrived, or the earliest time at which they could have arrived.
    last_arrival: Duration,
    /// Duration of a silence that is still within the history, and the time at which it leaves the
    /// history.
    silence: Option<(Duration, Duration)>,
    history: History,
}

impl Default for Weir {
    fn default() -> Self {
        Self::new()
    }
}

impl Weir {
    /// Makes the controller of a connection that has not sent anything.
    #[must_use]
    pub fn new() -> Self {
        Self {
            mode: Mode::Drain { until: Duration::ZERO },
            rate: 0.0,
            capacity: 0.0,
            sure: false,
            patience: QUIET_ROUNDS,
            left_shared: Duration::ZERO,
            last_decrease: Duration::ZERO,
            rest_until: Duration::ZERO,
            last_arrival: Duration::ZERO,
            silence: None,
            history: History::default(),
        }
    }

    /// Returns what the controller is doing.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns whether the current rate is that of a knock, a short burst far above the known
    /// capacity.
    #[must_use]
    pub fn knocks(&self) -> bool {
        matches!(self.mode, Mode::Start(round) if round.knocked.is_none() && self.rate > round.base)
    }

    /// Returns the estimate of what the path carries, in bytes a second. Zero before the first
    /// estimate.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is positive and far below 2^64"
    )]
    pub fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// Takes a sample, and returns the rate at which to send, in bytes a second.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is positive and far below 2^64"
    )]
    pub fn update(&mut self, sample: Sample) -> u64 {
        let last = self.history.last();
        self.history.push(sample);
        let Some(last) = last else {
            self.rate = FIRST_ROUND_BYTES / round_trip(&sample).as_secs_f64();
            self.mode = Mode::Start(Round {
                base: self.rate,
                since: sample.now,
                knocked: None,
                failed: None,
            });
            self.rate *= KNOCK;
            self.last_arrival = sample.now + round_trip(&sample);
            return self.rate as u64;
        };
        let seen = self.observe(&sample, &last);
        if sample.delivered > last.delivered {
            self.last_arrival = sample.now;
        } else if seen.under_way == 0.0 {
            self.last_arrival = sample.now + seen.rtt; // the earliest possible arrival
        }
        self.mode = match (self.silence(&seen), self.mode) {
            (Some(mode), _) => mode,
            (None, Mode::Start(round)) => self.start(&seen, round),
            (None, Mode::Drain { until }) => self.drain(&seen, until),
            (None, Mode::Cruise { growth, doubt }) => self.cruise(&seen, growth, doubt),
            (None, Mode::Shared { quiet_since }) => self.shared(&seen, quiet_since),
        };
        self.rate = self.rate.clamp(2.0 * seen.mss / seen.rtt.as_secs_f64(), MOST_RATE);
        debug_assert!(self.rate.is_finite(), "a rate is a number");
        self.rate as u64
    }

    /// During a silence, and afterwards for as long as the bytes are counted over a period that
    /// contains the silence, keeps the rate (in mode `Start`, the base rate) and returns the
    /// current mode: samples of that time say nothing about the path. Then returns, once, the mode
    /// in which to continue. Returns `None` if there was no silence.
    fn silence(&mut self, seen: &Observation) -> Option<Mode> {
        let silent = seen.now.saturating_sub(self.last_arrival);
        if silent > (seen.rtt / SILENCE_PART).max(LEAST_ROUND) {
            if let Mode::Start(round) = self.mode {
                self.rate = round.base;
            }
            self.silence = Some((silent, seen.now + seen.rtt + counted(seen.rtt)));
        }
        let (silent, until) = self.silence?;
        if seen.now < until {
            return Some(self.mode);
        }
        self.silence = None;
        self.last_decrease = seen.now;
        Some(match self.mode {
            Mode::Start(round) => self.knock(seen, round.base, None),
            // The path may have changed much: measure it again, first at the former rate.
            _ if silent > seen.rtt * LONG_SILENCE => self.knock(seen, self.rate / KNOCK, None),
            Mode::Shared { .. } => Mode::Shared { quiet_since: seen.now },
            Mode::Drain { .. } | Mode::Cruise { .. } => {
                Mode::Cruise { growth: LEAST_GROWTH, doubt: None }
            }
        })
    }
}
