//! Measures the capacity of a path.

use super::seen::{FEWEST_LOST, LEAST_TOLERANCE, Observation, Push};
use super::{KNOCK, KNOCK_PART, LEAST_GROWTH, Mode, Round, Weir};
use std::time::Duration;

/// A knock has passed if its queue takes no longer than this share of it: then the path carries at
/// least four times what was sent.
const KNOCK_TOLERANCE: f64 = 0.24;

/// A knock with fewer segments measures nothing, and the next round is this many times as fast, as
/// a receiver's window opens.
const FEWEST_KNOCKING: f64 = 32.0;
const BLIND_GROWTH: f64 = 3.0;

/// Share of the measured capacity to send at first: two measurements of milliseconds are inexact,
/// and left a queue behind.
const AFTER_START: f64 = 0.95;

impl Weir {
    /// Begins a round with the given base rate. `failed` is what the previous knock measured, if it
    /// exceeded the capacity.
    pub(super) fn knock(&mut self, seen: &Observation, base: f64, failed: Option<f64>) -> Mode {
        self.sure = false;
        self.rate = KNOCK * base;
        Mode::Start(Round { base, since: seen.now, knocked: None, failed })
    }

    /// Continues a round of the start: its knock probes a much higher rate for a moment, and a
    /// round trip later its effect is measured.
    pub(super) fn start(&mut self, seen: &Observation, round: Round) -> Mode {
        let part = seen.rtt / KNOCK_PART;
        let passed = seen.now - round.since;
        let Some((sent, knock)) = round.knocked else {
            // The knock ends with the first sample after its time; it counts as long as it was.
            let knocked = self.history.span(Duration::ZERO, passed).filter(|_| passed >= part);
            self.rate = if knocked.is_some() { round.base } else { KNOCK * round.base };
            let knocked = knocked.map(|span| (span.sent, passed));
            return Mode::Start(Round { knocked, ..round });
        };
        self.rate = round.base;
        if seen.push == Some(Push::Loss) && round.base > 2.0 * seen.arrives {
            return self.halt(seen); // far beyond the capacity: another flow must have begun
        }
        if passed < seen.rtt + knock + part {
            return Mode::Start(round);
        }
        // All of it was acknowledged or lost: measure its queue and its losses.
        let queue =
            self.history.most_rtt(knock + part).saturating_sub(self.history.least_rtt(seen.rtt));
        let lost = self.history.span(Duration::ZERO, knock + part).map_or(0.0, |span| span.lost);
        let lost = if lost > FEWEST_LOST * seen.mss { lost.min(sent / 2.0) } else { 0.0 };
        if KNOCK * round.base * part.as_secs_f64() < FEWEST_KNOCKING * seen.mss {
            // Too few packets to measure anything, or to harm other flows.
            return self.knock(
                seen,
                if seen.push == Some(Push::Loss) { round.base } else { BLIND_GROWTH * round.base },
                None,
            );
        }
        if seen.idle || sent < 0.5 * KNOCK * round.base * knock.as_secs_f64() {
            // A closed window, or a lack of bytes to send, measures nothing.
            return self.knock(seen, round.base, None);
        }
        // The rate at which it got through.
        let carried = |queue| (sent - lost) / (knock + queue).as_secs_f64();
        let tolerance = knock.mul_f64(KNOCK_TOLERANCE).max(LEAST_TOLERANCE);
        if lost == 0.0 && queue <= tolerance {
            return self.knock(seen, carried(tolerance).max(round.base), None);
        }
        let carried = carried(queue);
        let Some(failed) = round.failed else {
            // Repeat it, after a round in which the queue drains.
            return self.knock(seen, round.base.min(carried / (KNOCK / 2.0)), Some(carried));
        };
        // Two failures are no accident. The larger measurement is nearer to the truth, because
        // accidents only reduce it.
        self.capacity = failed.max(carried);
        self.rate = AFTER_START * self.capacity;
        self.last_decrease = seen.now;
        Mode::Cruise { growth: LEAST_GROWTH, doubt: None }
    }

    /// Gives up the start far beyond the capacity.
    fn halt(&mut self, seen: &Observation) -> Mode {
        self.capacity = seen.arrives;
        self.rate = self.capacity / 2.0;
        self.last_decrease = seen.now;
        Mode::Drain { until: seen.now + 3 * seen.rtt }
    }

    /// Updates the rate in mode [`Mode::Drain`], and returns the next mode.
    pub(super) fn drain(&mut self, seen: &Observation, until: Duration) -> Mode {
        // A queue drains at the path's rate, whatever is sent meanwhile.
        let half = self.history.span(Duration::ZERO, seen.rtt / 2);
        self.capacity = self.capacity.max(half.map_or(0.0, |half| half.delivered / half.seconds));
        self.rate = self.capacity / 2.0;
        let full = seen.under_way > 1.02 * self.capacity * seen.rtt.as_secs_f64();
        if seen.now < self.last_decrease + seen.rtt || full && seen.now < until {
            return Mode::Drain { until };
        }
        self.rate = 0.98 * self.capacity;
        self.last_decrease = seen.now;
        Mode::Cruise { growth: LEAST_GROWTH, doubt: None }
    }
}
