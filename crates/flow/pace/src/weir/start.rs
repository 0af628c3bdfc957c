//! Mode `Start`: measures the capacity of a path.

use super::seen::{FEWEST_LOST, LEAST_TOLERANCE, Observation, Push};
use super::{KNOCK, KNOCK_PART, LEAST_GROWTH, Mode, Round, Weir};
use std::time::Duration;

/// The path has carried a knock if no more than [`FEWEST_LOST`] segments were lost, and if the
/// delay of the knock's queue is at most this share of the knock's duration, or at most
/// [`LEAST_TOLERANCE`]. With a delay of this share, the path carries four times the base rate.
const KNOCK_TOLERANCE: f64 = 0.24;

/// A knock with fewer segments than this measures nothing. Without losses, the next round is then
/// `BLIND_GROWTH` times as fast, because a receiver's window opens at about that speed.
const FEWEST_KNOCKING: f64 = 32.0;
const BLIND_GROWTH: f64 = 3.0;

/// Share of the measured capacity at which to send after the start. The two measurements take only
/// milliseconds, so they are inexact, and they leave a queue behind.
const AFTER_START: f64 = 0.95;

impl Weir {
    /// Begins a round with the base rate `base`. `failed` is the rate that the previous knock
    /// measured, if that knock exceeded the capacity.
    pub(super) fn knock(&mut self, seen: &Observation, base: f64, failed: Option<f64>) -> Mode {
        self.sure = false;
        self.rate = KNOCK * base;
        Mode::Start(Round { base, since: seen.now, knocked: None, failed })
    }

    /// Continues a round of the start. Its knock probes a much higher rate for a moment. A round
    /// trip later, the effect of the knock is measured.
    pub(super) fn start(&mut self, seen: &Observation, round: Round) -> Mode {
        let part = seen.rtt / KNOCK_PART;
        let passed = seen.now - round.since;
        let Some((sent, knock)) = round.knocked else {
            // The knock ends with the first sample after its planned end. The measurement uses the
            // knock's real duration.
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
        // All segments of the knock were acknowledged or lost: measure its queue and its losses.
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
            // A knock that a closed window or a lack of bytes cut short measures nothing.
            return self.knock(seen, round.base, None);
        }
        // The rate at which the knock got through.
        let carried = |queue| (sent - lost) / (knock + queue).as_secs_f64();
        let tolerance = knock.mul_f64(KNOCK_TOLERANCE).max(LEAST_TOLERANCE);
        if lost == 0.0 && queue <= tolerance {
            return self.knock(seen, carried(tolerance).max(round.base), None);
        }
        let carried = carried(queue);
        let Some(failed) = round.failed else {
            // Repeat the knock after a round in which its queue drains.
            return self.knock(seen, round.base.min(carried / (KNOCK / 2.0)), Some(carried));
        };
        // Two failures are no accident. The larger measurement is closer to the capacity, because
        // disturbances only reduce a measurement.
        self.capacity = failed.max(carried);
        self.rate = AFTER_START * self.capacity;
        self.last_decrease = seen.now;
        Mode::Cruise { growth: LEAST_GROWTH, doubt: None }
    }

    /// Ends mode `Start`, because the rate is far beyond the capacity.
    fn halt(&mut self, seen: &Observation) -> Mode {
        self.capacity = seen.arrives;
        self.rate = self.capacity / 2.0;
        self.last_decrease = seen.now;
        Mode::Drain { until: seen.now + 3 * seen.rtt }
    }

    /// Updates the rate in mode [`Mode::Drain`], and returns the next mode.
    pub(super) fn drain(&mut self, seen: &Observation, until: Duration) -> Mode {
        // A queue drains at the path's rate, whatever is sent during that time.
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
