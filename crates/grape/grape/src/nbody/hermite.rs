//! The fourth-order Hermite scheme (Makino and Aarseth, PASJ 44, 141, 1992). It uses accelerations
//! and their derivatives. All bodies have the same step, which depends on how fast accelerations
//! change.

use super::bodies::{Bodies, Vectors, at, dot};
use super::gravity::{Accelerations, Gravity};
use crate::error::Error;

/// Limit on the ratio of a step to the previous step.
const GROWTH: f64 = 2.0;

/// Factor that shortens the first step, because the higher derivatives are not known yet.
const FIRST: f64 = 0.25;

/// The scheme's state between steps.
#[derive(Debug)]
pub(crate) struct Hermite {
    accelerations: Accelerations,
    step: f64,
    eta: f64,
}

impl Hermite {
    /// Starts the scheme with these bodies. `eta` is the accuracy, typically 0.01 to 0.02. Errors
    /// are proportional to its square.
    pub(crate) fn begin(gravity: &Gravity<'_>, bodies: &Bodies, eta: f64) -> Result<Self, Error> {
        let accelerations = gravity.accelerations(bodies)?;
        let squares = |vectors: &Vectors, body| dot(at(vectors, body), at(vectors, body));
        // Bodies that start at rest have no derivative yet. Their time of free fall determines the
        // step instead. Otherwise the first step would be as long as the run.
        let still = (0..bodies.len()).any(|body| squares(&accelerations.jerk, body) == 0.0);
        let potential = if still { gravity.potential(bodies)? } else { vec![0.0; bodies.len()] };
        let steps = potential.iter().enumerate().map(|(body, potential)| {
            let (a, j) =
                (squares(&accelerations.acceleration, body), squares(&accelerations.jerk, body));
            FIRST * eta * if j == 0.0 { (potential.abs() / a).sqrt() } else { (a / j).sqrt() }
        });
        Ok(Self { step: shortest(steps), accelerations, eta })
    }

    /// Advances the bodies by one step of at most `most`. Returns the length of the step.
    pub(crate) fn step(
        &mut self,
        gravity: &Gravity<'_>,
        bodies: &mut Bodies,
        most: f64,
    ) -> Result<f64, Error> {
        let dt = self.step.min(most);
        let (a0, j0) = (&self.accelerations.acceleration, &self.accelerations.jerk);
        let (x0, v0) = (bodies.position.clone(), bodies.velocity.clone());
        for axis in 0..3 {
            for body in 0..bodies.len() {
                let (v, a, j) = (v0[axis][body], a0[axis][body], j0[axis][body]);
                bodies.position[axis][body] += dt * (v + dt / 2.0 * (a + dt / 3.0 * j));
                bodies.velocity[axis][body] += dt * (a + dt / 2.0 * j);
            }
        }
        let next = gravity.accelerations(bodies)?;
        let (a1, j1) = (&next.acceleration, &next.jerk);
        for axis in 0..3 {
            for body in 0..bodies.len() {
                let (a0, a1) = (a0[axis][body], a1[axis][body]);
                let (j0, j1) = (j0[axis][body], j1[axis][body]);
                let v1 = v0[axis][body] + dt / 2.0 * (a0 + a1) + dt * dt / 12.0 * (j0 - j1);
                bodies.velocity[axis][body] = v1;
                bodies.position[axis][body] =
                    x0[axis][body] + dt / 2.0 * (v0[axis][body] + v1) + dt * dt / 12.0 * (a0 - a1);
            }
        }
        let wanted = shortest((0..bodies.len()).map(|body| self.wanted(&next, body, dt)));
        self.step = wanted.min(GROWTH * self.step);
        self.accelerations = next;
        Ok(dt)
    }

    /// Computes a body's next step by Aarseth's criterion, from its first four derivatives.
    fn wanted(&self, next: &Accelerations, body: usize, dt: f64) -> f64 {
        let (a0, j0) =
            (at(&self.accelerations.acceleration, body), at(&self.accelerations.jerk, body));
        let (a1, j1) = (at(&next.acceleration, body), at(&next.jerk, body));
        let (mut snap, mut crackle) = ([0.0; 3], [0.0; 3]);
        for axis in 0..3 {
            let (a, j) = (a0[axis] - a1[axis], dt * (j0[axis] + j1[axis]));
            crackle[axis] = (12.0 * a + 6.0 * j) / (dt * dt * dt);
            let at_begin = -(6.0 * a + dt * (4.0 * j0[axis] + 2.0 * j1[axis])) / (dt * dt);
            snap[axis] = at_begin + dt * crackle[axis];
        }
        let size = |vector| f64::sqrt(dot(vector, vector));
        let above = size(a1) * size(snap) + dot(j1, j1);
        let below = size(j1) * size(crackle) + dot(snap, snap);
        (self.eta * above / below).sqrt()
    }
}

/// Returns the shortest positive step. Bodies without acceleration do not count. Infinite if there
/// is no positive step.
fn shortest(steps: impl Iterator<Item = f64>) -> f64 {
    steps.filter(|step| *step > 0.0).fold(f64::INFINITY, f64::min)
}
