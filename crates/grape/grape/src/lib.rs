//! Runs kernels of particle interactions. [`Kernel`] compiles a kernel's text for an [`Engine`] and
//! runs it on arrays, which can be read from NumPy's files ([`Array`]). It runs in one process, or
//! on several [ranks](DividedKernel) that divide the work. [`nbody`] simulates bodies that attract
//! each other.
//!
//! ```
//! use sprat_grape::{Column, Engine, Inputs, Kernel, Output, Precision};
//! let text = "VARI xi; VARJ xj, mj; VARF sum; sum += mj * (xj - xi)";
//! let kernel = Kernel::compile(text, Precision::F64, &Engine::default())?;
//! let (x, m) = ([0.0, 1.0, 3.0], [1.0, 1.0, 2.0]);
//! let (x, m) = (Column::from(&x[..]), Column::from(&m[..]));
//! let inputs = Inputs::new(kernel.program(), vec![x], vec![x, m], &[])?;
//! assert_eq!(kernel.run(&inputs), [Output::F64(vec![7.0, 3.0, -5.0])]);
//! # Ok::<(), sprat_grape::Error>(())
//! ```

mod array;
mod divided;
mod engine;
mod error;
pub mod matrix;
pub mod nbody;

pub use array::{Array, MAX_NUMBERS, write_outputs};
pub use divided::{Divide, DividedKernel};
pub use engine::{Engine, Kernel};
pub use error::Error;
pub use sprat_formula::{
    Column, Data, DataError, Field, Inputs, MAX_PARTICLES, Output, Precision, Program, READY,
    Ready, SyntaxError, ready,
};
pub use sprat_grapedr::{MatrixError, Shape, Sides};
pub use sprat_ranks::{ALONE, JoinError, Ranks, Stopped};
pub use sprat_vector::{
    Error as VectorError, Options, THREADS_PER_PROCESSOR, Target, Threads, check_threads,
};
