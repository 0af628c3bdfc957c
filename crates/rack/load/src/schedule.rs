//! Schedules operations: their starts are known before the first one.

use crate::load::{Arrivals, Load, Step};
use sprat_chance::Chance;
use std::time::Duration;

/// Start times of operations, in ns from the start of the load, in order.
///
/// The rate is integrated over time, and an operation starts whenever the integral passes the next
/// whole number. So a step that is too short for a whole operation still contributes its fraction
/// of one. With [`Arrivals::Poisson`] the distance to the next operation is random, with a mean of
/// 1 in units of the integral.
#[derive(Clone, Debug)]
pub struct Schedule {
    steps: Vec<Step>,
    arrivals: Arrivals,
    chance: Chance,
    /// Index of the step in which the next operation starts, or of an earlier step.
    step: usize,
    /// Start of that step, in seconds.
    begins: f64,
    /// Number of operations before that step, not rounded.
    before: f64,
    /// Position of the next operation in the integral of the rate.
    next: f64,
    last: u64,
}

/// Stream of the random generator that makes the schedule.
const STREAM: u64 = 1;

impl Schedule {
    /// Creates the schedule of a checked load.
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
        self.last = self.last.max(at); // rounding where steps meet may lose a nanosecond
        Some(self.last)
    }
}

/// Returns a random distance between two arrivals, with a mean of 1.
fn gap(chance: &mut Chance) -> f64 {
    -(1.0 - chance.share()).ln()
}
