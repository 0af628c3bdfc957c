//! Filling a path with hardly a queue, and finding out whose queue it is.

use super::seen::{Push, Seen, counted};
use super::{Doubt, LEAST_DECREASE, LEAST_GROWTH, MOST_DECREASE, MOST_GROWTH, Mode, Weir};

/// Below this share of what the path has carried, growth becomes faster by the round trip.
const KNOWN_SHARE: f64 = 0.97;

/// Round trips for which a path whose buffer overflowed is not tried for more than is known: what
/// others lose by that, they keep losing.
const REST_ROUNDS: u32 = 20;

/// What is forgotten in a round trip of what the path has carried.
const FORGETTING: f64 = 0.002;

/// Less of what the path has carried than this share is nothing that another takes in a few round
/// trips: it is looked for anew.
const COLLAPSE: f64 = 0.5;

/// Of what the path has carried, the share that arrives at least when it is full and nobody else on
/// it.
const WITHOUT_OTHERS: f64 = 0.95;

impl Weir {
    pub(super) fn cruise(&mut self, seen: &Seen, growth: f64, doubt: Option<Doubt>) -> Mode {
        let shown = self.shown(seen);
        match (seen.push, doubt) {
            (None, None) => {
                self.remember(seen);
                Mode::Cruise { growth: self.climb(seen, growth), doubt }
            }
            // What goes before anything was done about it can be seen was an accident: a machine
            // that was busy.
            (None, Some(doubt)) if !shown => {
                self.rate = self.rate.max(doubt.arrived);
                Mode::Cruise { growth: LEAST_GROWTH, doubt: None }
            }
            // The path was full, and what arrived then is all it has for us.
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
                // Was it our own, it has become shorter, by half of what it should have at least;
                // and a loss is of what was sent since.
                if push == Push::Delay && seen.queue + seen.rtt.mul_f64(doubt.less / 2.0) < queue {
                    return keep(Some((seen.now, seen.queue)));
                }
                self.share(seen)
            }
        }
    }

    /// Whether it can be seen what the last decrease did: a round trip later. Until then the path
    /// speaks of what was before.
    pub(super) fn shown(&self, seen: &Seen) -> bool {
        seen.now >= self.held_back + seen.rtt + seen.queue + counted(seen.rtt) / 4
    }

    /// Raises the rate, and gives what growth becomes: ever faster up to what is known, and then
    /// from the beginning. Beyond that it gains speed slowly: the path may have become another.
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

    /// The most the path has carried, slowly forgotten. A machine that was busy with something else
    /// hands over in one round what is of two.
    pub(super) fn remember(&mut self, seen: &Seen) {
        self.capacity *= 1.0 - FORGETTING * seen.rounds;
        let length = counted(seen.rtt);
        let Some(before) = self.history.span(length, length) else { return };
        let carried = seen.arrives.min(before.delivered / before.seconds);
        self.capacity = self.capacity.max(carried);
    }
}
