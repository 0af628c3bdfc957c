//! *Weir*, the controller that chooses a connection's rate: a pure function from the kernel's
//! statistics to a rate. Like a weir in a river, it holds a level and lets pass what arrives.
//!
//! It has no clock and no socket: samples go in, a rate comes out. `docs/pacing.md` derives it.

mod cruise;
mod history;
mod seen;
mod shared;
mod start;

use history::History;
use seen::{Observation, counted, round_trip};
use shared::QUIET_ROUNDS;
use std::time::Duration;

/// Samples per round trip that the controller expects.
pub const TICKS_PER_RTT: u32 = 32;

/// Upper limit of the rate: a terabit a second.
const MOST_RATE: f64 = 125e9;

/// Bytes sent in the first round trip, apart from the knock; with it, as many as a receiver's first
/// window allows.
const FIRST_ROUND_BYTES: f64 = 52_000.0;

/// A knock, the burst at the beginning of each round of the start, is this many times faster than
/// the rest of its round, and takes this part of a round trip.
pub(crate) const KNOCK: f64 = 5.0;
const KNOCK_PART: u32 = 16;

/// Growth per round trip when cruising: its initial value, and its limit.
const LEAST_GROWTH: f64 = 0.005;
const MOST_GROWTH: f64 = 0.25;

/// If nothing arrives for this part of a round trip, and for [`LEAST_ROUND`], although bytes are in
/// flight, the samples say nothing about the path.
const SILENCE_PART: u32 = 4;

/// Round trips of silence after which the path is measured again.
const LONG_SILENCE: u32 = 4;

/// The shortest period over which bytes are counted, and the shortest silence that counts as one.
/// Other programs delay this one for less.
const LEAST_ROUND: Duration = Duration::from_millis(64);

/// Limits of the share by which the rate is decreased to drain a queue.
const LEAST_DECREASE: f64 = 0.04;
const MOST_DECREASE: f64 = 0.3;

/// The kernel's statistics of a connection at one moment. Counters start with the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// The time, by any clock that does not jump.
    pub now: Duration,
    /// Bytes of a full segment.
    pub mss: u32,
    /// Bytes sent, including retransmissions.
    pub sent: u64,
    /// Bytes retransmitted.
    pub retransmitted: u64,
    /// Bytes that have reached the other end, in order or not.
    pub delivered: u64,
    /// Bytes considered lost and not retransmitted yet.
    pub lost: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_variation: Duration,
    /// Minimum round-trip time.
    pub min_rtt: Duration,
    /// Whether there was less to send than the rate allowed.
    pub idle: bool,
}

/// What the controller is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Measuring the path's capacity.
    Start(Round),
    /// Letting its own queue drain.
    Drain {
        /// When to end at the latest.
        until: Duration,
    },
    /// Filling the path with hardly a queue.
    Cruise {
        /// Growth per round trip.
        growth: f64,
        /// Set after the path pushed back, until it is known whether our own queue was the cause.
        doubt: Option<Doubt>,
    },
    /// Taking a fair share of a path with other flows.
    Shared {
        /// Since when nothing has pushed back.
        quiet_since: Duration,
    },
}

/// A round of the start: a knock, and then the base rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Bytes a second, except during the knock.
    base: f64,
    /// When the round began.
    since: Duration,
    /// Bytes sent by the knock, and its duration, once it has ended.
    knocked: Option<(f64, Duration)>,
    /// Bytes a second that the previous knock measured, if it exceeded the capacity.
    failed: Option<f64>,
}

/// The situation when the path pushed back and the rate was decreased. If the queue was ours, it
/// shrinks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Doubt {
    /// Bytes a second that arrived.
    arrived: f64,
    /// Share by which the rate was decreased.
    less: f64,
    /// Whether more was lost than by accident.
    overflowed: bool,
    /// Since when the effect must be visible, and the queue at that time.
    shown: Option<(Duration, Duration)>,
}

/// The controller of one connection.
///
/// Call [`Weir::update`] with a [`Sample`] about [`TICKS_PER_RTT`] times per round trip and send at
/// the rate it returns. It starts by measuring the capacity with short bursts (knocks), then fills
/// the path with hardly a queue, and takes a fair share when other flows appear. [`Weir::mode`] and
/// [`Weir::capacity`] show what it does. It owns no resources, and each connection needs its own.
#[derive(Debug)]
pub struct Weir {
    mode: Mode,
    /// Bytes a second.
    rate: f64,
    /// The most that the path has carried, in bytes a second; slowly forgotten.
    capacity: f64,
    /// Whether the path was full when that was measured.
    sure: bool,
    /// Quiet round trips after which other flows are presumed gone, and when mode `Shared` last
    /// ended.
    patience: u32,
    left_shared: Duration,
    /// When the rate was last decreased.
    last_decrease: Duration,
    /// Until when no rate beyond the capacity is tried.
    rest_until: Duration,
    /// When bytes last arrived, or could have arrived.
    last_arrival: Duration,
    /// Duration of a silence that the history still covers, and until when it does.
    silence: Option<(Duration, Duration)>,
    history: History,
}

impl Default for Weir {
    fn default() -> Self {
        Self::new()
    }
}

impl Weir {
    /// Makes the controller of a connection that has sent nothing.
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

    /// Returns whether the current rate is a knock's: a short burst far above the known capacity.
    #[must_use]
    pub fn knocks(&self) -> bool {
        matches!(self.mode, Mode::Start(round) if round.knocked.is_none() && self.rate > round.base)
    }

    /// Returns the estimate of what the path carries, in bytes a second; zero before there is one.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is positive and far below 2^64"
    )]
    pub fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// Takes a sample and returns the rate to send at, in bytes a second.
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

    /// Keeps the rate while nothing arrives, and as long as the history covers such a period,
    /// because the samples then say nothing. Returns the mode during that time, and the mode to
    /// continue in when it ends.
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
            // Much may have changed: the first knock is the former rate.
            _ if silent > seen.rtt * LONG_SILENCE => self.knock(seen, self.rate / KNOCK, None),
            Mode::Shared { .. } => Mode::Shared { quiet_since: seen.now },
            Mode::Drain { .. } | Mode::Cruise { .. } => {
                Mode::Cruise { growth: LEAST_GROWTH, doubt: None }
            }
        })
    }
}
