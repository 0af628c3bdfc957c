//! Which inverse roots may be computed without care: where it shows in the results that care was
//! needed.

use sprat_formula::{Binary, Node, Program, Reduction, Unary};

/// For each value, whether it ends in nothing but sums, by way of products and signs alone. Where
/// it is infinite or no number, then so are sums; and if it is several times what it should be,
/// then so are they.
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
