//! Errors of compiling and starting a kernel.

use crate::target::Target;
use crate::threads::THREADS_PER_PROCESSOR;
use thiserror::Error;

/// Why a kernel was not compiled, or its threads were not started.
#[derive(Debug, Error)]
pub enum Error {
    /// The processor lacks the instructions of the target.
    #[error("this processor cannot run code for {target:?}; it has {best:?}")]
    Lacks {
        /// The target that the caller asked for.
        target: Target,
        /// The best target that this processor supports.
        best: Target,
    },
    /// The code of the kernel exceeds [`MAX_CODE`](crate::MAX_CODE).
    #[error(
        "the loop of this kernel takes {bytes} bytes of code, {limit} are the limit; split the \
         kernel in two"
    )]
    TooLarge {
        /// The number of bytes of code that the kernel needs.
        bytes: usize,
        /// The largest number of bytes that is allowed.
        limit: usize,
    },
    /// The system does not give memory for code, or does not allow memory to be executable.
    #[error("no executable memory: {0}; where the system forbids it, compile for Target::Portable")]
    Memory(std::io::Error),
    /// The caller asked for more threads than can be useful.
    #[error(
        "{threads} threads: {limit} are the limit, {THREADS_PER_PROCESSOR} for each of \
         {processors} processors; more \
         would only wait for each other"
    )]
    TooManyThreads {
        /// The number of threads asked for.
        threads: usize,
        /// The largest number that is allowed on this machine.
        limit: usize,
        /// The number of processors that this process may use.
        processors: usize,
    },
    /// The system could not start the threads.
    #[error("{threads} threads could not be started: {why}; ask for fewer")]
    Threads {
        /// The number of threads asked for.
        threads: usize,
        /// The system's error message.
        why: String,
    },
    /// The compiler produced an instruction that does not exist, which is a bug of this crate.
    #[error(
        "a kernel for {target:?} became an instruction that does not exist ({why}); compile for \
         Target::Portable"
    )]
    Encoding {
        /// The target of the compilation.
        target: Target,
        /// The encoder's error message.
        why: String,
    },
}
