//! Computes gravity between bodies with kernels.

use super::bodies::{Bodies, Vectors, at};
use crate::divided::{Divide, DividedKernel};
use crate::engine::Engine;
use crate::error::Error;
use sprat_formula::{Column, Inputs, Kernel, Precision, Program, ready};
use sprat_ranks::Ranks;

/// Gravity between bodies with a softening length `e`. The potential of a pair is
/// `-m / sqrt(r^2 + e^2)`. `e` may be 0, because a body does not attract itself.
#[derive(Debug)]
pub struct Gravity<'r> {
    acceleration: CompiledKernel<'r>,
    jerk: CompiledKernel<'r>,
    potential: CompiledKernel<'r>,
    softening: f64,
}

/// A compiled kernel with its constant.
#[derive(Debug)]
struct CompiledKernel<'r> {
    program: Program,
    kernel: DividedKernel<'r>,
    /// The square of the softening length, rounded to the kernel's precision.
    softening: f64,
}

/// Accelerations and their time derivatives.
#[derive(Debug)]
pub(crate) struct Accelerations {
    pub(crate) acceleration: Vectors,
    pub(crate) jerk: Vectors,
}

impl<'r> Gravity<'r> {
    /// Compiles the kernels of gravity for an engine and a precision. Energies are always computed
    /// in `f64`. With several ranks, each rank knows all bodies and computes the accelerations of
    /// its part of them.
    ///
    /// # Errors
    /// The softening length is negative or not finite, or the engine refuses a kernel.
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
            let kernel = DividedKernel::new(&program, engine, ranks, Divide::I)?;
            let square = softening * softening;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "rounded to its type: of a very short length to 0"
            )]
            let narrow = f64::from(square as f32);
            let softening = if precision == Precision::F32 { narrow } else { square };
            Ok::<_, Error>(CompiledKernel { program, kernel, softening })
        };
        Ok(Self {
            acceleration: compile("gravity", Quantity::Accelerations, precision)?,
            jerk: compile("gravity-jerk", Quantity::Accelerations, precision)?,
            potential: compile("gravity", Quantity::Potential, Precision::F64)?,
            softening,
        })
    }

    /// Returns the softening length.
    #[must_use]
    pub fn softening(&self) -> f64 {
        self.softening
    }

    /// Computes each body's acceleration.
    pub(crate) fn acceleration(&self, bodies: &Bodies) -> Result<Vectors, Error> {
        let [x, y, z] = self.run(&self.acceleration, bodies, false)?;
        self.check(bodies, &[&x, &y, &z])?;
        Ok([x, y, z])
    }

    /// Computes each body's acceleration and its time derivative.
    pub(crate) fn accelerations(&self, bodies: &Bodies) -> Result<Accelerations, Error> {
        let [ax, ay, az, jx, jy, jz] = self.run(&self.jerk, bodies, true)?;
        self.check(bodies, &[&ax, &ay, &az, &jx, &jy, &jz])?;
        Ok(Accelerations { acceleration: [ax, ay, az], jerk: [jx, jy, jz] })
    }

    /// Computes each body's potential in the field of all others.
    ///
    /// # Errors
    /// Two bodies have the same position without softening, a number overflows, or another rank has
    /// stopped.
    pub fn potential(&self, bodies: &Bodies) -> Result<Vec<f64>, Error> {
        let [_, _, _, potential] = self.run(&self.potential, bodies, false)?;
        self.check(bodies, &[&potential])?;
        Ok(potential)
    }

    /// Checks that results are finite. The error names two bodies at the same position, or a body
    /// whose result overflows.
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
        kernel: &CompiledKernel<'_>,
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
        let inputs = Inputs::new(&kernel.program, i, j, &[Some(kernel.softening)])?;
        let outputs: Vec<Vec<f64>> = kernel
            .kernel
            .run(&inputs)?
            .into_iter()
            .map(|output| output.into_numbers().expect("gravity is of numbers"))
            .collect();
        Ok(outputs.try_into().expect("as many results as the kernel has"))
    }
}

/// What a kernel of gravity computes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Quantity {
    Accelerations,
    Potential,
}

/// Changes a kernel of gravity so that a body does not attract itself. The variables `ni` and `nj`
/// get the numbers of the two bodies of a pair. If these are equal, the pair is a body with itself.
/// The squared distance of such a pair becomes 1, along which no force acts, and the pair adds
/// nothing to the potential. The numbers are exact even in `f32`, because [`super::MAX_BODIES`] is
/// 2^24.
fn between_others(text: &str, what: Quantity) -> String {
    let text = text.replace("CONST", "VARI ni\nVARJ nj\nCONST");
    let text = text.replace(
        "r2 = eps2 + dx*dx + dy*dy + dz*dz",
        "r2 = select(ni == nj, 1, eps2 + dx*dx + dy*dy + dz*dz)",
    );
    match what {
        // A fast inverse square root is only allowed if results are sums of products.
        Quantity::Accelerations => text.replace(", pot\n", "\n").replace("pot -= mrinv\n", ""),
        Quantity::Potential => {
            text.replace("pot -= mrinv\n", "pot -= select(ni == nj, 0, mrinv)\n")
        }
    }
}

fn columns(vectors: &Vectors) -> [Column<'_>; 3] {
    vectors.each_ref().map(|axis| Column::from(&axis[..]))
}
