//! Mode `Cruise`: fills a path almost without a queue. If a queue appears, finds out which flow
//! causes it.

use super::seen::{Observation, Push, counted};
use super::{Doubt, LEAST_DECREASE, LEAST_GROWTH, MOST_DECREASE, MOST_GROWTH, Mode, Weir};

/// Share of the capacity up to which the growth doubles in every round trip. Beyond this share, the
/// growth begins again at [`LEAST_GROWTH`], and doubles only every two or four round trips.
const KNOWN_SHARE: f64 = 0.97;

/// Number of round trips for which no rate beyond the capacity is tried after the path's buffer has
/// overflowed. Each attempt would cost other flows losses too.
const REST_ROUNDS: u32 = 20;

/// Share by which the estimate of the capacity is reduced in each round trip.
const FORGETTING: f64 = 0.002;

/// If less than this share of the capacity arrives, other flows are not the reason, because they
/// cannot have taken so much within a few round trips. The path has changed, and its capacity is
/// measured again.
const COLLAPSE: f64 = 0.5;

/// On a full path without other flows, at least this share of the capacity arrives.
const WITHOUT_OTHERS: f64 = 0.95;

impl Weir {
    /// Updates the rate in mode [`Mode::Cruise`], and returns the next mode.
    pub(super) fn cruise(&mut self, seen: &Observation, growth: f64, doubt: Option<Doubt>) -> Mode {
        let shown = self.shown(seen);
        match (seen.push, doubt) {
            (None, None) => {
                self.remember(seen);
                Mode::Cruise { growth: self.climb(seen, growth), doubt }
            }
            // If the path stops pushing back before the decrease can have had an effect, the push
            // had another cause, such as a busy machine.
            (None, Some(doubt)) if !shown => {
                self.rate = self.rate.max(doubt.arrived);
                Mode::Cruise { growth: LEAST_GROWTH, doubt: None }
            }
            // The path was full, so what arrived at that time is its capacity for this flow.
            (None, Some(doubt)) => {
                if doubt.overflowed {
                    self.rest_until = seen.now + REST_ROUNDS * seen.rtt;
                }
                if doubt.arrived < COLLAPSE * self.capacity {
                    return self.knock(seen, doubt.arrived, None);
                }
                if self.sure && doubt.arrived < WITHOUT_OTHERS * self.capacity {
                    return self.share(seen);
                }
                (self.capacity, self.sure) = (doubt.arrived, true);
                self.rate = self.rate.max(KNOWN_SHARE * self.capacity);
                Mode::Cruise { growth: LEAST_GROWTH, doubt: None }
            }
            (Some(_), None) if !shown => Mode::Cruise { growth: LEAST_GROWTH, doubt },
            (Some(push), None) => {
                // Decrease the rate so much that the queue drains in two round trips.
                let queue = seen.queue.as_secs_f64() / seen.rtt.as_secs_f64();
                let less = (queue / 2.0).clamp(LEAST_DECREASE, MOST_DECREASE);
                if seen.tried {
                    self.rate = self.rate.min(seen.arrives);
                }
                let arrived = self.rate;
                self.rate *= 1.0 - less;
                self.last_decrease = seen.now;
                let doubt = Doubt { arrived, less, shown: None, overflowed: push == Push::Loss };
                Mode::Cruise { growth: LEAST_GROWTH, doubt: Some(doubt) }
            }
            (Some(push), Some(doubt)) => {
                let doubt = Doubt { overflowed: doubt.overflowed || push == Push::Loss, ..doubt };
                let keep = |shown| Mode::Cruise {
                    growth: LEAST_GROWTH,
                    doubt: Some(Doubt { shown, ..doubt }),
                };
                let Some((since, queue)) = doubt.shown else {
                    return keep(shown.then_some((seen.now, seen.queue)));
                };
                if seen.now < since + seen.rtt {
                    return keep(doubt.shown);
                }
                // By now, a queue of our own must have become shorter, at least by half of the
                // expected amount. Losses now concern segments that were sent after the decrease.
                if push == Push::Delay && seen.queue + seen.rtt.mul_f64(doubt.less / 2.0) < queue {
                    return keep(Some((seen.now, seen.queue)));
                }
                self.share(seen)
            }
        }
    }

    /// Returns whether the last decrease can have had a visible effect. The effect takes a round
    /// trip, the delay of the queue, and a quarter of the period over which bytes are counted.
    pub(super) fn shown(&self, seen: &Observation) -> bool {
        seen.now >= self.last_decrease + seen.rtt + seen.queue + counted(seen.rtt) / 4
    }

    /// Raises the rate and returns the next growth. Does not raise the rate if the current rate was
    /// not used, or beyond the known capacity soon after an overflow. Growth accelerates up to the
    /// known capacity. Beyond it, growth starts again and accelerates more slowly, because the path
    /// may have changed.
    fn climb(&mut self, seen: &Observation, growth: f64) -> f64 {
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
            // A path that was never full is probed more boldly than a path that was full before.
            (faster, growth * 2.0_f64.powf(seen.rounds / if self.sure { 4.0 } else { 2.0 }))
        };
        self.rate = rate;
        growth.min(MOST_GROWTH)
    }

    /// Updates the estimate of the capacity. First reduces it slightly. Then raises it to the lower
    /// of the arrival rates of the last two round trips, if that rate is higher. One round trip is
    /// not enough, because a machine that was busy may deliver the bytes of two round trips in one.
    pub(super) fn remember(&mut self, seen: &Observation) {
        self.capacity *= 1.0 - FORGETTING * seen.rounds;
        let length = counted(seen.rtt);
        let Some(before) = self.history.span(length, length) else { return };
        let carried = seen.arrives.min(before.delivered / before.seconds);
        self.capacity = self.capacity.max(carried);
    }
}
