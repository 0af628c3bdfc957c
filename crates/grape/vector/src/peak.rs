//! A kernel that reaches the processor's best rate: it has only fused multiply-adds, in chains that
//! do not depend on each other.

use sprat_formula::{Binary, Builder, Field, Node, Program, Reduction, Type};

/// Number of floating-point operations of one pair of [`peak`].
pub const PEAK_FLOPS: u32 = 16;

/// The numbers of variables of i and of j. Each product of a variable of i and one of j is a chain.
const I: u8 = 2;
const J: u8 = 4;

/// Returns the kernel. Measure it as any other kernel: its rate is the one with which the rates of
/// other kernels are compared.
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
