//! When operations start.

use serde::Serialize;
use sprat_chance::Chance;

/// Whether the load waits for answers or for the clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// Every client starts its next operation when one of its earlier ones ended.
    Closed,
    /// Operations start at their own times, whatever became of the earlier ones.
    Open {
        /// Operations a second.
        rate: f64,
        /// How they are spaced.
        arrivals: Arrivals,
    },
}

/// Spacing of an open load.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Independent of each other, as requests of many users are.
    Poisson,
    /// Evenly.
    Fixed,
}

/// Hands out start times, ns of the run's clock.
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

    /// The intended start of the next operation, if it is due by `now`. It is due again until
    /// [`take`](Self::take)n, so a target that falls behind finds its backlog here, with the
    /// times at which each should have started.
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
                // 1 - unit is in (0, 1]: its logarithm is finite.
                Arrivals::Poisson => -(1.0 - schedule.chance.share()).ln() * schedule.gap,
            };
        }
    }

    /// When the clock, rather than an answer, starts the next operation.
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
