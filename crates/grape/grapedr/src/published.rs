//! The published step counts and rates of the machine's kernels, and a comparison with ours.

use crate::compile::{CompileError, Kernel, compile};
use crate::instruction::{BLOCKS, ELEMENTS};
use crate::timing::real;
use sprat_formula::{Precision, ready};

/// The published figures of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// The kernel's name among the built-in kernels.
    pub name: &'static str,
    /// Steps of the kernel's inner loop. Each step takes one cycle for each element of the vector.
    pub steps: u64,
    /// Floating-point operations that one pair counts as, by convention.
    pub flops: u64,
    /// The kernel's published rate on a chip at 500 MHz, in Gflop/s.
    pub rate: u64,
}

/// The published kernels.
pub const PUBLISHED: &[Published] = &[
    Published { name: "gravity", steps: 56, flops: 38, rate: 174 },
    Published { name: "gravity-jerk", steps: 95, flops: 60, rate: 162 },
    Published { name: "lennard-jones", steps: 102, flops: 40, rate: 100 },
];

/// A published kernel compared with ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedComparison {
    /// The published figures.
    pub published: Published,
    /// Steps of our inner loop with `f32` variables: products are short, and the sums over all j
    /// are long.
    pub short_steps: u64,
    /// Steps of our inner loop with `f64` variables: all words are long, and products take two
    /// steps.
    pub long_steps: u64,
    /// The rate that results from `short_steps` on one chip at 500 MHz, in Gflop/s.
    pub short_rate: f64,
    /// The rate that results from `long_steps` on one chip at 500 MHz, in Gflop/s.
    pub long_rate: f64,
}

/// Compiles our versions of the published kernels and counts their steps.
///
/// # Errors
/// [`CompileError`] if one of them does not fit into the machine.
pub fn published() -> Result<Vec<PublishedComparison>, CompileError> {
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
        Ok(PublishedComparison {
            published,
            short_steps,
            long_steps,
            short_rate: rate(short_steps),
            long_rate: rate(long_steps),
        })
    };
    PUBLISHED.iter().map(row).collect()
}

/// Returns the rate, in Gflop/s, of a chip at 500 MHz whose elements need this many steps for a
/// pair.
#[must_use]
pub fn rate(flops: u64, steps: u64) -> f64 {
    let elements = u64::try_from(BLOCKS * ELEMENTS).expect("512");
    real(flops * elements) * 0.5 / real(steps)
}
