//! Mode `Shared`: shares a path with other flows.

use super::seen::{Observation, Push};
use super::{LEAST_DECREASE, LEAST_GROWTH, Mode, Weir};
use std::time::Duration;

/// Our share of the capacity while other flows use the path.
const FAIR_SHARE: f64 = 0.5;

/// Factor to which a loss reduces the rate, and the share of the capacity below which losses do not
/// reduce the rate.
const SHARED_DECREASE: f64 = 0.85;
const LEAST_SHARE: f64 = 0.125;

/// Share of the capacity by which the rate rises per round trip, up to the fair share. While the
/// path was never full, the rate rises by this share of itself, without that limit.
const SHARED_INCREASE: f64 = 0.02;

/// Number of quiet round trips after which the other flows are assumed to have ended: the initial
/// number, and its limit. If this mode begins again within `SOON_ROUNDS`, the assumption was wrong,
/// and the number doubles.
pub(super) const QUIET_ROUNDS: u32 = 3;
const MOST_QUIET_ROUNDS: u32 = 8;
const SOON_ROUNDS: u32 = 24;

/// If the path has room for the rate, at least this share of it arrives.
const FOLLOWS: f64 = 0.9;

impl Weir {
    /// Begins mode [`Mode::Shared`], and returns it. If the capacity was measured on a full path,
    /// makes room for other flows: sets the rate to the fair share of the capacity.
    pub(super) fn share(&mut self, seen: &Observation) -> Mode {
        // If this mode ended only a short time ago, the other flows had not ended.
        let soon = seen.now < self.left_shared + SOON_ROUNDS * seen.rtt;
        self.patience =
            if soon { (2 * self.patience).min(MOST_QUIET_ROUNDS) } else { QUIET_ROUNDS };
        if self.sure {
            self.rate = FAIR_SHARE * self.capacity;
        }
        self.last_decrease = seen.now;
        Mode::Shared { quiet_since: seen.now }
    }

    /// Updates the rate in mode [`Mode::Shared`], and returns the next mode.
    pub(super) fn shared(&mut self, seen: &Observation, quiet_since: Duration) -> Mode {
        let fair = FAIR_SHARE * self.capacity;
        if seen.push == Some(Push::Loss) && self.shown(seen) {
            self.rate = (self.rate * SHARED_DECREASE).max(LEAST_SHARE * self.capacity);
            self.last_decrease = seen.now;
        } else if !self.sure {
            // The capacity was never measured, so half of it is unknown. If a higher rate does not
            // increase the arrivals, the path is full with this flow alone.
            if seen.tried && seen.arrives < FOLLOWS * self.rate {
                (self.capacity, self.sure) = (seen.arrives, true);
                self.rate = (1.0 - LEAST_DECREASE) * self.capacity;
                self.last_decrease = seen.now;
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
}
