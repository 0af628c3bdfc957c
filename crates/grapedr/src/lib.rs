//! A GRAPE-DR simulated: its words, its blocks of processing elements, an assembler, a compiler of kernels, and dense matrices on it.

mod arithmetic;
mod word;

pub use word::{LONG_BITS, LONG_PRECISION, SHORT_PRECISION, Width, Word};
