//! Errors of this crate. Their messages say what to do about them.

use sprat_formula::{DataError, SyntaxError};
use std::path::PathBuf;
use thiserror::Error;

/// Why a kernel was not compiled or run, an array not read, or a simulation not started or
/// continued.
#[derive(Debug, Error)]
pub enum Error {
    /// The kernel's text is invalid.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// The inputs do not match the kernel.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The processor's vector unit cannot run the kernel.
    #[error(transparent)]
    Vector(#[from] sprat_vector::Error),
    /// The simulated machine cannot run the kernel.
    #[error(transparent)]
    GrapeDr(#[from] sprat_grapedr::CompileError),
    /// Another rank has stopped.
    #[error(transparent)]
    Stopped(#[from] sprat_ranks::Stopped),
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file's path.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// A file does not contain an array that kernels can use.
    #[error(
        "{}: {why}; expected a file of numpy.save with float32 or float64 and one or two \
         dimensions",
        path.display()
    )]
    Array {
        /// The file's path.
        path: PathBuf,
        /// Why the file is invalid.
        why: String,
    },
    /// There are no bodies, or too many.
    #[error("{count} bodies: there must be one at least, and {limit} at most")]
    Bodies {
        /// The number of bodies.
        count: usize,
        /// The largest number that is allowed.
        limit: usize,
    },
    /// A column does not have as many elements as there are masses.
    #[error("{name} has {len} bodies, masses has {masses}")]
    Lengths {
        /// Name of the column.
        name: &'static str,
        /// The length of the column.
        len: usize,
        /// The number of masses.
        masses: usize,
    },
    /// A number is infinite or NaN.
    #[error("{name} of body {body} is {number}; only finite numbers are possible")]
    NotFinite {
        /// Name of the column.
        name: &'static str,
        /// Number of the body, counted from 0.
        body: usize,
        /// The number.
        number: f64,
    },
    /// The softening length is negative, infinite or NaN.
    #[error("a softening length of {0}: it must be 0, for none, or above")]
    Softening(f64),
    /// Two bodies have the same position, and there is no softening.
    #[error(
        "bodies {first} and {second}, counted from 0, are at one place, where they pull each other \
         without limit; give \
         a softening length above 0, or move one of them"
    )]
    Met {
        /// The first of the two bodies, counted from 0.
        first: usize,
        /// The second of the two bodies, counted from 0.
        second: usize,
    },
    /// An acceleration or potential overflows.
    #[error(
        "the force on body {body}, counted from 0, exceeds the largest number: others are too \
         close or too heavy; a larger softening length, or f64, helps"
    )]
    Pull {
        /// The number of the body, counted from 0.
        body: usize,
    },
    /// The step or the accuracy of the scheme is not positive and finite.
    #[error("a step, or accuracy, of {0}: it must be above 0")]
    Step(f64),
    /// Steps have become too short to advance the time, or there were too many.
    #[error(
        "at time {time} steps have become {step} after {steps} of them: two bodies are too close; \
         a larger softening length helps"
    )]
    Stuck {
        /// The time that the simulation has reached.
        time: f64,
        /// The last step.
        step: f64,
        /// Number of steps so far.
        steps: u64,
    },
}
