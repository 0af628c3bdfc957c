//! The language of kernels of particle interactions. For each of many particles *i* (held), a
//! kernel iterates over all particles *j* (broadcast), computes contributions from each pair, and
//! reduces them to a few results for each i. [`Kernel::parse`] reads a kernel's text and gives a
//! [`Program`]: the kernel's meaning, typed and in static single assignment form, which back ends
//! compile. [`reference()`] computes a program slowly in `f64`, as the standard for the back ends'
//! tests.

#[cfg(feature = "arbitrary")]
pub mod arbitrary;
mod build;
mod check;
mod contract;
mod counts;
mod data;
mod error;
mod lex;
mod limits;
mod names;
mod operand;
mod parse;
mod print;
mod program;
mod ready;
mod reference;
mod results;
mod scalar;
mod simplify;
mod span;

pub use build::Builder;
pub use check::Precision;
pub use counts::Counts;
pub use data::{Column, Data, DataError, Inputs, MAX_PARTICLES, Output};
pub use error::{Problem, SyntaxError};
pub use limits::{
    MAX_FIELDS, MAX_FLOPS, MAX_NAME, MAX_NESTING, MAX_NODES, MAX_STATEMENTS, MAX_TEXT,
};
pub use parse::{Kernel, UnusedName};
pub use program::{
    Binary, Compare, Constant, Field, Node, Program, Reduction, ResultField, Scope, Type, Unary,
    Value,
};
pub use ready::{READY, Ready, ready};
pub use reference::{Arithmetic, ReferenceOutput, reference};
