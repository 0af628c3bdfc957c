//! Runs kernels with the processor's vector instructions. A [`sprat_formula::Program`] is compiled
//! to machine code for AVX-512 or AVX2, and then runs on arrays with several threads. On other
//! processors, loops over arrays compute it.
//!
//! The loop holds several vectors of i, with one particle in each lane. It broadcasts one j after
//! the other to all lanes.

#[cfg(all(target_arch = "x86_64", unix))]
mod bare;
mod buffer;
#[cfg(all(target_arch = "x86_64", unix))]
mod code;
mod compiled;
mod error;
mod facts;
#[cfg(all(target_arch = "x86_64", unix))]
mod functions;
#[cfg_attr(not(all(target_arch = "x86_64", unix)), allow(dead_code, reason = "machine code's"))]
mod ir;
mod lanes;
#[cfg(all(target_arch = "x86_64", unix))]
mod loops;
#[cfg(all(target_arch = "x86_64", unix))]
mod lower;
#[cfg(all(target_arch = "x86_64", unix))]
mod machine;
mod pack;
mod peak;
mod portable;
mod run;
mod shape;
#[cfg_attr(not(all(target_arch = "x86_64", unix)), allow(dead_code, reason = "machine code's"))]
mod target;
mod threads;
mod totals;

pub use compiled::{Compiled, Options};
pub use error::Error;
pub use facts::{Facts, MAX_CODE};
pub use peak::{PEAK_FLOPS, peak};
pub use run::{BLOCK, Hook};
pub use target::Target;
pub use threads::{THREADS_PER_PROCESSOR, Threads, check_threads};
