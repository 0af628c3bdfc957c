//! Sprat for Python: the extension of the package `sprat`, whose Python modules export its parts.
//!
//! A copy runs on a separate thread, while the caller's thread waits for events without Python's
//! lock. So other Python threads continue, and Ctrl-C takes effect at once. A kernel also runs
//! without Python's lock, on the arrays in place.

mod columns;
mod convert;
mod copy;
mod errors;
mod grape;

/// The extension module, from which the package's modules import.
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
