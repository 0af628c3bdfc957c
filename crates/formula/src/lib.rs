//! Kernels of particle interactions as formulas. For each of many *i* (held) a kernel goes over all *j* (broadcast), computes something of the pair,
//! and reduces it to a few results for each i. A kernel is text; [`Program`] is what it means, typed and in single assignment, which
//! back ends compute; the reference computes it slowly in `f64`, and judges them.

mod build;
mod data;
mod program;

pub use build::Builder;
pub use data::{Column, Data, DataError, Inputs, MAX_PARTICLES, Output};
pub use program::{
    Binary, Compare, Constant, Field, MAX_FIELDS, MAX_NODES, Node, Program, Reduction, ResultField, Scope, Type, Unary,
    Value,
};
