//! Sharing a path with others.

use super::seen::{Push, Seen};
use super::{LEAST_DECREASE, LEAST_GROWTH, Mode, Weir};
use std::time::Duration;

/// The share of the path that is ours while another takes of it.
const FAIR_SHARE: f64 = 0.5;

/// On a loss with others on the path, the rate becomes this share of itself; down to this share of
/// the path.
const SHARED_DECREASE: f64 = 0.85;
const LEAST_SHARE: f64 = 0.125;

/// And is raised by this share of the path a round trip, up to the fair share.
const SHARED_INCREASE: f64 = 0.02;

/// Round trips without a push after which others are taken to have gone; so many, and more when
/// that was wrong soon afterwards.
pub(super) const QUIET_ROUNDS: u32 = 3;
const MOST_QUIET_ROUNDS: u32 = 8;
const SOON_ROUNDS: u32 = 24;

/// What arrives of the rate, at least, if the path has room for it.
const FOLLOWS: f64 = 0.9;

impl Weir {
    /// Gives way to others.
    pub(super) fn share(&mut self, seen: &Seen) -> Mode {
        // Who comes back at once has others on the path that he does not see.
        let soon = seen.now < self.left_shared + SOON_ROUNDS * seen.rtt;
        self.patience =
            if soon { (2 * self.patience).min(MOST_QUIET_ROUNDS) } else { QUIET_ROUNDS };
        if self.sure {
            self.rate = FAIR_SHARE * self.capacity;
        }
        self.held_back = seen.now;
        Mode::Shared { quiet_since: seen.now }
    }

    pub(super) fn shared(&mut self, seen: &Seen, quiet_since: Duration) -> Mode {
        let fair = FAIR_SHARE * self.capacity;
        if seen.push == Some(Push::Loss) && self.shown(seen) {
            self.rate = (self.rate * SHARED_DECREASE).max(LEAST_SHARE * self.capacity);
            self.held_back = seen.now;
        } else if !self.sure {
            // Who has never had the path does not know what half of it is. Where more brings no
            // more, it is all ours.
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
}
