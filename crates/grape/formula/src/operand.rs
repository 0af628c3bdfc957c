//! Expressions during type checking.

use crate::program::Value;
use crate::span::Span;

/// The value of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operand {
    /// A literal, or a number computed from literals. It takes the type of the other operand.
    Literal(f64),
    /// One of two literals, chosen by a bool.
    Choice(Value, f64, f64),
    /// A value of the program.
    Value(Value),
}

/// An expression with its span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) what: Operand,
    pub(crate) span: Span,
}

impl Term {
    pub(crate) fn literal(number: f64, span: Span) -> Self {
        Self { what: Operand::Literal(number), span }
    }
}
