//! Counts the operations of a program.

use crate::program::{Binary, Node, Program, Scope, Unary};

/// Numbers of operations of each kind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Sums and differences.
    pub adds: usize,
    /// Products.
    pub muls: usize,
    /// Fused products and sums.
    pub fmas: usize,
    /// Quotients.
    pub divisions: usize,
    /// Square roots.
    pub roots: usize,
    /// Reciprocal square roots.
    pub rsqrts: usize,
    /// Exponentials.
    pub exps: usize,
    /// Comparisons, `min`, `max`.
    pub comparisons: usize,
    /// Choices.
    pub selects: usize,
    /// Signs, conversions and logic.
    pub others: usize,
    /// Reductions of contributions into results.
    pub reductions: usize,
}

impl Counts {
    /// Returns the number of all operations.
    #[must_use]
    pub fn total(&self) -> usize {
        let Self {
            adds,
            muls,
            fmas,
            divisions,
            roots,
            rsqrts,
            exps,
            comparisons,
            selects,
            others,
            reductions,
        } = self;
        adds + muls
            + fmas
            + divisions
            + roots
            + rsqrts
            + exps
            + comparisons
            + selects
            + others
            + reductions
    }
}

impl Program {
    /// Counts the operations of a scope. [`Scope::Pair`] includes the reductions: each pair does
    /// them, even if the contribution has another scope.
    #[must_use]
    pub fn counts(&self, scope: Scope) -> Counts {
        let reductions = if scope == Scope::Pair { self.results().len() } else { 0 };
        let mut counts = Counts { reductions, ..Counts::default() };
        for ((node, _), own) in self.nodes().iter().zip(self.scopes()) {
            if own != scope {
                continue;
            }
            let count = match node {
                Node::I(_) | Node::J(_) | Node::Constant(_) | Node::Number(_) => continue,
                Node::Unary(Unary::Sqrt, _) => &mut counts.roots,
                Node::Unary(Unary::Rsqrt { .. }, _) => &mut counts.rsqrts,
                Node::Unary(Unary::Exp, _) => &mut counts.exps,
                Node::Unary(Unary::Neg | Unary::Abs | Unary::Not | Unary::Convert, _) => {
                    &mut counts.others
                }
                Node::Binary(Binary::Add | Binary::Sub, ..) => &mut counts.adds,
                Node::Binary(Binary::Mul, ..) => &mut counts.muls,
                Node::Binary(Binary::Div, ..) => &mut counts.divisions,
                Node::Binary(Binary::And | Binary::Or, ..) => &mut counts.others,
                Node::Compare(..) | Node::Binary(Binary::Min | Binary::Max, ..) => {
                    &mut counts.comparisons
                }
                Node::Select(..) => &mut counts.selects,
                Node::Fma { .. } => &mut counts.fmas,
            };
            *count += 1;
        }
        counts
    }
}
