//! Inverse roots that are used only in sums are first computed without special cases. These tests
//! check that the results are nevertheless right for all numbers.

#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers are rounded to the type of a kernel's variables"
)]

use crate::common;
use common::{compile, field, numbers, targets};
use sprat_formula::{Binary, Builder, Column, Inputs, Node, Program, Reduction, Type, Unary};

/// Arguments of roots for which errors are likely, and some ordinary ones.
const ARGUMENTS: [f64; 16] = [
    0.0,
    -0.0,
    1.0,
    0.5,
    3.75,
    -1.0,
    1e-45,
    1e-40,
    5e-324,
    1e-310,
    1.2e-38,
    3e38,
    1.7e308,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// Weights: the third and the last are near the greatest numbers of 32 and 64 bits.
const WEIGHTS: [f64; 7] = [1.0, -0.5, 3e38, 0.0, 1e-30, f64::INFINITY, 1.7e308];

/// Sums of m r, -r and m r r^2, where r is the inverse root of a.
fn kernel(of: Type, bits: u8) -> Program {
    let mut b =
        Builder::new(vec![field("a", of)], vec![field("one", of), field("m", of)], Vec::new());
    let (a, one, m) = (b.value(Node::I(0)), b.value(Node::J(0)), b.value(Node::J(1)));
    let x = b.value(Node::Binary(Binary::Mul, a, one));
    let root = b.value(Node::Unary(Unary::Rsqrt { bits }, x));
    let weighed = b.value(Node::Binary(Binary::Mul, m, root));
    let square = b.value(Node::Binary(Binary::Mul, root, root));
    let cube = b.value(Node::Binary(Binary::Mul, weighed, square));
    let minus = b.value(Node::Unary(Unary::Neg, root));
    b.result("weighed", Reduction::Sum, weighed);
    b.result("minus", Reduction::Sum, minus);
    b.result("cube", Reduction::Sum, cube);
    b.finish()
}

fn round(of: Type, x: f64) -> f64 {
    if of == Type::F32 { f64::from(x as f32) } else { x }
}

fn check(of: Type, bits: u8, a: &[f64]) {
    let program = kernel(of, bits);
    let (epsilon, least) = if of == Type::F32 {
        (f64::from(f32::EPSILON), 1e-45)
    } else {
        (f64::EPSILON, f64::from_bits(1))
    };
    let unit = epsilon.max(2f64.powi(-i32::from(bits)));
    for target in targets() {
        let compiled = compile(&program, target);
        for m in WEIGHTS.map(|m| round(of, m)) {
            let columns = [[1.0], [m]];
            let j = columns.iter().map(|x| Column::from(&x[..])).collect();
            let inputs = Inputs::new(&program, vec![Column::from(a)], j, &[]).unwrap();
            let results: Vec<Vec<f64>> = compiled.run(&inputs).iter().map(numbers).collect();
            for (at, &a) in a.iter().enumerate() {
                let root = round(of, 1.0 / a.sqrt());
                let weighed = round(of, m * root);
                let expected = [weighed, -root, round(of, weighed * round(of, root * root))];
                for (result, expected) in results.iter().zip(expected) {
                    let got = result[at];
                    let near = (got - expected).abs() <= 8.0 * (unit * expected.abs()).max(least);
                    let same = got == expected || (got.is_nan() && expected.is_nan());
                    assert!(
                        same || near,
                        "{target:?} {of:?} {bits} bits of {a} by {m}: {got} for {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn roots_in_sums_are_right_for_all_numbers() {
    for (of, all_bits) in [(Type::F32, &[12, 14, 20, 24][..]), (Type::F64, &[14, 24, 40, 53])] {
        let all = ARGUMENTS.map(|a| round(of, a));
        for &bits in all_bits {
            // Each argument is also tested alone: a special argument makes the careful loop compute
            // the whole tile.
            all.iter().for_each(|&a| check(of, bits, &[a]));
            check(of, bits, &all);
        }
    }
}

/// The product has many factors. The constant factors that are left out of them would together
/// underflow, while the power itself does not.
#[test]
fn high_powers_of_roots_are_right() {
    for (of, squares, a) in [(Type::F32, 8, 2.0625), (Type::F64, 10, 2.625)] {
        let mut b = Builder::new(vec![field("a", of)], vec![field("one", of)], Vec::new());
        let (i, one) = (b.value(Node::I(0)), b.value(Node::J(0)));
        let x = b.value(Node::Binary(Binary::Mul, i, one));
        let mut power = b.value(Node::Unary(Unary::Rsqrt { bits: 53 }, x));
        for _ in 0..squares {
            power = b.value(Node::Binary(Binary::Mul, power, power));
        }
        b.result("power", Reduction::Sum, power);
        let program = b.finish();
        let factors = 2f64.powi(squares);
        let (epsilon, least) =
            if of == Type::F32 { (f64::from(f32::EPSILON), 1e-45) } else { (f64::EPSILON, 0.0) };
        for target in targets() {
            let got = numbers(&common::run(&program, target, &[&[a]], &[&[1.0]], &[])[0])[0];
            let expected = a.powf(-0.5 * factors);
            let bound = 4.0 * factors * (epsilon * expected + least / factors);
            assert!(
                expected > least && (got - expected).abs() <= bound,
                "{target:?} {of:?}: {got} for {expected}"
            );
        }
    }
}
