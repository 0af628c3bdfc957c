//! What can go wrong when a kernel is compiled.

use crate::target::Target;
use crate::threads::THREADS_PER_PROCESSOR;
use thiserror::Error;

/// Why a kernel was not compiled.
#[derive(Debug, Error)]
pub enum Error {
    /// The processor lacks instructions.
    #[error("this processor cannot run code for {target:?}; it has {best:?}")]
    Lacks {
        /// For what it was to be compiled.
        target: Target,
        /// The best there is here.
        best: Target,
    },
    /// More code than is sensible.
    #[error(
        "the loop of this kernel takes {bytes} bytes of code, {limit} are the limit; split the kernel in two"
    )]
    TooLarge {
        /// What it takes.
        bytes: usize,
        /// What it may take.
        limit: usize,
    },
    /// The system gave no memory for code, or none that may be executed.
    #[error("no executable memory: {0}; where the system forbids it, compile for Target::Portable")]
    Memory(std::io::Error),
    /// More threads than are of any use.
    #[error(
        "{threads} threads: {limit} are the limit, {THREADS_PER_PROCESSOR} for each of {processors} processors; more \
         would only wait for each other"
    )]
    TooManyThreads {
        /// How many were to be.
        threads: usize,
        /// How many may be, here.
        limit: usize,
        /// How many processors this process may use.
        processors: usize,
    },
    /// Threads could not be started.
    #[error("{threads} threads could not be started: {why}; ask for fewer")]
    Threads {
        /// How many were to be.
        threads: usize,
        /// What the system said.
        why: String,
    },
    /// An instruction that does not exist: our mistake.
    #[error(
        "a kernel for {target:?} became an instruction that does not exist ({why}); compile for Target::Portable"
    )]
    Encoding {
        /// For what it was compiled.
        target: Target,
        /// What the encoder said.
        why: String,
    },
}
