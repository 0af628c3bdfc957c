//! Sprat for Python: the extension behind the package `sprat`, whose own modules say which of this
//! is whose.
//!
//! A copy runs on a thread of its own while the caller's, without Python's lock, waits for what is
//! told: so other Python threads go on, and Ctrl-C is heard at once. A kernel runs without Python's
//! lock too, on the arrays where they lie.

mod columns;
mod convert;
mod copy;
mod errors;
mod grape;

/// What the package's modules take from here.
#[pyo3::pymodule]
mod _sprat {
    #[pymodule_export]
    use crate::copy::{Outcome, Progress, copy};
    #[pymodule_export]
    use crate::errors::{
        Changed, Corrupt, Denied, DestinationError, Error, Exists, NotFound, ProtocolError,
        Unreachable, Untrusted, UsageError,
    };
    #[pymodule_export]
    use crate::grape::{GrapeError, Kernel, KernelError, compile, kernels};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
