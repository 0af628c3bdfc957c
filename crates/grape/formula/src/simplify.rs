//! Simplifies values to forms that are equal for all inputs, including signed zeros, infinities and
//! NaN: `x + 0` is not `x` for -0, and `x - x` is not 0 for infinity.

use crate::program::{Binary, Compare, Node, Type, Unary, Value};
use crate::scalar;

/// A simpler form of a node.
pub(crate) enum Form {
    /// Another value.
    Value(Value),
    /// Another node, which may be simplified further.
    Node(Node),
    /// A number.
    Number(f64),
    /// A value times a number.
    Times(Value, f64),
}

/// The values so far.
pub(crate) struct Known<'p>(pub(crate) &'p [(Node, Type)]);

impl Known<'_> {
    /// Returns a simpler form of a node of this type, if there is one. The form depends on the
    /// node's operands only, never on its users, so a node that has no simpler form now will never
    /// get one.
    pub(crate) fn simpler(&self, node: Node, of: Type) -> Option<Form> {
        match node {
            Node::Unary(what, a) => self.unary(what, a, of),
            Node::Binary(what, a, b) => self.binary(what, a, b, of),
            Node::Compare(..)
            | Node::I(_)
            | Node::J(_)
            | Node::Constant(_)
            | Node::Number(_)
            | Node::Fma { .. } => None,
            Node::Select(_, a, b) if a == b => Some(Form::Value(a)),
            Node::Select(condition, a, b) => match (self.node(condition), self.bool(condition)) {
                (_, Some(holds)) => Some(Form::Value(if holds { a } else { b })),
                (Node::Unary(Unary::Not, other), _) => Some(Form::Node(Node::Select(other, b, a))),
                _ => None,
            },
        }
    }

    fn unary(&self, what: Unary, a: Value, of: Type) -> Option<Form> {
        match (what, self.node(a)) {
            (Unary::Rsqrt { bits }, _) if bits != clamped(bits, of) => {
                Some(Form::Node(Node::Unary(Unary::Rsqrt { bits: clamped(bits, of) }, a)))
            }
            (_, Node::Number(bits)) => {
                Some(Form::Number(scalar::unary(what, f64::from_bits(bits))))
            }
            (Unary::Neg, Node::Unary(Unary::Neg, b)) | (Unary::Not, Node::Unary(Unary::Not, b)) => {
                Some(Form::Value(b))
            }
            (Unary::Not, Node::Compare(Compare::Eq, b, c)) => {
                Some(Form::Node(Node::Compare(Compare::Ne, b, c)))
            }
            (Unary::Not, Node::Compare(Compare::Ne, b, c)) => {
                Some(Form::Node(Node::Compare(Compare::Eq, b, c)))
            }
            (Unary::Abs, Node::Unary(Unary::Neg, b)) => {
                Some(Form::Node(Node::Unary(Unary::Abs, b)))
            }
            (Unary::Abs, Node::Unary(Unary::Abs, _)) => Some(Form::Value(a)),
            (Unary::Convert, Node::Unary(Unary::Convert, b)) if of == Type::F32 => {
                Some(Form::Value(b))
            }
            _ => None,
        }
    }

    fn binary(&self, what: Binary, a: Value, b: Value, of: Type) -> Option<Form> {
        let negated = |value| match self.node(value) {
            Node::Unary(Unary::Neg, other) => Some(other),
            _ => None,
        };
        let (x, y) = (self.number(a), self.number(b));
        if let (Some(x), Some(y)) = (x, y) {
            return Some(Form::Number(scalar::binary(what, x, y)));
        }
        let is = |number: Option<f64>, wanted: f64| {
            number.is_some_and(|n| n.to_bits() == wanted.to_bits())
        };
        let node = |node| Some(Form::Node(node));
        match what {
            Binary::Add => match (negated(a), negated(b)) {
                _ if is(x, -0.0) => Some(Form::Value(b)),
                _ if is(y, -0.0) => Some(Form::Value(a)),
                (_, Some(other)) => node(Node::Binary(Binary::Sub, a, other)),
                (Some(other), None) => node(Node::Binary(Binary::Sub, b, other)),
                _ => None,
            },
            Binary::Sub => match negated(b) {
                _ if is(y, 0.0) => Some(Form::Value(a)),
                _ if is(x, -0.0) => node(Node::Unary(Unary::Neg, b)),
                Some(other) => node(Node::Binary(Binary::Add, a, other)),
                None => None,
            },
            Binary::Mul => match (negated(a), negated(b)) {
                _ if is(x, 1.0) => Some(Form::Value(b)),
                _ if is(y, 1.0) => Some(Form::Value(a)),
                _ if is(x, -1.0) => node(Node::Unary(Unary::Neg, b)),
                _ if is(y, -1.0) => node(Node::Unary(Unary::Neg, a)),
                (Some(c), Some(d)) => node(Node::Binary(Binary::Mul, c, d)),
                _ => None,
            },
            Binary::Div => match (negated(a), negated(b)) {
                _ if is(y, 1.0) => Some(Form::Value(a)),
                _ if is(y, -1.0) => node(Node::Unary(Unary::Neg, a)),
                (Some(c), Some(d)) => node(Node::Binary(Binary::Div, c, d)),
                // The reciprocal of a power of two is exact, so the product equals the quotient.
                _ => y.and_then(|y| reciprocal(y, of)).map(|inverse| Form::Times(a, inverse)),
            },
            Binary::Min | Binary::Max | Binary::And | Binary::Or if a == b => Some(Form::Value(a)),
            Binary::And | Binary::Or => {
                // If one operand is known, the result is either the known operand or the other one.
                let absorbs = what == Binary::Or;
                match (self.bool(a), self.bool(b)) {
                    (Some(holds), _) => Some(Form::Value(if holds == absorbs { a } else { b })),
                    (_, Some(holds)) => Some(Form::Value(if holds == absorbs { b } else { a })),
                    _ => None,
                }
            }
            Binary::Min | Binary::Max => None,
        }
    }

    fn node(&self, value: Value) -> Node {
        self.0[value.index()].0
    }

    fn number(&self, value: Value) -> Option<f64> {
        match self.node(value) {
            Node::Number(bits) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    /// Returns the value of a bool that is known: a comparison of literals.
    fn bool(&self, value: Value) -> Option<bool> {
        match self.node(value) {
            Node::Compare(what, a, b) => {
                Some(scalar::compare(what, self.number(a)?, self.number(b)?))
            }
            _ => None,
        }
    }
}

/// Returns the number of binary digits of a type.
pub(crate) fn digits(of: Type) -> u8 {
    if of == Type::F32 { 24 } else { 53 }
}

/// Returns the reciprocal of a power of two, of either sign. `None` if the number is not a power of
/// two, or the reciprocal is not a normal number of the type.
fn reciprocal(number: f64, of: Type) -> Option<f64> {
    let inverse = 1.0 / number;
    let power = number.is_normal() && number.to_bits().trailing_zeros() >= f64::MANTISSA_DIGITS - 1;
    let normal = inverse.is_normal() && (of != Type::F32 || scalar::narrow(inverse).is_normal());
    (power && normal).then_some(inverse)
}

fn clamped(bits: u8, of: Type) -> u8 {
    bits.clamp(1, digits(of))
}
