//! The results of a kernel. A result's statements determine how it is reduced.

use crate::build::Builder;
use crate::check::Checker;
use crate::error::{Fault, Problem, place};
use crate::operand::{Operand, Term};
use crate::program::{Binary, Compare, Node, Reduction, Type, Unary, Value};
use crate::span::Span;

/// A reduction operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReduceOperator {
    pub(crate) text: &'static str,
    pub(crate) reduction: Reduction,
    pub(crate) negated: bool,
}

impl ReduceOperator {
    pub(crate) fn plain(text: &'static str, reduction: Reduction) -> Self {
        Self { text, reduction, negated: false }
    }
}

/// Results with their declarations and contributions.
#[derive(Debug, Default)]
pub(crate) struct Results(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    name: String,
    span: Span,
    of: Option<Type>,
    so_far: Option<SoFar>,
}

/// What the statements so far say of a result: the first operator and its position, and the
/// contributions of all statements combined.
#[derive(Clone, Copy, Debug)]
struct SoFar {
    operator: ReduceOperator,
    at: Span,
    contribution: Value,
}

impl Results {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn declare(&mut self, name: String, span: Span, of: Option<Type>) {
        self.0.push(Entry { name, span, of, so_far: None });
    }

    /// Adds a statement's contribution to a result.
    pub(crate) fn contribute(
        &mut self,
        checker: &mut Checker,
        result: usize,
        operator: ReduceOperator,
        term: Term,
        position: Span,
        text: &str,
    ) -> Result<(), Fault> {
        let entry = &mut self.0[result];
        let name = || entry.name.clone();
        if let Some(so_far) = entry.so_far {
            let (first, second) = (so_far.operator.text, operator.text);
            let line = || place(text, so_far.at.start).0;
            if so_far.operator.reduction != operator.reduction {
                return Err(Fault::new(
                    position,
                    Problem::Mixed { name: name(), first, second, line: line() },
                ));
            }
            if matches!(operator.reduction, Reduction::ArgMin | Reduction::ArgMax) {
                let problem = Problem::Again { name: name(), reduction: second, line: line() };
                return Err(Fault::new(position, problem));
            }
        }
        let gives = match operator.reduction {
            Reduction::And | Reduction::Or => Some("true or false"),
            Reduction::ArgMin | Reduction::ArgMax => Some("a place among j"),
            Reduction::Sum | Reduction::Min | Reduction::Max => None,
        };
        if let (Some(gives), Some(of)) = (gives, entry.of) {
            let of = if of == Type::F32 { "f32" } else { "f64" };
            return Err(Fault::new(
                position,
                Problem::Typeless { name: name(), of, reduction: operator.text, gives },
            ));
        }
        let mut value = match operator.reduction {
            Reduction::And | Reduction::Or => checker.bool(term)?,
            Reduction::ArgMin | Reduction::ArgMax => {
                let of = checker.join(&[term])?;
                checker.settle(term, of)?
            }
            Reduction::Sum | Reduction::Min | Reduction::Max => {
                let of = entry.of.unwrap_or(checker.precision());
                let own = checker.join(&[term])?;
                if of == Type::F32 && own == Type::F64 && matches!(term.what, Operand::Value(_)) {
                    return Err(Fault::new(term.span, Problem::Narrow { name: name() }));
                }
                checker.settle(term, of)?
            }
        };
        if operator.negated {
            value = checker.emit(Node::Unary(Unary::Neg, value), term.span)?;
        }
        let so_far = match entry.so_far {
            None => SoFar { operator, at: position, contribution: value },
            Some(so_far) => {
                let contribution =
                    both(checker, operator.reduction, so_far.contribution, value, term.span)?;
                SoFar { contribution, ..so_far }
            }
        };
        entry.so_far = Some(so_far);
        Ok(())
    }

    /// Adds the results to the program.
    pub(crate) fn finish(self, checker: Checker) -> Result<Builder, Fault> {
        let mut builder = checker.into_builder();
        for Entry { name, span, so_far, .. } in self.0 {
            let Some(so_far) = so_far else {
                return Err(Fault::new(span, Problem::Never { name }));
            };
            builder.result(&name, so_far.operator.reduction, so_far.contribution);
        }
        Ok(builder)
    }
}

/// Combines two contributions into one.
fn both(
    checker: &mut Checker,
    reduction: Reduction,
    a: Value,
    b: Value,
    span: Span,
) -> Result<Value, Fault> {
    let what = match reduction {
        Reduction::Sum => Binary::Add,
        Reduction::And => Binary::And,
        Reduction::Or => Binary::Or,
        Reduction::Min => Binary::Min,
        Reduction::Max => Binary::Max,
        Reduction::ArgMin | Reduction::ArgMax => unreachable!("there is one of these"),
    };
    let both = checker.emit(Node::Binary(what, a, b), span)?;
    if !matches!(reduction, Reduction::Min | Reduction::Max) {
        return Ok(both);
    }
    // If the second contribution is NaN, it is skipped.
    let number = checker.emit(Node::Compare(Compare::Eq, b, b), span)?;
    checker.emit(Node::Select(number, both, a), span)
}
