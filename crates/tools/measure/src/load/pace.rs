//! The start times of operations.

use serde::Serialize;
use sprat_chance::Chance;

/// Whether operations start after completions or at scheduled times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// Each client starts its next operation when an earlier one has completed.
    Closed,
    /// Operations start at scheduled times, whether or not earlier operations have completed.
    Open {
        /// Operations per second of all clients together.
        rate: f64,
        /// The spacing of the operations' starts.
        arrivals: Arrivals,
    },
}

/// The spacing of starts in an open load.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Starts that are independent of each other, like the requests of many users.
    Poisson,
    /// Starts at equal intervals.
    Fixed,
}

/// Generates start times, in ns of the run's clock.
#[derive(Clone, Debug)]
pub(super) struct Starts {
    open: Option<Schedule>,
}

#[derive(Clone, Debug)]
struct Schedule {
    next: f64,
    gap: f64,
    arrivals: Arrivals,
    chance: Chance,
}

impl Starts {
    pub(super) fn new(pace: Pace, from_ns: u64, seed: u64) -> Self {
        let open = match pace {
            Pace::Closed => None,
            Pace::Open { rate, arrivals } => {
                assert!(
                    rate > 0.0 && rate.is_finite(),
                    "an open load of {rate} operations a second"
                );
                Some(Schedule {
                    next: from_ns as f64,
                    gap: 1e9 / rate,
                    arrivals,
                    chance: Chance::new(seed),
                })
            }
        };
        Self { open }
    }

    /// Returns the intended start of the next operation, if this time is at most `now`; in a closed
    /// loop, returns `now`. The operation stays due until [`take`](Self::take). So a target that
    /// falls behind finds its backlog here, with the intended start times.
    pub(super) fn due(&self, now: u64) -> Option<u64> {
        match &self.open {
            None => Some(now),
            Some(schedule) => Some(nanos(schedule.next)).filter(|&start| start <= now),
        }
    }

    pub(super) fn take(&mut self) {
        if let Some(schedule) = &mut self.open {
            schedule.next += match schedule.arrivals {
                Arrivals::Fixed => schedule.gap,
                // The argument is in (0, 1], so its logarithm is finite.
                Arrivals::Poisson => -(1.0 - schedule.chance.share()).ln() * schedule.gap,
            };
        }
    }

    /// Returns the time of the next start in an open loop. Returns `None` in a closed loop, where
    /// completions start operations.
    pub(super) fn next_by_clock(&self) -> Option<u64> {
        self.open.as_ref().map(|schedule| nanos(schedule.next))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates; times of a run are far below 2^63 ns"
)]
fn nanos(time: f64) -> u64 {
    time as u64
}
