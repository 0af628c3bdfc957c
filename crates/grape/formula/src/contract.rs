//! Fuses a product with the sum that uses it, so that the two are rounded once.

use crate::build::Builder;
use crate::program::{Binary, Node, Program, Unary, Value};

impl Program {
    /// Returns the program with products and sums fused: a product that only one sum or difference
    /// uses becomes one operation with it ([`Node::Fma`]), rounded once. If both operands are such
    /// products, the right one is fused. A product that is a result's contribution is kept, because
    /// an engine can fuse it with the result's sum. `a * b - c` is fused only if the negation of
    /// `c` is computed less often than the difference itself.
    #[must_use]
    pub fn contracted(&self) -> Self {
        let mut uses = vec![0_u32; self.nodes.len()];
        let operands = self.nodes.iter().flat_map(|(node, _)| node.operands());
        let contributions = self.results.iter().map(|result| result.contribution);
        operands.chain(contributions).for_each(|value| uses[value.index()] += 1);
        let scopes = self.scopes();
        let product = |value: Value| match self.node(value) {
            Node::Binary(Binary::Mul, a, b) if uses[value.index()] == 1 => Some((value, a, b)),
            _ => None,
        };
        // For each sum: its product, the other operand, and the signs.
        let fused: Vec<Option<Fused>> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(index, &(node, _))| {
                let fused = |(product, a, b), other, negated, negated_sum| Fused {
                    product,
                    a,
                    b,
                    other,
                    negated,
                    negated_sum,
                };
                match node {
                    Node::Binary(Binary::Add, a, b) => match (product(b), product(a)) {
                        (Some(found), _) => Some(fused(found, a, false, false)),
                        (None, Some(found)) => Some(fused(found, b, false, false)),
                        (None, None) => None,
                    },
                    Node::Binary(Binary::Sub, a, b) => match (product(b), product(a)) {
                        (Some(found), _) => Some(fused(found, a, true, false)),
                        (None, Some(found)) if scopes[b.index()] != scopes[index] => {
                            Some(fused(found, b, false, true))
                        }
                        _ => None,
                    },
                    _ => None,
                }
            })
            .collect();
        let mut gone = vec![false; self.nodes.len()];
        fused.iter().flatten().for_each(|fused| gone[fused.product.index()] = true);
        let mut builder = Builder::new(self.i.clone(), self.j.clone(), self.constants.clone());
        builder.flops(self.flops);
        let mut places = vec![Value(0); self.nodes.len()];
        for (index, &(node, of)) in self.nodes.iter().enumerate() {
            let at = |value: Value| places[value.index()];
            places[index] = match (node, fused[index]) {
                _ if gone[index] => continue,
                (_, Some(Fused { a, b, other, negated, negated_sum, .. })) => {
                    let mut c = at(other);
                    if negated_sum {
                        c = builder.value(Node::Unary(Unary::Neg, c));
                    }
                    builder.value(Node::Fma { negated, a: at(a), b: at(b), c })
                }
                (Node::Number(bits), None) => builder.number(f64::from_bits(bits), of),
                (_, None) => builder.value(node.map(at)),
            };
            debug_assert_eq!(builder.type_of(places[index]), of, "types stay");
        }
        for result in &self.results {
            builder.result(&result.name, result.reduction, places[result.contribution.index()]);
        }
        builder.finish()
    }
}

/// A sum and the product that is fused with it.
#[derive(Clone, Copy)]
struct Fused {
    product: Value,
    a: Value,
    b: Value,
    other: Value,
    negated: bool,
    negated_sum: bool,
}
