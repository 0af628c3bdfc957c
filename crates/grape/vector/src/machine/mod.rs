//! Machine code for the body of a loop.

mod assembler;
mod codes;
mod emit;

pub(crate) use emit::{Emitted, emit, fits, pool_bytes};
