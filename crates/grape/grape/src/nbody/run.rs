//! A run: bodies, a scheme, the time.

use super::bodies::{Bodies, Conserved};
use super::gravity::Gravity;
use super::hermite::Hermite;
use crate::error::Error;

/// Steps of one run, at most: two bodies that meet make steps ever shorter.
pub const MAX_STEPS: u64 = 1 << 32;

/// How positions follow from pulls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scheme {
    /// Kick, drift, kick, with a fixed step: second order, and energy does not drift in one
    /// direction.
    Leapfrog {
        /// The step.
        step: f64,
    },
    /// Fourth order, with a step for all that follows from how accelerations change.
    Hermite {
        /// The accuracy: errors go with its square. 0.01 to 0.02 as a rule.
        eta: f64,
    },
}

/// Bodies on their way.
#[derive(Debug)]
pub struct Run<'r> {
    gravity: Gravity<'r>,
    bodies: Bodies,
    time: f64,
    steps: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Leapfrog { step: f64, acceleration: super::Vectors },
    Hermite(Hermite),
}

impl<'r> Run<'r> {
    /// Begins at time 0.
    ///
    /// # Errors
    /// A step or accuracy that is not above 0, or what the engine says.
    pub fn new(gravity: Gravity<'r>, bodies: Bodies, scheme: Scheme) -> Result<Self, Error> {
        let (Scheme::Leapfrog { step: number } | Scheme::Hermite { eta: number }) = scheme;
        if !(number > 0.0 && number.is_finite()) {
            return Err(Error::Step(number));
        }
        let state = match scheme {
            Scheme::Leapfrog { step } => {
                State::Leapfrog { step, acceleration: gravity.acceleration(&bodies)? }
            }
            Scheme::Hermite { eta } => State::Hermite(Hermite::begin(&gravity, &bodies, eta)?),
        };
        Ok(Self { gravity, bodies, time: 0.0, steps: 0, state })
    }

    /// The bodies, now.
    #[must_use]
    pub fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    /// The time, in units of the bodies'.
    #[must_use]
    pub fn time(&self) -> f64 {
        self.time
    }

    /// Steps taken.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// What is conserved, now.
    ///
    /// # Errors
    /// What the engine says.
    pub fn conserved(&self) -> Result<Conserved, Error> {
        Ok(self.bodies.conserved(&self.gravity.potential(&self.bodies)?))
    }

    /// Goes on by one step, but not beyond a time. Returns whether that is reached.
    ///
    /// # Errors
    /// What the engine says; steps that have become too many or too short to count.
    pub fn step(&mut self, until: f64) -> Result<bool, Error> {
        let left = until - self.time;
        if left <= 0.0 {
            return Ok(true);
        }
        let Self { gravity, bodies, .. } = self;
        let taken = match &mut self.state {
            State::Leapfrog { step, acceleration } => {
                let dt = step.min(left);
                kick(bodies, acceleration, dt / 2.0);
                for (position, velocity) in bodies.position.iter_mut().zip(&bodies.velocity) {
                    position.iter_mut().zip(velocity).for_each(|(x, v)| *x += dt * v);
                }
                *acceleration = gravity.acceleration(bodies)?;
                kick(bodies, acceleration, dt / 2.0);
                dt
            }
            State::Hermite(hermite) => hermite.step(gravity, bodies, left)?,
        };
        self.steps += 1;
        let before = self.time;
        self.time = if taken >= left { until } else { self.time + taken };
        if self.steps > MAX_STEPS || self.time <= before {
            return Err(Error::Stuck { time: self.time, step: taken, steps: self.steps });
        }
        Ok(self.time >= until)
    }
}

fn kick(bodies: &mut Bodies, acceleration: &super::Vectors, dt: f64) {
    for (velocity, pull) in bodies.velocity.iter_mut().zip(acceleration) {
        velocity.iter_mut().zip(pull).for_each(|(v, a)| *v += dt * a);
    }
}
