//! How bodies pull each other: the kernels, run.

use super::bodies::{Bodies, Vectors};
use crate::divided::{Divide, Divided};
use crate::engine::Engine;
use crate::error::Error;
use sprat_formula::{Column, Inputs, Kernel, Precision, Program, ready};
use sprat_ranks::Ranks;

/// Gravity between bodies, each with a softening length: the potential of two is `-m / sqrt(r^2 + e^2)`.
#[derive(Debug)]
pub struct Gravity<'r> {
    pull: Pull<'r>,
    change: Pull<'r>,
    judge: Pull<'r>,
    softening: f64,
}

/// A kernel that is ready.
#[derive(Debug)]
struct Pull<'r> {
    program: Program,
    kernel: Divided<'r>,
}

/// Accelerations, and how they change.
#[derive(Debug)]
pub(crate) struct Pulled {
    pub(crate) acceleration: Vectors,
    pub(crate) jerk: Vectors,
}

impl<'r> Gravity<'r> {
    /// Gravity computed by this engine, in this precision; energies are always computed in `f64`. Of several ranks each computes what
    /// pulls its part of the bodies, and all know all bodies.
    ///
    /// # Errors
    /// A softening that is not above 0, or what the engine says of the kernels.
    pub fn new(engine: &Engine, precision: Precision, softening: f64, ranks: &'r Ranks) -> Result<Self, Error> {
        if !(softening > 0.0 && softening.is_finite()) {
            return Err(Error::Softening(softening));
        }
        let compile = |name: &str, precision| {
            let text = ready(name).expect("one of those that are ready").text;
            let program = Kernel::parse(text, precision)?.program;
            Ok::<_, Error>(Pull { kernel: Divided::new(&program, engine, ranks, Divide::I)?, program })
        };
        Ok(Self {
            pull: compile("gravity", precision)?,
            change: compile("gravity-jerk", precision)?,
            judge: compile("gravity", Precision::F64)?,
            softening,
        })
    }

    /// The softening length.
    #[must_use]
    pub fn softening(&self) -> f64 {
        self.softening
    }

    /// Each body's acceleration.
    pub(crate) fn acceleration(&self, bodies: &Bodies) -> Result<Vectors, Error> {
        let [x, y, z, _] = self.run(&self.pull, bodies, false)?;
        Ok([x, y, z])
    }

    /// Each body's acceleration, and how that changes.
    pub(crate) fn pulled(&self, bodies: &Bodies) -> Result<Pulled, Error> {
        let [ax, ay, az, jx, jy, jz, _] = self.run(&self.change, bodies, true)?;
        Ok(Pulled { acceleration: [ax, ay, az], jerk: [jx, jy, jz] })
    }

    /// Each body's potential from all others.
    ///
    /// # Errors
    /// What the engine says.
    pub fn potential(&self, bodies: &Bodies) -> Result<Vec<f64>, Error> {
        let [_, _, _, mut potential] = self.run(&self.judge, bodies, false)?;
        // A body is among those that pull it: at no distance it pulls nowhere, but it counts.
        potential.iter_mut().zip(bodies.mass()).for_each(|(all, mass)| *all += mass / self.softening);
        Ok(potential)
    }

    fn run<const RESULTS: usize>(
        &self,
        pull: &Pull<'_>,
        bodies: &Bodies,
        moving: bool,
    ) -> Result<[Vec<f64>; RESULTS], Error> {
        let mut i: Vec<Column<'_>> = columns(&bodies.position).to_vec();
        if moving {
            i.extend(columns(&bodies.velocity));
        }
        let j = [&i[..], &[Column::from(bodies.mass())]].concat();
        let inputs = Inputs::new(&pull.program, i, j, &[Some(self.softening * self.softening)])?;
        let outputs: Vec<Vec<f64>> = pull
            .kernel
            .run(&inputs)?
            .into_iter()
            .map(|output| output.into_numbers().expect("gravity is of numbers"))
            .collect();
        Ok(outputs.try_into().expect("as many results as the kernel has"))
    }
}

fn columns(vectors: &Vectors) -> [Column<'_>; 3] {
    vectors.each_ref().map(|axis| Column::from(&axis[..]))
}
