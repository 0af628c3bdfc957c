//! What computes a kernel, and a kernel made ready for it.

use crate::error::Error;
use sprat_formula::{Arithmetic, Inputs, Output, Precision, Program, reference};
use sprat_grapedr::Shape;
use sprat_vector::{Compiled, Options};
use std::ops::Range;

/// What computes.
#[derive(Clone, Copy, Debug)]
pub enum Engine {
    /// The processor's vectors.
    Vector(Options),
    /// A GRAPE-DR, simulated: slow, and true to what the machine would give.
    GrapeDr(Shape),
    /// One pair after the other in `f64`: slow, and what the others are judged by.
    Reference,
}

impl Default for Engine {
    /// The best vectors that this processor has, on all of it.
    fn default() -> Self {
        Self::Vector(Options::default())
    }
}

/// A kernel, ready to run.
#[derive(Debug)]
pub struct Kernel {
    program: Program,
    made: Made,
}

#[derive(Debug)]
enum Made {
    Vector(Box<Compiled>),
    GrapeDr(Box<sprat_grapedr::Kernel>, Shape),
    Reference,
}

impl Kernel {
    /// Reads a kernel's text and compiles it; variables and results that do not say their type have
    /// this precision.
    ///
    /// # Errors
    /// [`Error::Syntax`], and what the engine says.
    pub fn compile(text: &str, precision: Precision, engine: &Engine) -> Result<Self, Error> {
        Self::of(sprat_formula::Kernel::parse(text, precision)?.program, engine)
    }

    /// Compiles a program.
    ///
    /// # Errors
    /// What the engine says: a kernel that is too large for it, or a processor that lacks what it
    /// was told to use.
    pub fn of(program: Program, engine: &Engine) -> Result<Self, Error> {
        let made = match engine {
            Engine::Vector(options) => Made::Vector(Box::new(Compiled::new(&program, *options)?)),
            Engine::GrapeDr(shape) => {
                Made::GrapeDr(Box::new(sprat_grapedr::compile(&program)?), *shape)
            }
            Engine::Reference => Made::Reference,
        };
        Ok(Self { program, made })
    }

    /// What it computes.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The results, in the order of the program's, for each i. Whatever the numbers are, there is a
    /// result, as the kernel language says.
    ///
    /// # Panics
    /// Inputs that were checked against another program.
    #[must_use]
    pub fn run(&self, inputs: &Inputs<'_>) -> Vec<Output> {
        self.run_part(inputs, 0..inputs.ni())
    }

    /// The results of some i: what [`Kernel::run`] has of them, bit for bit, but for a GRAPE-DR,
    /// which divides j among more blocks where i are fewer, and so adds in another order.
    ///
    /// # Panics
    /// i that there are not, or inputs that were checked against another program.
    #[must_use]
    pub fn run_part(&self, inputs: &Inputs<'_>, i: Range<usize>) -> Vec<Output> {
        match &self.made {
            Made::Vector(compiled) => compiled.run_part(inputs, i),
            Made::GrapeDr(kernel, shape) => {
                sprat_grapedr::run(kernel, &inputs.of_i(i), *shape, None).outputs
            }
            Made::Reference => reference(&self.program, &inputs.of_i(i), Arithmetic::Wide).outputs,
        }
    }
}
