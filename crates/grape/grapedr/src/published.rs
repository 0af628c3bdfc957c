//! The published step counts and rates of the machine's kernels, and ours beside them.

use crate::compile::{CompileError, Kernel, compile};
use crate::instruction::{BLOCKS, ELEMENTS};
use crate::timing::real;
use sprat_formula::{Precision, ready};

/// What was published of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Its name among the ready kernels.
    pub name: &'static str,
    /// Steps of its inner loop: each is a cycle for an element of the vector.
    pub steps: u64,
    /// Floating-point operations that a pair counts for.
    pub flops: u64,
    /// Its rate on a chip of 500 MHz, in Gflop/s, as published.
    pub rate: u64,
}

/// All of them.
pub const PUBLISHED: &[Published] = &[
    Published { name: "gravity", steps: 56, flops: 38, rate: 174 },
    Published { name: "gravity-jerk", steps: 95, flops: 60, rate: 162 },
    Published { name: "lennard-jones", steps: 102, flops: 40, rate: 100 },
];

/// A published kernel and ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Theirs.
    pub published: Published,
    /// Steps of our inner loop with variables of `f32`: short products, sums of all j in long
    /// words.
    pub short_steps: u64,
    /// With variables of `f64`: long words, whose products count two steps each.
    pub long_steps: u64,
    /// Gflop/s that follow from `short_steps`, of one chip at 500 MHz.
    pub short_rate: f64,
    /// Likewise.
    pub long_rate: f64,
}

/// Compiles the published kernels as this repository has them, and counts.
///
/// # Errors
/// [`CompileError`], where one did not fit.
pub fn published() -> Result<Vec<Row>, CompileError> {
    let steps = |name, precision| {
        let text = ready(name).expect("a ready kernel").text;
        let program =
            sprat_formula::Kernel::parse(text, precision).expect("ready kernels are right").program;
        compile(&program).map(|kernel: Kernel| kernel.steps())
    };
    let row = |&published: &Published| {
        let short_steps = steps(published.name, Precision::F32)?;
        let long_steps = steps(published.name, Precision::F64)?;
        let rate = |steps| rate(published.flops, steps);
        Ok(Row {
            published,
            short_steps,
            long_steps,
            short_rate: rate(short_steps),
            long_rate: rate(long_steps),
        })
    };
    PUBLISHED.iter().map(row).collect()
}

/// Gflop/s of a chip at 500 MHz whose elements need so many steps for a pair.
#[must_use]
pub fn rate(flops: u64, steps: u64) -> f64 {
    let elements = u64::try_from(BLOCKS * ELEMENTS).expect("512");
    real(flops * elements) * 0.5 / real(steps)
}
