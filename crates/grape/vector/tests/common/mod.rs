//! Kernels, bodies and targets that several tests use.

#![allow(dead_code, unreachable_pub, reason = "each test uses some")]

use sprat_chance::xorshift;
use sprat_formula::{
    Binary, Builder, Column, Constant, Field, Inputs, Node, Output, Program, Reduction, Type,
    Unary, Value,
};
use sprat_vector::{Compiled, Options, Target};
use std::num::NonZeroUsize;

/// Returns the targets that this processor supports.
pub fn targets() -> Vec<Target> {
    [Target::Avx512, Target::Avx2, Target::Portable]
        .into_iter()
        .filter(|target| target.is_supported())
        .collect()
}

pub fn field(name: &str, of: Type) -> Field {
    Field { name: name.to_owned(), of }
}

/// Returns a generator of pseudo-random numbers from 0 to 1.
pub fn random(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || (xorshift(&mut state) >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns positions and masses of bodies in a ball.
pub fn bodies(count: usize) -> ([Vec<f64>; 3], Vec<f64>) {
    let mut random = random(7);
    let mut x = [Vec::new(), Vec::new(), Vec::new()];
    while x[0].len() < count {
        let point = [0, 1, 2].map(|_| 2.0 * random() - 1.0);
        if point.iter().map(|x| x * x).sum::<f64>() <= 1.0 {
            (0..3).for_each(|k| x[k].push(point[k]));
        }
    }
    (x, (0..count).map(|_| (0.5 + random()) / count as f64).collect())
}

/// Returns the kernel of softened accelerations and potentials, with an inverse root of `bits` bits
/// and contracted products.
pub fn gravity(of: Type, bits: u8) -> Program {
    let fields = |names: &[&str]| names.iter().map(|name| field(name, of)).collect();
    let constants = vec![Constant { name: "eps2".to_owned(), of, default: None }];
    let mut b =
        Builder::new(fields(&["xi", "yi", "zi"]), fields(&["xj", "yj", "zj", "mj"]), constants);
    let d: Vec<Value> = (0..3)
        .map(|k| {
            let (i, j) = (b.value(Node::I(k)), b.value(Node::J(k)));
            b.value(Node::Binary(Binary::Sub, j, i))
        })
        .collect();
    let mut r2 = b.value(Node::Constant(0));
    for &d in &d {
        r2 = b.value(Node::Fma { negated: false, a: d, b: d, c: r2 });
    }
    let inverse = b.value(Node::Unary(Unary::Rsqrt { bits }, r2));
    let m = b.value(Node::J(3));
    let mr = b.value(Node::Binary(Binary::Mul, m, inverse));
    let square = b.value(Node::Binary(Binary::Mul, inverse, inverse));
    let mr3 = b.value(Node::Binary(Binary::Mul, mr, square));
    for (name, &d) in ["ax", "ay", "az"].iter().zip(&d) {
        let a = b.value(Node::Binary(Binary::Mul, mr3, d));
        b.result(name, Reduction::Sum, a);
    }
    let potential = b.value(Node::Unary(Unary::Neg, mr));
    b.result("potential", Reduction::Sum, potential);
    b.finish()
}

/// Compiles a kernel for two threads.
pub fn compile(program: &Program, target: Target) -> Compiled {
    Compiled::new(program, Options { target, threads: NonZeroUsize::new(2).expect("two") })
        .expect("the target is here")
}

/// Runs a kernel on numbers. Numbers of 32-bit variables are rounded.
pub fn run(
    program: &Program,
    target: Target,
    i: &[&[f64]],
    j: &[&[f64]],
    constants: &[f64],
) -> Vec<Output> {
    fn columns<'a>(all: &[&'a [f64]]) -> Vec<Column<'a>> {
        all.iter().copied().map(Column::from).collect()
    }
    let constants: Vec<Option<f64>> = constants.iter().copied().map(Some).collect();
    let inputs =
        Inputs::new(program, columns(i), columns(j), &constants).expect("columns of the program");
    compile(program, target).run(&inputs)
}

/// Returns an output as numbers.
pub fn numbers(output: &Output) -> Vec<f64> {
    match output {
        Output::F32(all) => all.iter().map(|&x| f64::from(x)).collect(),
        Output::F64(all) => all.clone(),
        Output::Bool(all) => all.iter().map(|&x| f64::from(u8::from(x))).collect(),
        Output::Index(all) => all.iter().map(|&x| x as f64).collect(),
    }
}
