//! Sprat for Python: the extension of the package `sprat`, whose Python modules export its parts.
//!
//! A copy runs on a thread of its own, while the caller's waits for events without Python's lock:
//! so other Python threads continue, and Ctrl-C takes effect at once. A kernel also runs without
//! Python's lock, on the arrays in place.

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
