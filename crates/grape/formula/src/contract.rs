//! Products and sums that are rounded once.

use crate::build::Builder;
use crate::program::{Binary, Node, Program, Unary, Value};

impl Program {
    /// The same with products that only one sum or difference uses made one operation with it
    /// ([`Node::Fma`]), rounded once. Where both sides are such products, the right one. A
    /// product that is a result's contribution stays one: it can be made one operation with the
    /// result's sum. `a * b - c` becomes one where the sign of `c` can be turned less often than
    /// for each of these.
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
        // For each sum its product, what else it has, and the signs of both.
        let fused: Vec<Option<Fused>> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(index, &(node, _))| {
                let fused = |(product, a, b), other, negated, turned| Fused {
                    product,
                    a,
                    b,
                    other,
                    negated,
                    turned,
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
                (_, Some(Fused { a, b, other, negated, turned, .. })) => {
                    let mut c = at(other);
                    if turned {
                        c = builder.value(Node::Unary(Unary::Neg, c));
                    }
                    builder.value(Node::Fma { negated, a: at(a), b: at(b), c })
                }
                (Node::Number(bits), None) => builder.number(f64::from_bits(bits), of),
                (_, None) => builder.value(node.map(at)),
            };
            debug_assert_eq!(builder.of(places[index]), of, "types stay");
        }
        for result in &self.results {
            builder.result(&result.name, result.reduction, places[result.contribution.index()]);
        }
        builder.finish()
    }
}

/// A sum and the product in it.
#[derive(Clone, Copy)]
struct Fused {
    product: Value,
    a: Value,
    b: Value,
    other: Value,
    negated: bool,
    turned: bool,
}
