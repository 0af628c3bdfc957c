//! *Weir*, the controller of dynamic pacing: a pure function from what the kernel knows of a path to the rate to send at.
//!
//! It has no clock and no socket: samples go in, a rate comes out. The page that derives it is `docs/pacing.md`.

mod history;

use history::{History, bytes};
use std::time::Duration;

/// Samples in a round trip: what asks the kernel does so this often.
pub const TICKS_PER_RTT: u32 = 32;

/// No path is taken to carry more, bytes a second: a terabit.
const MOST_RATE: f64 = 125e9;

/// Where a connection begins: bytes in its first round trip, spread over it; with a knock, as much as a receiver's first window takes.
const FIRST_ROUND_BYTES: f64 = 52_000.0;

/// In the start, a knock is so many times faster than the rest of its round, for this part of a round trip.
const KNOCK: f64 = 5.0;
const KNOCK_PART: u32 = 16;

/// A knock has passed if the queue behind it takes no longer than this share of it: then the path carries at least four times what was sent.
const KNOCK_TOLERANCE: f64 = 0.24;

/// A knock of fewer segments is none, and the next round so many times as fast, as a receiver's window opens.
const FEWEST_KNOCKING: f64 = 32.0;
const BLIND_GROWTH: f64 = 3.0;

/// What is sent after the start of what it found: two measurements of milliseconds are not exact, and left a queue behind.
const AFTER_START: f64 = 0.95;

/// Growth a round trip when cruising: where it begins, and the most it comes to while nothing pushes back.
const LEAST_GROWTH: f64 = 0.005;
const MOST_GROWTH: f64 = 0.25;

/// Below this share of what the path has carried, growth becomes faster by the round trip.
const KNOWN_SHARE: f64 = 0.97;

/// Round trips for which a path whose buffer overflowed is not tried for more than is known: what others lose by that, they keep losing.
const REST_ROUNDS: u32 = 20;

/// A queue that is shorter than this is hardly told from a machine that is busy.
const LEAST_TOLERANCE: Duration = Duration::from_millis(3);

/// What is counted is counted over this time at least: longer than a machine is held up by others.
const LEAST_ROUND: Duration = Duration::from_millis(64);

/// What arrives of the rate, at least, if the path has room for it.
const FOLLOWS: f64 = 0.9;

/// What was sent of the rate, at least, for what arrives to say something about the path.
const TRIED: f64 = 0.8;

/// A share of bytes lost that is congestion, and no accident of the line.
const CONGESTION_LOSS: f64 = 0.01;

/// Fewer segments lost than this say nothing.
const FEWEST_LOST: f64 = 8.0;

/// What is forgotten in a round trip of what the path has carried.
const FORGETTING: f64 = 0.002;

/// By how much less than what arrives is sent, to let a queue go: shares.
const LEAST_DECREASE: f64 = 0.04;
const MOST_DECREASE: f64 = 0.3;

/// The share of the path that is ours while another takes of it.
const FAIR_SHARE: f64 = 0.5;

/// On a loss with others on the path, the rate becomes this share of itself; down to this share of the path.
const SHARED_DECREASE: f64 = 0.85;
const LEAST_SHARE: f64 = 0.125;

/// And is raised by this share of the path a round trip, up to the fair share.
const SHARED_INCREASE: f64 = 0.02;

/// Round trips without a push after which others are taken to have gone; so many, and more when that was wrong soon afterwards.
const QUIET_ROUNDS: u32 = 3;
const MOST_QUIET_ROUNDS: u32 = 8;
const SOON_ROUNDS: u32 = 24;

/// Of what the path has carried, the share that arrives at least when it is full and nobody else on it.
const WITHOUT_OTHERS: f64 = 0.95;

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

/// What was seen when the path pushed back and the rate was lowered: if the queue was ours, it goes away.
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

/// Why a path pushes back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Push {
    /// A queue grows.
    Delay,
    /// More is lost than by accident.
    Loss,
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
            history: History::default(),
        }
    }

    /// What it is about.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
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

    /// Takes a sample, of which there should be [`TICKS_PER_RTT`] in a round trip, and gives the rate, bytes a second.
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
            self.mode = Mode::Start(Round { base: self.rate, since: sample.now, knocked: None, failed: None });
            self.rate *= KNOCK;
            return self.rate as u64;
        };
        let seen = self.look(&sample, &last);
        self.mode = match self.mode {
            Mode::Start(round) => self.start(&seen, round),
            Mode::Drain { until } => self.drain(&seen, until),
            Mode::Cruise { growth, doubt } => self.cruise(&seen, growth, doubt),
            Mode::Shared { quiet_since } => self.shared(&seen, quiet_since),
        };
        self.rate = self.rate.clamp(2.0 * seen.mss / seen.rtt.as_secs_f64(), MOST_RATE);
        debug_assert!(self.rate.is_finite(), "a rate is a number");
        self.rate as u64
    }

    /// What the last samples say.
    fn look(&self, sample: &Sample, last: &Sample) -> Seen {
        let rtt = round_trip(sample);
        let now = sample.now;
        let rounds = now.saturating_sub(last.now).as_secs_f64() / rtt.as_secs_f64();
        let length = counted(rtt);
        let round = self.history.span(Duration::ZERO, length);
        let queue = self.history.least_rtt(length / 2).saturating_sub(rtt);
        let mss = f64::from(sample.mss.max(536));
        let (mut arrives, mut push) = (self.rate, None);
        if let Some(round) = round {
            arrives = round.delivered / round.seconds;
            if round.lost > FEWEST_LOST * mss && round.lost > CONGESTION_LOSS * round.sent {
                push = Some(Push::Loss);
            } else if queue > tolerance(rtt, sample.rtt_variation) {
                push = Some(Push::Delay);
            }
        }
        let under_way = bytes(sample.sent.saturating_sub(sample.delivered + sample.retransmitted + sample.lost));
        let before = self.history.span(rtt + queue, length);
        let tried = before.is_some_and(|before| before.sent / before.seconds >= TRIED * self.rate);
        Seen { now, rtt, rounds, mss, queue, push, arrives, tried, under_way, idle: sample.idle }
    }

    /// Knocks: at its beginning, a round sends faster than it dares to otherwise, and sees a round trip later what became of that.
    fn start(&mut self, seen: &Seen, round: Round) -> Mode {
        let part = seen.rtt / KNOCK_PART;
        let passed = seen.now - round.since;
        let Some((sent, knock)) = round.knocked else {
            // With the first look after its time it ends; what was sent then is what it was.
            let knocked = self.history.span(Duration::ZERO, passed).filter(|_| passed >= part);
            self.rate = if knocked.is_some() { round.base } else { KNOCK * round.base };
            let knocked = knocked.map(|span| (span.sent, passed));
            return Mode::Start(Round { knocked, ..round });
        };
        self.rate = round.base;
        if seen.push == Some(Push::Loss) && round.base > 2.0 * seen.arrives {
            return self.halt(seen); // far beyond what the path has: somebody else must have come
        }
        if passed < seen.rtt + knock + part {
            return Mode::Start(round);
        }
        // It has all come back: how long its queue was, and what was lost.
        let queue = self.history.most_rtt(knock + part).saturating_sub(self.history.least_rtt(seen.rtt));
        let lost = self.history.span(Duration::ZERO, knock + part).map_or(0.0, |span| span.lost);
        let lost = if lost > FEWEST_LOST * seen.mss { lost.min(sent / 2.0) } else { 0.0 };
        let mut knock_at = |base, failed| {
            self.rate = KNOCK * base;
            Mode::Start(Round { base, since: seen.now, knocked: None, failed })
        };
        if KNOCK * round.base * part.as_secs_f64() < FEWEST_KNOCKING * seen.mss {
            // Too few packets to tell anything, or to harm anybody.
            return knock_at(if seen.push == Some(Push::Loss) { round.base } else { BLIND_GROWTH * round.base }, None);
        }
        if seen.idle || sent < 0.5 * KNOCK * round.base * knock.as_secs_f64() {
            // A window that is not open yet, or nothing to send, says nothing.
            return knock_at(round.base, None);
        }
        // So much of it got through, in so much time.
        let carried = |queue| (sent - lost) / (knock + queue).as_secs_f64();
        let tolerance = knock.mul_f64(KNOCK_TOLERANCE).max(LEAST_TOLERANCE);
        if lost == 0.0 && queue <= tolerance {
            return knock_at(carried(tolerance).max(round.base), None);
        }
        let carried = carried(queue);
        let Some(failed) = round.failed else {
            // Again, after a round in which the queue goes.
            return knock_at(round.base.min(carried / (KNOCK / 2.0)), Some(carried));
        };
        // Twice is no accident; what was more then is nearer to the truth, for accidents only take away.
        self.capacity = failed.max(carried);
        self.rate = AFTER_START * self.capacity;
        self.held_back = seen.now;
        Mode::Cruise { growth: LEAST_GROWTH, doubt: None }
    }

    fn halt(&mut self, seen: &Seen) -> Mode {
        self.capacity = seen.arrives;
        self.rate = self.capacity / 2.0;
        self.held_back = seen.now;
        Mode::Drain { until: seen.now + 3 * seen.rtt }
    }

    fn drain(&mut self, seen: &Seen, until: Duration) -> Mode {
        // What lies in the queue arrives at the rate of the path, whatever we send meanwhile.
        let half = self.history.span(Duration::ZERO, seen.rtt / 2);
        self.capacity = self.capacity.max(half.map_or(0.0, |half| half.delivered / half.seconds));
        self.rate = self.capacity / 2.0;
        let full = seen.under_way > 1.02 * self.capacity * seen.rtt.as_secs_f64();
        if seen.now < self.held_back + seen.rtt || full && seen.now < until {
            return Mode::Drain { until };
        }
        self.rate = 0.98 * self.capacity;
        self.held_back = seen.now;
        Mode::Cruise { growth: LEAST_GROWTH, doubt: None }
    }

    fn cruise(&mut self, seen: &Seen, growth: f64, doubt: Option<Doubt>) -> Mode {
        let shown = self.shown(seen);
        match (seen.push, doubt) {
            (None, None) => {
                self.remember(seen);
                Mode::Cruise { growth: self.climb(seen, growth), doubt }
            }
            // What goes before anything was done about it can be seen was an accident: a machine that was busy.
            (None, Some(doubt)) if !shown => {
                self.rate = self.rate.max(doubt.arrived);
                Mode::Cruise { growth: LEAST_GROWTH, doubt: None }
            }
            // The path was full, and what arrived then is all it has for us.
            (None, Some(doubt)) => {
                if doubt.overflowed {
                    self.rest_until = seen.now + REST_ROUNDS * seen.rtt;
                }
                if self.sure && doubt.arrived < WITHOUT_OTHERS * self.capacity {
                    return self.share(seen);
                }
                (self.capacity, self.sure) = (doubt.arrived, true);
                Mode::Cruise { growth: LEAST_GROWTH, doubt: None }
            }
            (Some(_), None) if !shown => Mode::Cruise { growth: LEAST_GROWTH, doubt },
            (Some(push), None) => {
                // As much less as lets the queue go in two round trips.
                let queue = seen.queue.as_secs_f64() / seen.rtt.as_secs_f64();
                let less = (queue / 2.0).clamp(LEAST_DECREASE, MOST_DECREASE);
                if seen.tried {
                    self.rate = self.rate.min(seen.arrives);
                }
                let arrived = self.rate;
                self.rate *= 1.0 - less;
                self.held_back = seen.now;
                let doubt = Doubt { arrived, less, shown: None, overflowed: push == Push::Loss };
                Mode::Cruise { growth: LEAST_GROWTH, doubt: Some(doubt) }
            }
            (Some(push), Some(doubt)) => {
                let doubt = Doubt { overflowed: doubt.overflowed || push == Push::Loss, ..doubt };
                let keep = |shown| Mode::Cruise { growth: LEAST_GROWTH, doubt: Some(Doubt { shown, ..doubt }) };
                let Some((since, queue)) = doubt.shown else {
                    return keep(shown.then_some((seen.now, seen.queue)));
                };
                if seen.now < since + seen.rtt {
                    return keep(doubt.shown);
                }
                // Was it our own, it has become shorter, by half of what it should have at least; and a loss is of what was sent since.
                if push == Push::Delay && seen.queue + seen.rtt.mul_f64(doubt.less / 2.0) < queue {
                    return keep(Some((seen.now, seen.queue)));
                }
                self.share(seen)
            }
        }
    }

    /// Whether it can be seen what the last decrease did: a round trip later. Until then the path speaks of what was before.
    fn shown(&self, seen: &Seen) -> bool {
        seen.now >= self.held_back + seen.rtt + seen.queue + counted(seen.rtt) / 4
    }

    /// Raises the rate, and gives what growth becomes: ever faster up to what is known, and then from the beginning. Beyond that it gains speed
    /// slowly: the path may have become another.
    fn climb(&mut self, seen: &Seen, growth: f64) -> f64 {
        if seen.idle || !seen.tried {
            return LEAST_GROWTH;
        }
        let known = KNOWN_SHARE * self.capacity;
        let faster = self.rate * (1.0 + growth * seen.rounds);
        let (rate, growth) = if self.rate < known && faster >= known {
            (known, LEAST_GROWTH)
        } else if self.rate < known {
            (faster, growth * 2.0_f64.powf(seen.rounds))
        } else if seen.now < self.rest_until {
            (self.rate, LEAST_GROWTH)
        } else {
            // What was not yet full is tried more boldly than what was.
            (faster, growth * 2.0_f64.powf(seen.rounds / if self.sure { 4.0 } else { 2.0 }))
        };
        self.rate = rate;
        growth.min(MOST_GROWTH)
    }

    /// Gives way to others.
    fn share(&mut self, seen: &Seen) -> Mode {
        // Who comes back at once has others on the path that he does not see.
        let soon = seen.now < self.left_shared + SOON_ROUNDS * seen.rtt;
        self.patience = if soon { (2 * self.patience).min(MOST_QUIET_ROUNDS) } else { QUIET_ROUNDS };
        if self.sure {
            self.rate = FAIR_SHARE * self.capacity;
        }
        self.held_back = seen.now;
        Mode::Shared { quiet_since: seen.now }
    }

    fn shared(&mut self, seen: &Seen, quiet_since: Duration) -> Mode {
        let fair = FAIR_SHARE * self.capacity;
        if seen.push == Some(Push::Loss) && self.shown(seen) {
            self.rate = (self.rate * SHARED_DECREASE).max(LEAST_SHARE * self.capacity);
            self.held_back = seen.now;
        } else if !self.sure {
            // Who has never had the path does not know what half of it is. Where more brings no more, it is all ours.
            if seen.tried && seen.arrives < FOLLOWS * self.rate {
                (self.capacity, self.sure) = (seen.arrives, true);
                self.rate = (1.0 - LEAST_DECREASE) * self.capacity;
                self.held_back = seen.now;
                return Mode::Cruise { growth: LEAST_GROWTH, doubt: None };
            }
            self.remember(seen);
            self.rate *= 1.0 + SHARED_INCREASE * seen.rounds;
        } else {
            self.rate = (self.rate + SHARED_INCREASE * self.capacity * seen.rounds).min(fair);
        }
        if seen.push.is_some() {
            return Mode::Shared { quiet_since: seen.now };
        }
        if seen.now - quiet_since > seen.rtt * self.patience {
            self.left_shared = seen.now;
            return Mode::Cruise { growth: 4.0 * LEAST_GROWTH, doubt: None };
        }
        Mode::Shared { quiet_since }
    }

    /// The most the path has carried, slowly forgotten. A machine that was busy with something else hands over in one round what is of two.
    fn remember(&mut self, seen: &Seen) {
        self.capacity *= 1.0 - FORGETTING * seen.rounds;
        let length = counted(seen.rtt);
        let Some(before) = self.history.span(length, length) else { return };
        let carried = seen.arrives.min(before.delivered / before.seconds);
        self.capacity = self.capacity.max(carried);
    }
}

/// What the last samples say of the path.
#[derive(Clone, Copy, Debug)]
struct Seen {
    now: Duration,
    /// A round trip without a queue.
    rtt: Duration,
    /// Round trips since the last sample.
    rounds: f64,
    /// Bytes of a segment.
    mss: f64,
    /// The queue that has stood for half a round trip.
    queue: Duration,
    push: Option<Push>,
    /// Bytes a second that arrived in the last round trip.
    arrives: f64,
    /// Whether what arrived had been sent at about the rate: else it says nothing of the path.
    tried: bool,
    /// Bytes.
    under_way: f64,
    idle: bool,
}

/// The shortest there was; of a path so short that nobody can pace it by round trips, a bit more.
fn round_trip(sample: &Sample) -> Duration {
    let known = if sample.min_rtt.is_zero() { sample.rtt } else { sample.min_rtt };
    known.max(Duration::from_micros(100))
}

/// The time over which is counted what is sent, arrives and is lost.
fn counted(rtt: Duration) -> Duration {
    rtt.max(LEAST_ROUND)
}

/// A queue that may be there without anything being wrong: more where the times vary by themselves, as on a busy machine.
fn tolerance(rtt: Duration, variation: Duration) -> Duration {
    (rtt / 64).max(variation.min(rtt / 8)).max(LEAST_TOLERANCE)
}
