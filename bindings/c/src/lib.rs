//! Sprat for C: the functions of `include/sprat_grape.h`, which says what they do and what they ask
//! of a caller. Kernels are run as by [`sprat_grape`], on copies of the caller's arrays.
//!
//! `calls` alone has raw addresses: it makes values of them, and writes results to where the caller
//! has room. All else is safe.

mod calculator;
mod calls;
mod failure;
