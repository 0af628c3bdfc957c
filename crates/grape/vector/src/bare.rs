//! Finds the inverse square roots that may be computed without special cases: if such a root is
//! wrong, this shows in the results.

use sprat_formula::{Binary, Node, Program, Reduction, Unary};

/// Returns for each value whether it is used only in sums, directly or through products and
/// negations. If such a value is infinite or not a number, the sum also is, which the caller can
/// detect. If the value is a known multiple of the right value, the sum is the same multiple of the
/// right sum.
pub(crate) fn bare(program: &Program) -> Vec<bool> {
    let mut bare = vec![true; program.nodes().len()];
    for result in program.results() {
        bare[result.contribution.index()] &= result.reduction == Reduction::Sum;
    }
    for (index, &(node, _)) in program.nodes().iter().enumerate().rev() {
        let passes = matches!(node, Node::Binary(Binary::Mul, ..) | Node::Unary(Unary::Neg, _));
        if !(passes && bare[index]) {
            node.operands().for_each(|operand| bare[operand.index()] = false);
        }
    }
    bare
}
