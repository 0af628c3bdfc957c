//! Finding out what a path carries.

use super::seen::{FEWEST_LOST, LEAST_TOLERANCE, Push, Seen};
use super::{KNOCK, KNOCK_PART, LEAST_GROWTH, Mode, Round, Weir};
use std::time::Duration;

/// A knock has passed if the queue behind it takes no longer than this share of it: then the path
/// carries at least four times what was sent.
const KNOCK_TOLERANCE: f64 = 0.24;

/// A knock of fewer segments is none, and the next round so many times as fast, as a receiver's
/// window opens.
const FEWEST_KNOCKING: f64 = 32.0;
const BLIND_GROWTH: f64 = 3.0;

/// What is sent after the start of what it found: two measurements of milliseconds are not exact,
/// and left a queue behind.
const AFTER_START: f64 = 0.95;

impl Weir {
    /// Looks for the path's rate, from a base up; `failed`: what the knock before found, if it did
    /// not pass.
    pub(super) fn knock(&mut self, seen: &Seen, base: f64, failed: Option<f64>) -> Mode {
        self.sure = false;
        self.rate = KNOCK * base;
        Mode::Start(Round { base, since: seen.now, knocked: None, failed })
    }

    /// Knocks: at its beginning, a round sends faster than it dares to otherwise, and sees a round
    /// trip later what became of that.
    pub(super) fn start(&mut self, seen: &Seen, round: Round) -> Mode {
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
        let queue =
            self.history.most_rtt(knock + part).saturating_sub(self.history.least_rtt(seen.rtt));
        let lost = self.history.span(Duration::ZERO, knock + part).map_or(0.0, |span| span.lost);
        let lost = if lost > FEWEST_LOST * seen.mss { lost.min(sent / 2.0) } else { 0.0 };
        if KNOCK * round.base * part.as_secs_f64() < FEWEST_KNOCKING * seen.mss {
            // Too few packets to tell anything, or to harm anybody.
            return self.knock(
                seen,
                if seen.push == Some(Push::Loss) { round.base } else { BLIND_GROWTH * round.base },
                None,
            );
        }
        if seen.idle || sent < 0.5 * KNOCK * round.base * knock.as_secs_f64() {
            // A window that is not open yet, or nothing to send, says nothing.
            return self.knock(seen, round.base, None);
        }
        // So much of it got through, in so much time.
        let carried = |queue| (sent - lost) / (knock + queue).as_secs_f64();
        let tolerance = knock.mul_f64(KNOCK_TOLERANCE).max(LEAST_TOLERANCE);
        if lost == 0.0 && queue <= tolerance {
            return self.knock(seen, carried(tolerance).max(round.base), None);
        }
        let carried = carried(queue);
        let Some(failed) = round.failed else {
            // Again, after a round in which the queue goes.
            return self.knock(seen, round.base.min(carried / (KNOCK / 2.0)), Some(carried));
        };
        // Twice is no accident; what was more then is nearer to the truth, for accidents only take
        // away.
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

    pub(super) fn drain(&mut self, seen: &Seen, until: Duration) -> Mode {
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
}
