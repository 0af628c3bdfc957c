//! What the processor can do at best: a kernel of nothing but multiplications that add, in chains
//! that do not wait for each other.

use sprat_formula::{Binary, Builder, Field, Node, Program, Reduction, Type};

/// Floating-point operations of a pair of [`peak`].
pub const PEAK_FLOPS: u32 = 16;

/// Variables of i and of j: their products are the chains.
const I: u8 = 2;
const J: u8 = 4;

/// The kernel: measured like any other, its rate is what others' are held against.
#[must_use]
pub fn peak(of: Type) -> Program {
    let fields =
        |kind: &str, count| (0..count).map(|k| Field { name: format!("{kind}{k}"), of }).collect();
    let mut builder = Builder::new(fields("i", I), fields("j", J), Vec::new());
    for (i, j) in (0..I).flat_map(|i| (0..J).map(move |j| (i, j))) {
        let (a, b) = (builder.value(Node::I(i)), builder.value(Node::J(j)));
        let product = builder.value(Node::Binary(Binary::Mul, a, b));
        builder.result(&format!("sum{i}{j}"), Reduction::Sum, product);
    }
    builder.finish()
}
