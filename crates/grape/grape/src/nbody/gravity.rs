//! How bodies pull each other: the kernels, run.

use super::bodies::{Bodies, Vectors, at};
use crate::divided::{Divide, Divided};
use crate::engine::Engine;
use crate::error::Error;
use sprat_formula::{Column, Inputs, Kernel, Precision, Program, ready};
use sprat_ranks::Ranks;

/// Gravity between bodies, with a softening length `e`: the potential of two is `-m / sqrt(r^2 +
/// e^2)`. A body does not pull itself, so that `e` may be 0.
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
    /// The square of the softening length, in the kernel's precision.
    softening: f64,
}

/// Accelerations, and how they change.
#[derive(Debug)]
pub(crate) struct Pulled {
    pub(crate) acceleration: Vectors,
    pub(crate) jerk: Vectors,
}

impl<'r> Gravity<'r> {
    /// Gravity computed by this engine, in this precision; energies are always computed in `f64`.
    /// Of several ranks each computes what pulls its part of the bodies, and all know all
    /// bodies.
    ///
    /// # Errors
    /// A softening below 0, or what the engine says of the kernels.
    pub fn new(
        engine: &Engine,
        precision: Precision,
        softening: f64,
        ranks: &'r Ranks,
    ) -> Result<Self, Error> {
        if !(softening >= 0.0 && softening.is_finite()) {
            return Err(Error::Softening(softening));
        }
        let compile = |name: &str, what, precision| {
            let text = between_others(ready(name).expect("one of those that are ready").text, what);
            let program = Kernel::parse(&text, precision)?.program;
            let kernel = Divided::new(&program, engine, ranks, Divide::I)?;
            let square = softening * softening;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "rounded to its type: of a very short length to 0"
            )]
            let narrow = f64::from(square as f32);
            let softening = if precision == Precision::F32 { narrow } else { square };
            Ok::<_, Error>(Pull { program, kernel, softening })
        };
        Ok(Self {
            pull: compile("gravity", What::Pulls, precision)?,
            change: compile("gravity-jerk", What::Pulls, precision)?,
            judge: compile("gravity", What::Potential, Precision::F64)?,
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
        let [x, y, z] = self.run(&self.pull, bodies, false)?;
        self.check(bodies, &[&x, &y, &z])?;
        Ok([x, y, z])
    }

    /// Each body's acceleration, and how that changes.
    pub(crate) fn pulled(&self, bodies: &Bodies) -> Result<Pulled, Error> {
        let [ax, ay, az, jx, jy, jz] = self.run(&self.change, bodies, true)?;
        self.check(bodies, &[&ax, &ay, &az, &jx, &jy, &jz])?;
        Ok(Pulled { acceleration: [ax, ay, az], jerk: [jx, jy, jz] })
    }

    /// Each body's potential from all others.
    ///
    /// # Errors
    /// Two bodies at one place without softening, or what the engine says.
    pub fn potential(&self, bodies: &Bodies) -> Result<Vec<f64>, Error> {
        let [_, _, _, potential] = self.run(&self.judge, bodies, false)?;
        self.check(bodies, &[&potential])?;
        Ok(potential)
    }

    /// Whether pulls are finite; if not, says which two bodies are at one place, or which body is
    /// pulled too much.
    fn check(&self, bodies: &Bodies, pulls: &[&Vec<f64>]) -> Result<(), Error> {
        let beyond = |body: &usize| pulls.iter().any(|pull| !pull[*body].is_finite());
        let Some(body) = (0..bodies.len()).find(beyond) else { return Ok(()) };
        let place = at(&bodies.position, body);
        let other =
            (0..bodies.len()).find(|other| *other != body && at(&bodies.position, *other) == place);
        Err(match other.filter(|_| self.softening == 0.0) {
            Some(other) => Error::Met { first: body.min(other), second: body.max(other) },
            None => Error::Pull { body },
        })
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
        let numbers: Vec<f64> = (0..bodies.len()).map(|body| body as f64).collect();
        let number = Column::from(&numbers[..]);
        let j = [&i[..], &[Column::from(bodies.mass()), number]].concat();
        i.push(number);
        let inputs = Inputs::new(&pull.program, i, j, &[Some(pull.softening)])?;
        let outputs: Vec<Vec<f64>> = pull
            .kernel
            .run(&inputs)?
            .into_iter()
            .map(|output| output.into_numbers().expect("gravity is of numbers"))
            .collect();
        Ok(outputs.try_into().expect("as many results as the kernel has"))
    }
}

/// What of a kernel is computed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum What {
    Pulls,
    Potential,
}

/// A kernel of gravity in which a body is not among those that pull it. A body and itself have the
/// same number: some distance takes the place of none there, along which nothing pulls, and the
/// potential is left out. Numbers are exact in `f32` too, as [`super::MAX_BODIES`] is 2^24.
fn between_others(text: &str, what: What) -> String {
    let text = text.replace("CONST", "VARI ni\nVARJ nj\nCONST");
    let text = text.replace(
        "r2 = eps2 + dx*dx + dy*dy + dz*dz",
        "r2 = select(ni == nj, 1, eps2 + dx*dx + dy*dy + dz*dz)",
    );
    match what {
        // A quick inverse root is for what ends in sums of products alone.
        What::Pulls => text.replace(", pot\n", "\n").replace("pot -= mrinv\n", ""),
        What::Potential => text.replace("pot -= mrinv\n", "pot -= select(ni == nj, 0, mrinv)\n"),
    }
}

fn columns(vectors: &Vectors) -> [Column<'_>; 3] {
    vectors.each_ref().map(|axis| Column::from(&axis[..]))
}
