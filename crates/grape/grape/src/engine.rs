//! Engines that run kernels.

use crate::error::Error;
use sprat_formula::{Arithmetic, Inputs, Output, Precision, Program, reference};
use sprat_grapedr::Shape;
use sprat_vector::{Compiled, Options};
use std::ops::Range;

/// The engine for which a kernel is compiled.
#[derive(Clone, Copy, Debug)]
pub enum Engine {
    /// The processor's vector unit.
    Vector(Options),
    /// A simulated GRAPE-DR. It is slow, but gives the results of the real machine.
    GrapeDr(Shape),
    /// The reference implementation: it computes one pair after the other in `f64`. It is slow, and
    /// other engines are tested against it.
    Reference,
}

impl Default for Engine {
    /// Returns the best vector unit of this processor, with all of its cores.
    fn default() -> Self {
        Self::Vector(Options::default())
    }
}

/// A compiled kernel. It can run any number of times, and on several threads at the same time.
#[derive(Debug)]
pub struct Kernel {
    program: Program,
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    Vector(Box<Compiled>),
    GrapeDr(Box<sprat_grapedr::Kernel>, Shape),
    Reference,
}

impl Kernel {
    /// Parses and compiles a kernel. Variables and results without a declared type get this
    /// precision.
    ///
    /// # Errors
    /// [`Error::Syntax`] if the text is invalid, or the errors of [`Kernel::of`].
    pub fn compile(text: &str, precision: Precision, engine: &Engine) -> Result<Self, Error> {
        Self::of(sprat_formula::Kernel::parse(text, precision)?.program, engine)
    }

    /// Compiles a program.
    ///
    /// # Errors
    /// The engine's error: the kernel is too large for the engine, the processor lacks an
    /// instruction set that the options ask for, or threads or memory are not available.
    pub fn of(program: Program, engine: &Engine) -> Result<Self, Error> {
        let backend = match engine {
            Engine::Vector(options) => {
                Backend::Vector(Box::new(Compiled::new(&program, *options)?))
            }
            Engine::GrapeDr(shape) => {
                Backend::GrapeDr(Box::new(sprat_grapedr::compile(&program)?), *shape)
            }
            Engine::Reference => Backend::Reference,
        };
        Ok(Self { program, backend })
    }

    /// Returns the program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs the kernel, and returns the program's results for each i, in order. No number makes a
    /// run fail: the kernel language also defines the results for infinities and NaN.
    ///
    /// # Panics
    /// The inputs were checked against a program with other numbers of variables.
    #[must_use]
    pub fn run(&self, inputs: &Inputs<'_>) -> Vec<Output> {
        self.run_part(inputs, 0..inputs.ni())
    }

    /// Runs the kernel for a range of i. The results equal those of [`Kernel::run`] bit for bit,
    /// except on a GRAPE-DR. With fewer i, a GRAPE-DR divides the j among more blocks, and so adds
    /// in another order.
    ///
    /// # Panics
    /// The range contains i that do not exist, or the inputs were checked against a program with
    /// other numbers of variables.
    #[must_use]
    pub fn run_part(&self, inputs: &Inputs<'_>, i: Range<usize>) -> Vec<Output> {
        match &self.backend {
            Backend::Vector(compiled) => compiled.run_part(inputs, i),
            Backend::GrapeDr(kernel, shape) => {
                sprat_grapedr::run(kernel, &inputs.of_i(i), *shape, None).outputs
            }
            Backend::Reference => {
                reference(&self.program, &inputs.of_i(i), Arithmetic::Wide).outputs
            }
        }
    }
}
