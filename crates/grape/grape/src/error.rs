//! What can go wrong, and what to do about it.

use sprat_formula::{DataError, SyntaxError};
use std::path::PathBuf;
use thiserror::Error;

/// Why a kernel was not compiled or run, an array not read, or bodies not followed.
#[derive(Debug, Error)]
pub enum Error {
    /// The text is no kernel.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// The arrays are not the kernel's.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The processor's vectors cannot have it.
    #[error(transparent)]
    Vector(#[from] sprat_vector::Error),
    /// The simulated machine cannot have it.
    #[error(transparent)]
    GrapeDr(#[from] sprat_grapedr::CompileError),
    /// Ranks that compute together have stopped.
    #[error(transparent)]
    Stopped(#[from] sprat_ranks::Stopped),
    /// A file is not there, or cannot be written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A file is no array of numbers that kernels take.
    #[error("{}: {why}; numpy.save writes what is wanted: float32 or float64, one or two dimensions", path.display())]
    Array {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// No bodies, or too many.
    #[error("{count} bodies: there must be one at least, and {limit} at most")]
    Bodies {
        /// How many.
        count: usize,
        /// How many may be.
        limit: usize,
    },
    /// Columns of different lengths.
    #[error("{name} is of {len} bodies, masses of {masses}")]
    Lengths {
        /// Which column.
        name: &'static str,
        /// How long it is.
        len: usize,
        /// How many masses there are.
        masses: usize,
    },
    /// Infinity, or not a number.
    #[error("{name} of body {body} is {number}; only finite numbers can be followed")]
    NotFinite {
        /// Which column.
        name: &'static str,
        /// Which body, from 0.
        body: usize,
        /// The number.
        number: f64,
    },
    /// A softening length that is none.
    #[error("a softening length of {0}: it must be 0, for none, or above")]
    Softening(f64),
    /// Two bodies at one place, without softening.
    #[error(
        "bodies {first} and {second}, counted from 0, are at one place, where they pull each other without limit; give \
         a softening length above 0, or move one of them"
    )]
    Met {
        /// One of them.
        first: usize,
        /// The other.
        second: usize,
    },
    /// A pull that no number says.
    #[error(
        "what pulls body {body}, counted from 0, is beyond the greatest number: others are too close or too heavy; a \
         larger softening length, or f64, helps"
    )]
    Pull {
        /// Which body is pulled.
        body: usize,
    },
    /// A step or an accuracy that is none.
    #[error("a step, or accuracy, of {0}: it must be above 0")]
    Step(f64),
    /// Time stands still.
    #[error(
        "at time {time} steps have become {step} after {steps} of them: two bodies are too close; a larger softening length helps"
    )]
    Stuck {
        /// When.
        time: f64,
        /// The last step.
        step: f64,
        /// How many there were.
        steps: u64,
    },
}
