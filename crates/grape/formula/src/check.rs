//! Checks the types of expressions, and turns them into values.

use crate::build::Builder;
use crate::error::{Fault, Problem};
use crate::limits::MAX_NODES;
use crate::names::NameKind;
use crate::operand::{Operand, Term};
use crate::program::{Binary, Compare, Constant, Field, Node, Type, Unary, Value};
use crate::scalar;
use crate::simplify::digits;
use crate::span::Span;

/// The type of variables and results that do not state their own.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Precision {
    /// [`Type::F32`].
    F32,
    /// [`Type::F64`].
    #[default]
    F64,
}

impl From<Precision> for Type {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::F32,
            Precision::F64 => Self::F64,
        }
    }
}

/// The functions of the language.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Function {
    Sqrt,
    Rsqrt,
    Powm32,
    Exp,
    Abs,
    Min,
    Max,
    Select,
    F32,
    F64,
}

impl Function {
    pub(crate) const ALL: &[Self] = &[
        Self::Sqrt,
        Self::Rsqrt,
        Self::Powm32,
        Self::Exp,
        Self::Abs,
        Self::Min,
        Self::Max,
        Self::Select,
        Self::F32,
        Self::F64,
    ];

    /// The largest number of arguments that any function takes.
    pub(crate) const MOST_ARGUMENTS: usize = 3;

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|function| function.name().eq_ignore_ascii_case(name))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqrt => "sqrt",
            Self::Rsqrt => "rsqrt",
            Self::Powm32 => "powm32",
            Self::Exp => "exp",
            Self::Abs => "abs",
            Self::Min => "min",
            Self::Max => "max",
            Self::Select => "select",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// Returns the error for a wrong number of arguments.
    pub(crate) fn arguments(self, found: usize) -> Problem {
        let takes = match self {
            Self::Rsqrt | Self::Powm32 => "a number, and perhaps a relative error",
            Self::Sqrt | Self::Exp | Self::Abs | Self::F32 | Self::F64 => "one number",
            Self::Min | Self::Max => "two numbers",
            Self::Select => "a comparison and two numbers",
        };
        Problem::Arguments { function: self.name(), takes, found }
    }
}

/// Turns expressions into values.
pub(crate) struct Checker {
    builder: Builder,
    precision: Type,
}

type Checked<T> = Result<T, Fault>;

impl Checker {
    pub(crate) fn new(
        i: Vec<Field>,
        j: Vec<Field>,
        constants: Vec<Constant>,
        precision: Precision,
    ) -> Self {
        Self { builder: Builder::new(i, j, constants), precision: precision.into() }
    }

    pub(crate) fn into_builder(self) -> Builder {
        self.builder
    }

    pub(crate) fn precision(&self) -> Type {
        self.precision
    }

    pub(crate) fn type_of(&self, value: Value) -> Type {
        self.builder.type_of(value)
    }

    /// Returns the value of a name.
    pub(crate) fn named(&mut self, kind: NameKind, span: Span) -> Checked<Term> {
        let what = match kind {
            NameKind::I(at) => Operand::Value(self.emit(Node::I(at), span)?),
            NameKind::J(at) => Operand::Value(self.emit(Node::J(at), span)?),
            NameKind::Constant(at) => Operand::Value(self.emit(Node::Constant(at), span)?),
            NameKind::Local(what) => what,
            NameKind::Result(_) => unreachable!("results are no values"),
        };
        Ok(Term { what, span })
    }

    pub(crate) fn logic(&mut self, what: Binary, a: Term, b: Term) -> Checked<Term> {
        let span = a.span.to(b.span);
        let (a, b) = (self.bool(a)?, self.bool(b)?);
        self.value(Node::Binary(what, a, b), span)
    }

    pub(crate) fn not(&mut self, a: Term, start: Span) -> Checked<Term> {
        let span = start.to(a.span);
        let a = self.bool(a)?;
        self.value(Node::Unary(Unary::Not, a), span)
    }

    /// Adds a comparison, with exchanged sides if `swapped`.
    pub(crate) fn compare(
        &mut self,
        what: Compare,
        a: Term,
        b: Term,
        swapped: bool,
    ) -> Checked<Term> {
        let of = self.join(&[a, b])?;
        let span = a.span.to(b.span);
        let (a, b) = (self.settle(a, of)?, self.settle(b, of)?);
        let (a, b) = if swapped { (b, a) } else { (a, b) };
        self.value(Node::Compare(what, a, b), span)
    }

    pub(crate) fn arithmetic(&mut self, what: Binary, a: Term, b: Term) -> Checked<Term> {
        let span = a.span.to(b.span);
        if let (Operand::Literal(a), Operand::Literal(b)) = (a.what, b.what) {
            return Ok(Term::literal(scalar::binary(what, a, b), span));
        }
        let of = self.join(&[a, b])?;
        let (a, b) = (self.settle(a, of)?, self.settle(b, of)?);
        self.value(Node::Binary(what, a, b), span)
    }

    pub(crate) fn negate(&mut self, a: Term, start: Span) -> Checked<Term> {
        self.unary(Unary::Neg, a, start.to(a.span))
    }

    /// Checks that the operand of a unary plus is a number.
    pub(crate) fn plus(&mut self, a: Term) -> Checked<Term> {
        self.join(&[a]).map(|_| a)
    }

    /// Adds a function call.
    pub(crate) fn call(
        &mut self,
        function: Function,
        arguments: &[Term],
        span: Span,
    ) -> Checked<Term> {
        match (function, arguments) {
            (Function::Sqrt, &[a]) => self.unary(Unary::Sqrt, a, span),
            (Function::Exp, &[a]) => self.unary(Unary::Exp, a, span),
            (Function::Abs, &[a]) => self.unary(Unary::Abs, a, span),
            (Function::Rsqrt, &[a]) => self.rsqrt(a, None, span),
            (Function::Rsqrt, &[a, tolerance]) => self.rsqrt(a, Some(tolerance), span),
            (Function::Powm32, &[a]) => self.powm32(a, None, span),
            (Function::Powm32, &[a, tolerance]) => self.powm32(a, Some(tolerance), span),
            (Function::Min, &[a, b]) => {
                self.arithmetic(Binary::Min, a, b).map(|term| Term { span, ..term })
            }
            (Function::Max, &[a, b]) => {
                self.arithmetic(Binary::Max, a, b).map(|term| Term { span, ..term })
            }
            (Function::Select, &[condition, a, b]) => self.select(condition, a, b, span),
            (Function::F32, &[a]) => self.convert(a, Type::F32, span),
            (Function::F64, &[a]) => self.convert(a, Type::F64, span),
            _ => Err(Fault::new(span, function.arguments(arguments.len()))),
        }
    }

    fn unary(&mut self, what: Unary, a: Term, span: Span) -> Checked<Term> {
        if let Operand::Literal(a) = a.what {
            return Ok(Term::literal(scalar::unary(what, a), span));
        }
        let of = self.join(&[a])?;
        let a = self.settle(a, of)?;
        self.value(Node::Unary(what, a), span)
    }

    fn rsqrt(&mut self, a: Term, tolerance: Option<Term>, span: Span) -> Checked<Term> {
        let of = self.join(&[a])?;
        let bits = tolerance.map_or(Ok(digits(of)), bits)?;
        self.unary(Unary::Rsqrt { bits }, a, span)
    }

    /// Adds the power -1.5 of a term, computed by the reciprocal square root.
    fn powm32(&mut self, a: Term, tolerance: Option<Term>, span: Span) -> Checked<Term> {
        let root = self.rsqrt(a, tolerance, span)?;
        let square = self.arithmetic(Binary::Mul, root, root)?;
        self.arithmetic(Binary::Mul, root, square)
    }

    fn select(&mut self, condition: Term, a: Term, b: Term, span: Span) -> Checked<Term> {
        let condition = self.bool(condition)?;
        if let (Operand::Literal(a), Operand::Literal(b)) = (a.what, b.what) {
            return Ok(Term { what: Operand::Choice(condition, a, b), span });
        }
        let of = self.join(&[a, b])?;
        let (a, b) = (self.settle(a, of)?, self.settle(b, of)?);
        self.value(Node::Select(condition, a, b), span)
    }

    fn convert(&mut self, a: Term, to: Type, span: Span) -> Checked<Term> {
        let Operand::Value(value) = a.what else {
            let value = self.settle(a, to)?;
            return Ok(Term { what: Operand::Value(value), span });
        };
        self.join(&[a])?;
        if self.type_of(value) == to {
            return Ok(Term { span, ..a });
        }
        self.value(Node::Unary(Unary::Convert, value), span)
    }

    /// Returns the common type of these terms: the widest type among the values, or the default
    /// precision if no term is a value. A bool is an error.
    pub(crate) fn join(&self, terms: &[Term]) -> Checked<Type> {
        let mut joined = None;
        for term in terms {
            let Operand::Value(value) = term.what else { continue };
            joined = match (self.type_of(value), joined) {
                (Type::Bool, _) => {
                    let problem = Problem::Kind { expected: "a number", found: "a comparison" };
                    return Err(Fault::new(term.span, problem));
                }
                (Type::F32, None) => Some(Type::F32),
                (Type::F32, known) => known,
                (Type::F64, _) => Some(Type::F64),
            };
        }
        Ok(joined.unwrap_or(self.precision))
    }

    /// Converts a term to a value of a type at least as wide as its own.
    pub(crate) fn settle(&mut self, term: Term, of: Type) -> Checked<Value> {
        match term.what {
            Operand::Literal(number) => self.number(number, of, term.span),
            Operand::Choice(condition, a, b) => {
                let (a, b) = (self.number(a, of, term.span)?, self.number(b, of, term.span)?);
                self.emit(Node::Select(condition, a, b), term.span)
            }
            Operand::Value(value) if self.type_of(value) == of => Ok(value),
            Operand::Value(value) => {
                assert!(
                    self.type_of(value) == Type::F32 && of == Type::F64,
                    "only what is narrower is converted unasked"
                );
                self.emit(Node::Unary(Unary::Convert, value), term.span)
            }
        }
    }

    pub(crate) fn bool(&self, term: Term) -> Checked<Value> {
        match term.what {
            Operand::Value(value) if self.type_of(value) == Type::Bool => Ok(value),
            _ => Err(Fault::new(
                term.span,
                Problem::Kind { expected: "a comparison", found: "a number" },
            )),
        }
    }

    fn number(&mut self, number: f64, of: Type, span: Span) -> Checked<Value> {
        if number.is_finite() && scalar::round(number, of).is_infinite() {
            return Err(Fault::new(span, Problem::Beyond { of: "f32" }));
        }
        self.room(span)?;
        Ok(self.builder.number(number, of))
    }

    /// Adds a node as a term.
    fn value(&mut self, node: Node, span: Span) -> Checked<Term> {
        Ok(Term { what: Operand::Value(self.emit(node, span)?), span })
    }

    pub(crate) fn emit(&mut self, node: Node, span: Span) -> Checked<Value> {
        self.room(span)?;
        Ok(self.builder.value(node))
    }

    /// Checks that there is room for two more values, since a node needs at most two.
    fn room(&self, span: Span) -> Checked<()> {
        if self.builder.len() + 2 <= MAX_NODES {
            Ok(())
        } else {
            Err(Fault::new(span, Problem::Values))
        }
    }
}

/// Returns the fewest bits of accuracy whose error is within a tolerance, but at most the digits of
/// `f64`.
fn bits(tolerance: Term) -> Checked<u8> {
    let Operand::Literal(error) = tolerance.what else {
        return Err(Fault::new(tolerance.span, Problem::Tolerance));
    };
    if !(error > 0.0 && error < 1.0) {
        return Err(Fault::new(tolerance.span, Problem::Tolerance));
    }
    let most = digits(Type::F64);
    Ok((1..most).find(|&bits| 2.0_f64.powi(-i32::from(bits)) <= error).unwrap_or(most))
}
