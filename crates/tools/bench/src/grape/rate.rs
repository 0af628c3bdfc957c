//! Times kernels: their inputs, their code, and their best times.

use std::hint::black_box;
use std::num::NonZeroUsize;

use anyhow::{Context as _, Result};
use sprat_chance::Chance;
use sprat_grape::{Column, Inputs, Options, Output, Precision, Program, Target, ready};
use sprat_vector::{Compiled, PEAK_FLOPS, peak};

use sprat_measure::cpu;

/// Number of particles. Each particle interacts with all particles.
pub(super) const PARTICLES: usize = 8192;

/// Number of runs of each kernel; on portable vectors a kernel runs only twice. The best run
/// counts.
pub(super) const ROUNDS: usize = 9;

/// Returns the vector instruction sets of this processor, best first.
pub(super) fn targets() -> Vec<Target> {
    [Target::Avx512, Target::Avx2, Target::Portable]
        .into_iter()
        .filter(|target| target.is_supported())
        .collect()
}

/// Pins this thread to the last core that it may use, until the result is dropped.
pub(super) fn pinned() -> Result<cpu::Pinned> {
    cpu::Pinned::to(cpu::allowed_cores()?.last().copied())
}

/// Returns columns of pseudo-random numbers from 0 to 1. The numbers are the same in every run.
pub(super) fn numbers(columns: usize) -> Vec<Vec<f64>> {
    let mut chance = Chance::new(0);
    (0..columns).map(|_| (0..PARTICLES).map(|_| chance.share()).collect()).collect()
}

/// Makes a program's inputs from the first of these columns, with `i` particles on the first side.
/// Constants without a default are 0.01.
pub(super) fn inputs<'a>(
    program: &Program,
    columns: &'a [Vec<f64>],
    i: usize,
) -> Result<Inputs<'a>> {
    let take = |count: usize, length: usize| {
        columns[..count].iter().map(|all| Column::from(&all[..length])).collect()
    };
    let constants: Vec<Option<f64>> =
        program.constants().iter().map(|constant| Some(constant.default.unwrap_or(0.01))).collect();
    Ok(Inputs::new(
        program,
        take(program.i().len(), i),
        take(program.j().len(), PARTICLES),
        &constants,
    )?)
}

/// A kernel on one thread, with its best time so far.
pub(super) struct Timed {
    pub(super) compiled: Compiled,
    best: f64,
}

impl Timed {
    /// Compiles a built-in kernel.
    pub(super) fn ready(name: &str, precision: Precision, target: Target) -> Result<Self> {
        let text = ready(name).with_context(|| format!("no kernel is called {name}"))?.text;
        Self::of(
            &sprat_grape::Kernel::compile(text, precision, &sprat_grape::Engine::Reference)?
                .program()
                .clone(),
            target,
        )
    }

    /// Compiles a kernel of nothing but fused multiplications and additions.
    pub(super) fn peak(precision: Precision, target: Target) -> Result<Self> {
        Self::of(&peak(precision.into()), target)
    }

    fn of(program: &Program, target: Target) -> Result<Self> {
        let compiled = Compiled::new(program, Options { target, threads: NonZeroUsize::MIN })?;
        Ok(Self { compiled, best: f64::INFINITY })
    }

    /// Runs the kernel once and updates the best time.
    pub(super) fn run(&mut self, columns: &[Vec<f64>]) -> Result<Vec<Output>> {
        let inputs = inputs(self.compiled.program(), columns, PARTICLES)?;
        let before = cpu::thread_time();
        let outputs = black_box(self.compiled.run(&inputs));
        self.best = self.best.min((cpu::thread_time() - before).as_secs_f64());
        Ok(outputs)
    }

    /// Returns the best rate in G interactions/s.
    pub(super) fn rate(&self) -> f64 {
        rate(self.best)
    }

    /// Returns the best rate in Gflop/s, by the operations that the kernel declares for one pair.
    /// `None` if the kernel declares none.
    pub(super) fn gflops(&self) -> Option<f64> {
        self.compiled.program().flops().map(|flops| f64::from(flops) * self.rate())
    }

    /// Returns the best rate in Gflop/s of a kernel from [`Timed::peak`].
    pub(super) fn peak_gflops(&self) -> f64 {
        f64::from(PEAK_FLOPS) * self.rate()
    }
}

/// Returns the rate in G interactions/s if `seconds` is the time for all pairs.
pub(super) fn rate(seconds: f64) -> f64 {
    (PARTICLES * PARTICLES) as f64 / seconds / 1e9
}

/// Returns a precision's name.
pub(super) fn word(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "f32",
        Precision::F64 => "f64",
    }
}
