//! A kernel compiled for a processor.

use crate::error::Error;
use crate::facts::Facts;
use crate::pack::Pack;
use crate::portable::Portable;
use crate::shape::Shape;
use crate::target::Target;
use crate::threads::Threads;
use sprat_formula::Program;
use std::num::NonZeroUsize;

#[cfg(all(target_arch = "x86_64", unix))]
use crate::loops::Loops;

/// How a kernel is compiled and run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The instruction set to compile for.
    pub target: Target,
    /// The number of threads that run the kernel, at most [`crate::THREADS_PER_PROCESSOR`] for each
    /// processor. Results do not depend on this number.
    pub threads: NonZeroUsize,
}

impl Default for Options {
    /// Returns the best target that this processor supports, and one thread for each processor.
    fn default() -> Self {
        Self {
            target: Target::best(),
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        }
    }
}

/// A kernel that is compiled for a processor and can run on arrays.
///
/// Compile a kernel once with [`Compiled::new`], then call [`Compiled::run`] as often as needed.
/// The kernel owns its code and its threads, which wait between runs. Each run borrows its inputs
/// and allocates its results. Threads may share a kernel.
#[derive(Debug)]
pub struct Compiled {
    pub(crate) program: Program,
    pub(crate) shape: Shape,
    pub(crate) pack: Pack,
    pub(crate) engine: Engine,
    pub(crate) facts: Facts,
    pub(crate) threads: Threads,
}

/// What computes the pairs of a kernel.
#[derive(Debug)]
pub(crate) enum Engine {
    #[cfg(all(target_arch = "x86_64", unix))]
    Code(Loops),
    Portable(Portable),
}

impl Compiled {
    /// Compiles a kernel. If the target has instructions for it, products that are added are
    /// contracted to fused multiply-adds ([`Program::contracted`]).
    ///
    /// # Errors
    /// [`Error`] says why the kernel could not be compiled or why its threads could not be started.
    pub fn new(program: &Program, options: Options) -> Result<Self, Error> {
        let Options { target, threads } = options;
        if !target.is_supported() {
            return Err(Error::Lacks { target, best: Target::best() });
        }
        // Machine code computes a fused multiply-add in one instruction; the portable engine would
        // call a function for each.
        let program =
            if target == Target::Portable { program.clone() } else { program.contracted() };
        let shape = Shape::new(&program);
        let (engine, facts) = engine(&program, &shape, target)?;
        let threads = Threads::new(threads)?;
        Ok(Self { pack: Pack::new(&program, &shape), program, shape, engine, facts, threads })
    }

    /// Returns the kernel in the form that is computed, after contraction.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Returns figures about the compiled code.
    #[must_use]
    pub fn facts(&self) -> Facts {
        self.facts
    }

    /// Returns the number of particles of a tile.
    pub(crate) fn width(&self) -> usize {
        self.facts.lanes * self.facts.unroll
    }
}

fn portable(program: &Program, shape: &Shape) -> (Engine, Facts) {
    let target = Target::Portable;
    let lanes = target.lanes(shape.wide);
    let facts = Facts {
        target,
        lanes,
        unroll: 1,
        code: 0,
        instructions: 0,
        registers: 0,
        spills: 0,
        row: shape.row,
    };
    (Engine::Portable(Portable::new(program, shape)), facts)
}

#[cfg(not(all(target_arch = "x86_64", unix)))]
fn engine(program: &Program, shape: &Shape, _: Target) -> Result<(Engine, Facts), Error> {
    Ok(portable(program, shape))
}

#[cfg(all(target_arch = "x86_64", unix))]
fn engine(program: &Program, shape: &Shape, target: Target) -> Result<(Engine, Facts), Error> {
    if target == Target::Portable {
        return Ok(portable(program, shape));
    }
    let (loops, facts) = Loops::new(program, shape, target)?;
    Ok((Engine::Code(loops), facts))
}
