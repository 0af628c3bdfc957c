//! Sprat for C: the functions of `include/sprat_grape.h`, which documents them and what they
//! require of a caller. [`sprat_grape`] runs the kernels, on copies of the caller's arrays.
//!
//! Only `calls` handles raw addresses: it reads the caller's arrays, and writes results to them.
//! Everything else is safe code.

mod calculator;
mod calls;
mod failure;
