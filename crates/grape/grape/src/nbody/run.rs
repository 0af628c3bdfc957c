//! A simulation: bodies, an integration scheme, and the time.

use super::bodies::{Bodies, Conserved};
use super::gravity::Gravity;
use super::hermite::Hermite;
use crate::error::Error;

/// Limit on the steps of a simulation. A simulation with more steps fails: a close encounter makes
/// steps shorter and shorter.
pub const MAX_STEPS: u64 = 1 << 32;

/// An integration scheme.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scheme {
    /// Leapfrog (kick, drift, kick) with a fixed step. It is of second order, and the energy does
    /// not drift in one direction.
    Leapfrog {
        /// The step, in units of time.
        step: f64,
    },
    /// Hermite's scheme. It is of fourth order, and all bodies have the same variable step.
    Hermite {
        /// The accuracy, typically 0.01 to 0.02. Errors are proportional to its square.
        eta: f64,
    },
}

/// A simulation in progress. Create it with [`Simulation::new`], then call [`Simulation::step`]
/// until it returns `true`. With several ranks, every rank must do this.
#[derive(Debug)]
pub struct Simulation<'r> {
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

impl<'r> Simulation<'r> {
    /// Starts a simulation at time 0.
    ///
    /// # Errors
    /// The step or the accuracy is not positive and finite, or accelerations cannot be computed.
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

    /// Returns the bodies.
    #[must_use]
    pub fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    /// Returns the time.
    #[must_use]
    pub fn time(&self) -> f64 {
        self.time
    }

    /// Returns the number of steps so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Computes the conserved quantities.
    ///
    /// # Errors
    /// As for [`Gravity::potential`]: two bodies have the same position without softening, a number
    /// overflows, or another rank has stopped.
    pub fn conserved(&self) -> Result<Conserved, Error> {
        Ok(self.bodies.conserved(&self.gravity.potential(&self.bodies)?))
    }

    /// Advances by one step, but not beyond the time `until`. Returns whether that time is reached.
    ///
    /// # Errors
    /// Accelerations cannot be computed, or [`Error::Stuck`] if steps have become too many or too
    /// short.
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
