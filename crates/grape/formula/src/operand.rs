//! What expressions are while they are checked.

use crate::program::Value;
use crate::span::Span;

/// What an expression is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operand {
    /// A number of the text, or what was computed of such: of the type of what it meets.
    Literal(f64),
    /// One of two such numbers, by a bool.
    Choice(Value, f64, f64),
    /// A value.
    Value(Value),
}

/// An expression and where it is.
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
