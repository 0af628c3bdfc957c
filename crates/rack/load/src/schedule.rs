//! When operations are to start: known before the first one does.

use crate::load::{Arrivals, Load, Step};
use sprat_chance::Chance;
use std::time::Duration;

/// Starts of operations, nanoseconds from the beginning, in order.
///
/// Rates are summed up over time, and an operation starts where the sum passes the next whole
/// number, so that slow steps and steps shorter than the time between two operations come out
/// right. With [`Arrivals::Poisson`] the next number is by chance away, one on average.
#[derive(Clone, Debug)]
pub struct Schedule {
    steps: Vec<Step>,
    arrivals: Arrivals,
    chance: Chance,
    /// The step that the next operation is in, or one before it.
    step: usize,
    /// When that step begins, seconds.
    begins: f64,
    /// Operations before that step.
    before: f64,
    /// Where in the sum the next operation is.
    next: f64,
    last: u64,
}

/// The stream of chance that is the schedule's.
const STREAM: u64 = 1;

impl Schedule {
    /// Of a load that has been checked.
    #[must_use]
    pub fn new(load: &Load) -> Self {
        let mut chance = Chance::stream(load.seed, STREAM);
        let next = match load.arrivals {
            Arrivals::Even => 0.0,
            Arrivals::Poisson => gap(&mut chance),
        };
        let (steps, arrivals) = (load.steps.clone(), load.arrivals);
        Self { steps, arrivals, chance, step: 0, begins: 0.0, before: 0.0, next, last: 0 }
    }
}

impl Iterator for Schedule {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let at = loop {
            let step = self.steps.get(self.step)?;
            let of_step = step.rate * step.duration.as_secs_f64();
            if self.next < self.before + of_step {
                break self.begins + (self.next - self.before) / step.rate;
            }
            self.before += of_step;
            self.begins += step.duration.as_secs_f64();
            self.step += 1;
        };
        self.next += match self.arrivals {
            Arrivals::Even => 1.0,
            Arrivals::Poisson => gap(&mut self.chance),
        };
        let at = u64::try_from(Duration::from_secs_f64(at).as_nanos())
            .expect("a checked load ends within centuries");
        self.last = self.last.max(at); // where two steps meet, rounding may go back by a nanosecond
        Some(self.last)
    }
}

/// From one arrival to the next, in means.
fn gap(chance: &mut Chance) -> f64 {
    -(1.0 - chance.share()).ln()
}
