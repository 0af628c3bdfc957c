//! *Weir*, the controller of dynamic pacing: a pure function from what the kernel knows of a path
//! to the rate to send at.
//!
//! It has no clock and no socket: samples go in, a rate comes out. The page that derives it is
//! `docs/pacing.md`.

mod cruise;
mod history;
mod seen;
mod shared;
mod start;

use history::History;
use seen::{Seen, counted, round_trip};
use shared::QUIET_ROUNDS;
use std::time::Duration;

/// Samples in a round trip: what asks the kernel does so this often.
pub const TICKS_PER_RTT: u32 = 32;

/// No path is taken to carry more, bytes a second: a terabit.
const MOST_RATE: f64 = 125e9;

/// Where a connection begins: bytes in its first round trip, spread over it; with a knock, as much
/// as a receiver's first window takes.
const FIRST_ROUND_BYTES: f64 = 52_000.0;

/// In the start, a knock is so many times faster than the rest of its round, for this part of a
/// round trip.
pub(crate) const KNOCK: f64 = 5.0;
const KNOCK_PART: u32 = 16;

/// Growth a round trip when cruising: where it begins, and the most it comes to while nothing
/// pushes back.
const LEAST_GROWTH: f64 = 0.005;
const MOST_GROWTH: f64 = 0.25;

/// Nothing arrives for this part of a round trip, and for [`LEAST_ROUND`], though something is
/// under way: then it says nothing of what the path carries.
const SILENCE_PART: u32 = 4;

/// Round trips of silence after which the path is looked for anew.
const LONG_SILENCE: u32 = 4;

/// What is counted is counted over this time at least: longer than a machine is held up by others.
const LEAST_ROUND: Duration = Duration::from_millis(64);

/// By how much less than what arrives is sent, to let a queue go: shares.
const LEAST_DECREASE: f64 = 0.04;
const MOST_DECREASE: f64 = 0.3;

/// What the kernel knew of a connection at one moment. Counters run from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// When, on any clock that does not jump.
    pub now: Duration,
    /// Bytes of a full segment.
    pub mss: u32,
    /// Bytes sent, those sent again too.
    pub sent: u64,
    /// Bytes sent again.
    pub retransmitted: u64,
    /// Bytes that have reached the other end, in order or not.
    pub delivered: u64,
    /// Bytes taken for lost and not yet sent again.
    pub lost: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// How far round-trip times vary about that.
    pub rtt_variation: Duration,
    /// The least round-trip time.
    pub min_rtt: Duration,
    /// Whether there was less to send than might have been.
    pub idle: bool,
}

/// What the controller is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Finding out what the path carries.
    Start(Round),
    /// Letting the queue that this made run empty.
    Drain {
        /// When it is to end at the latest.
        until: Duration,
    },
    /// Filling the path with hardly a queue.
    Cruise {
        /// Growth a round trip.
        growth: f64,
        /// Whether the path has pushed back, and it is not known yet whose doing that is.
        doubt: Option<Doubt>,
    },
    /// Taking the fair share of a path that others use.
    Shared {
        /// Since when nothing has pushed back.
        quiet_since: Duration,
    },
}

/// A round of the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Bytes a second, but for the knock at its beginning.
    base: f64,
    /// When it began.
    since: Duration,
    /// Bytes that the knock sent, and how long it took, once it has ended.
    knocked: Option<(f64, Duration)>,
    /// What the knock before found, if it did not pass: bytes a second.
    failed: Option<f64>,
}

/// What was seen when the path pushed back and the rate was lowered: if the queue was ours, it goes
/// away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Doubt {
    /// Bytes a second that arrived.
    arrived: f64,
    /// By which share the rate was lowered.
    less: f64,
    /// Whether more was lost than by accident.
    overflowed: bool,
    /// Since when that must show, and the queue at that time.
    shown: Option<(Duration, Duration)>,
}

/// The controller of one connection.
#[derive(Debug)]
pub struct Weir {
    mode: Mode,
    /// Bytes a second.
    rate: f64,
    /// The most the path has carried, bytes a second; it is forgotten slowly.
    capacity: f64,
    /// Whether the path was full then.
    sure: bool,
    /// Round trips of quiet after which others are taken to have gone, and when that was last so.
    patience: u32,
    left_shared: Duration,
    /// When the rate was last taken back.
    held_back: Duration,
    /// Until when no more is tried than what is known.
    rest_until: Duration,
    /// When something last arrived, or could have.
    heard: Duration,
    /// How long the silence was whose traces are still in the history, and until when they are.
    silence: Option<(Duration, Duration)>,
    history: History,
}

impl Default for Weir {
    fn default() -> Self {
        Self::new()
    }
}

impl Weir {
    /// A connection that has sent nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            mode: Mode::Drain { until: Duration::ZERO },
            rate: 0.0,
            capacity: 0.0,
            sure: false,
            patience: QUIET_ROUNDS,
            left_shared: Duration::ZERO,
            held_back: Duration::ZERO,
            rest_until: Duration::ZERO,
            heard: Duration::ZERO,
            silence: None,
            history: History::default(),
        }
    }

    /// What it is about.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether the rate is meant for a moment only, far above what the path is known to carry.
    #[must_use]
    pub fn knocks(&self) -> bool {
        matches!(self.mode, Mode::Start(round) if round.knocked.is_none() && self.rate > round.base)
    }

    /// What the path is taken to carry, bytes a second; zero before it is known.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is positive and far below 2^64"
    )]
    pub fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// Takes a sample, of which there should be [`TICKS_PER_RTT`] in a round trip, and gives the
    /// rate, bytes a second.
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
            self.heard = sample.now + round_trip(&sample);
            return self.rate as u64;
        };
        let seen = self.look(&sample, &last);
        if sample.delivered > last.delivered {
            self.heard = sample.now;
        } else if seen.under_way == 0.0 {
            self.heard = sample.now + seen.rtt; // when something could arrive
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

    /// While nothing arrives, and as long as that is part of what was counted, the rate stays: who
    /// hears nothing learns nothing. Gives the mode as long as that lasts, and once more, to go
    /// on from, at its end.
    fn silence(&mut self, seen: &Seen) -> Option<Mode> {
        let silent = seen.now.saturating_sub(self.heard);
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
        self.held_back = seen.now;
        Some(match self.mode {
            Mode::Start(round) => self.knock(seen, round.base, None),
            // Much may have changed: the first knock is what was the rate.
            _ if silent > seen.rtt * LONG_SILENCE => self.knock(seen, self.rate / KNOCK, None),
            Mode::Shared { .. } => Mode::Shared { quiet_since: seen.now },
            Mode::Drain { .. } | Mode::Cruise { .. } => {
                Mode::Cruise { growth: LEAST_GROWTH, doubt: None }
            }
        })
    }
}
