//! Tests every operation on every target, with numbers for which errors are likely.

#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers are rounded to the type of a kernel's variables"
)]

use crate::common;
use common::{field, numbers, run, targets};
use sprat_formula::{
    Binary, Builder, Column, Compare, Inputs, Node, Output, Program, Reduction, Type, Unary, Value,
};

const EDGES: [f64; 22] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    3.75,
    1e-45,
    -1e-45,
    1e-40,
    1.2e-38,
    3e38,
    -3e38,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    88.8,
    -87.5,
    -100.0,
    -104.5,
    710.0,
    -745.0,
];

/// Numbers that only 64 bits can represent.
const WIDE: [f64; 6] = [5e-324, 2.3e-308, 1.7e308, -745.2, 709.9, 1e-310];

fn edges(of: Type) -> Vec<f64> {
    if of == Type::F32 {
        EDGES.iter().map(|&x| f64::from(x as f32)).collect()
    } else {
        [&EDGES[..], &WIDE].concat()
    }
}

/// Returns a kernel that reduces a value of each pair: to the sum, the minimum and the maximum, or
/// to "any" and "all" if it is true or false. With one j, each of these equals the value, but the
/// minimum and the maximum may ignore NaN and stay infinite.
fn pairs(of: Type, make: impl Fn(&mut Builder, Value, Value) -> Value) -> Program {
    let mut b = Builder::new(vec![field("a", of)], vec![field("b", of)], Vec::new());
    let (i, j) = (b.value(Node::I(0)), b.value(Node::J(0)));
    let value = make(&mut b, i, j);
    if b.type_of(value) == Type::Bool {
        b.result("any", Reduction::Or, value);
        b.result("all", Reduction::And, value);
    } else {
        b.result("sum", Reduction::Sum, value);
        b.result("min", Reduction::Min, value);
        b.result("max", Reduction::Max, value);
    }
    b.finish()
}

/// Compares a kernel with a function of a pair, with a tolerance in units in the last place.
fn check(
    of: Type,
    ulps: f64,
    make: impl Fn(&mut Builder, Value, Value) -> Value,
    expect: impl Fn(f64, f64) -> f64,
) {
    let program = pairs(of, make);
    let all = edges(of);
    for target in targets() {
        for &b in &all {
            let results = run(&program, target, &[&all], &[&[b]], &[]);
            let results: Vec<Vec<f64>> = results.iter().map(numbers).collect();
            for (at, &a) in all.iter().enumerate() {
                let expected = expect(a, b);
                let (epsilon, least) = if of == Type::F32 {
                    (f64::from(f32::EPSILON), f64::from(f32::from_bits(1)))
                } else {
                    (f64::EPSILON, f64::from_bits(1))
                };
                let near = |got: f64| {
                    got == expected
                        || (got.is_nan() && expected.is_nan())
                        || (got - expected).abs() <= ulps * (epsilon * expected.abs()).max(least)
                };
                assert!(
                    near(results[0][at]),
                    "{target:?} {of:?} of {a} and {b}: {} for {expected}",
                    results[0][at]
                );
                if results.len() == 3 {
                    let (min, max) = (results[1][at], results[2][at]);
                    let passed =
                        expected.is_nan() && min == f64::INFINITY && max == f64::NEG_INFINITY;
                    assert!(
                        passed || near(min) && near(max),
                        "{target:?} {of:?} of {a} and {b}: {min}, {max}"
                    );
                } else {
                    assert_eq!(results[1][at], expected, "{target:?} {of:?} of {a} and {b}");
                }
            }
        }
    }
}

/// Rounds a number to a type.
fn round(of: Type, x: f64) -> f64 {
    if of == Type::F32 { f64::from(x as f32) } else { x }
}

#[test]
fn arithmetic_is_exact() {
    for of in [Type::F32, Type::F64] {
        let binary = |op, expect: fn(f64, f64) -> f64| {
            check(
                of,
                0.0,
                |b, x, y| b.value(Node::Binary(op, x, y)),
                |x, y| round(of, expect(x, y)),
            );
        };
        binary(Binary::Add, |x, y| x + y);
        binary(Binary::Sub, |x, y| x - y);
        binary(Binary::Mul, |x, y| x * y);
        binary(Binary::Div, |x, y| x / y);
        binary(Binary::Min, |x, y| if x < y { x } else { y });
        binary(Binary::Max, |x, y| if x > y { x } else { y });
    }
}

/// Checks a function of a pair's value. Values of i alone are computed elsewhere, so the argument
/// is the minimum of a value of i and a value of j.
fn unary(of: Type, ulps: f64, op: Unary, expect: impl Fn(f64) -> f64) {
    check(
        of,
        ulps,
        |b, x, y| {
            let least = b.value(Node::Binary(Binary::Min, x, y));
            b.value(Node::Unary(op, least))
        },
        |x, y| expect(if x < y { x } else { y }),
    );
}

#[test]
fn functions_are_within_two_units() {
    for of in [Type::F32, Type::F64] {
        unary(of, 0.0, Unary::Neg, |x| -x);
        unary(of, 0.0, Unary::Abs, f64::abs);
        unary(of, 0.0, Unary::Sqrt, |x| round(of, x.sqrt()));
        unary(of, 2.0, Unary::Exp, |x| round(of, x.exp()));
        let all = if of == Type::F32 { 24 } else { 53 };
        unary(of, 2.0, Unary::Rsqrt { bits: all }, |x| round(of, 1.0 / x.sqrt()));
        for bits in [8, 12, 14, 20, 24, 27, 30, 40, 45] {
            let epsilon = if of == Type::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
            let ulps = (2f64.powi(-bits) / epsilon).max(2.0);
            let bits = u8::try_from(bits).unwrap();
            unary(of, ulps, Unary::Rsqrt { bits }, |x| round(of, 1.0 / x.sqrt()));
        }
    }
}

#[test]
fn exponentials_and_roots_are_good_everywhere() {
    for (of, ulps) in [(Type::F32, 2.0), (Type::F64, 2.0)] {
        let span = if of == Type::F32 { 86.0 } else { 700.0 };
        let all: Vec<f64> =
            (0..20_000).map(|k| round(of, (f64::from(k) / 10_000.0 - 1.0) * span)).collect();
        let epsilon = if of == Type::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
        for (op, expect) in [
            (Unary::Exp, (|x: f64| x.exp()) as fn(f64) -> f64),
            (Unary::Rsqrt { bits: 53 }, |x: f64| 1.0 / x.sqrt()),
        ] {
            let program = pairs(of, |b, x, y| {
                let sum = b.value(Node::Binary(Binary::Add, x, y));
                b.value(Node::Unary(op, sum))
            });
            for target in targets() {
                let results = numbers(&run(&program, target, &[&all], &[&[0.0]], &[])[0]);
                for (&x, &got) in
                    all.iter().zip(&results).filter(|(x, _)| op == Unary::Exp || **x > 0.0)
                {
                    let error = (got / expect(x) - 1.0).abs() / epsilon;
                    assert!(
                        error <= ulps,
                        "{target:?} {of:?} {op:?} of {x}: {got}, off by {error} units"
                    );
                }
            }
        }
    }
}

#[test]
fn comparisons_choose() {
    for of in [Type::F32, Type::F64] {
        for (op, expect) in [
            (Compare::Lt, (|x, y| x < y) as fn(f64, f64) -> bool),
            (Compare::Le, |x, y| x <= y),
            (Compare::Eq, |x, y| x == y),
            (Compare::Ne, |x, y| x != y),
        ] {
            let truth = |x, y| f64::from(u8::from(expect(x, y)));
            check(of, 0.0, |b, x, y| b.value(Node::Compare(op, x, y)), truth);
            let not = |b: &mut Builder, x, y| {
                let c = b.value(Node::Compare(op, x, y));
                b.value(Node::Unary(Unary::Not, c))
            };
            check(of, 0.0, not, |x, y| 1.0 - truth(x, y));
            let select = |b: &mut Builder, x, y| {
                let c = b.value(Node::Compare(op, x, y));
                b.value(Node::Select(c, x, y))
            };
            check(of, 0.0, select, |x, y| if expect(x, y) { x } else { y });
        }
        // Bools that depend on one particle alone, in every use of a bool.
        let logic = |b: &mut Builder, x, y| {
            let one = b.number(1.0, of);
            let (p, q) = (
                b.value(Node::Compare(Compare::Lt, x, one)),
                b.value(Node::Compare(Compare::Le, one, y)),
            );
            let r = b.value(Node::Compare(Compare::Lt, x, y));
            let (and, or) =
                (b.value(Node::Binary(Binary::And, p, r)), b.value(Node::Binary(Binary::Or, q, r)));
            b.value(Node::Select(q, and, or))
        };
        let expect = |x: f64, y: f64| if 1.0 <= y { x < 1.0 && x < y } else { 1.0 <= y || x < y };
        check(of, 0.0, logic, |x, y| f64::from(u8::from(expect(x, y))));
    }
}

#[test]
fn kinds_mix() {
    let mut b = Builder::new(vec![field("a", Type::F32)], vec![field("b", Type::F64)], Vec::new());
    let (i, j) = (b.value(Node::I(0)), b.value(Node::J(0)));
    let wide = b.value(Node::Unary(Unary::Convert, i));
    let less = b.value(Node::Compare(Compare::Lt, wide, j));
    let narrow = b.value(Node::Unary(Unary::Convert, j));
    let chosen = b.value(Node::Select(less, i, narrow));
    let product = b.value(Node::Binary(Binary::Mul, i, chosen));
    let above = b.value(Node::Compare(Compare::Lt, chosen, product));
    let sum = b.value(Node::Binary(Binary::Add, wide, j));
    let sum = b.value(Node::Select(above, sum, j));
    let back = b.value(Node::Unary(Unary::Convert, product));
    let all = b.value(Node::Binary(Binary::Mul, back, sum));
    b.result("product", Reduction::Sum, product);
    b.result("all", Reduction::Max, all);
    b.result("above", Reduction::Or, above);
    b.result("which", Reduction::ArgMax, product);
    b.result("where", Reduction::ArgMin, all);
    let program = b.finish();
    let i: Vec<f64> = (0..37).map(|k| f64::from(k) * 0.75 - 9.0).collect();
    let j: Vec<f64> = (0..53).map(|k| f64::from((k * 29) % 53) * 0.5 - 11.0).collect();
    for target in targets() {
        let results = run(&program, target, &[&i], &[&j], &[]);
        let results: Vec<Vec<f64>> = results.iter().map(numbers).collect();
        for (at, &x) in i.iter().enumerate() {
            let pair = |y: f64| {
                let product = x * if x < y { x } else { y };
                let above = (if x < y { x } else { y }) < product;
                (product, product * if above { x + y } else { y }, above)
            };
            let all: Vec<_> = j.iter().map(|&y| pair(y)).collect();
            let sum: f64 = all.iter().map(|pair| pair.0).sum();
            assert!(
                (results[0][at] - sum).abs() <= 1e-5 * sum.abs().max(1.0),
                "{target:?}: {} {sum}",
                results[0][at]
            );
            assert_eq!(
                results[1][at],
                all.iter().map(|pair| pair.1).fold(f64::NEG_INFINITY, f64::max),
                "{target:?}"
            );
            assert_eq!(
                results[2][at],
                f64::from(u8::from(all.iter().any(|pair| pair.2))),
                "{target:?}"
            );
            let first = |value: &dyn Fn(usize) -> f64| {
                (1..j.len()).fold(0, |best, k| if value(k) < value(best) { k } else { best }) as f64
            };
            assert_eq!(results[3][at], first(&|k| -all[k].0), "{target:?}");
            assert_eq!(results[4][at], first(&|k| all[k].1), "{target:?}");
        }
    }
}

#[test]
fn nan_is_never_an_extreme() {
    for of in [Type::F32, Type::F64] {
        let mut b = Builder::new(vec![field("a", of)], vec![field("b", of)], Vec::new());
        let (i, j) = (b.value(Node::I(0)), b.value(Node::J(0)));
        let sum = b.value(Node::Binary(Binary::Add, i, j));
        b.result("min", Reduction::ArgMin, sum);
        b.result("max", Reduction::ArgMax, sum);
        let program = b.finish();
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        for target in targets() {
            let of = |j: &[f64]| run(&program, target, &[&[0.0]], &[j], &[]);
            assert_eq!(
                of(&[nan, inf, nan]),
                [Output::Index(vec![-1]), Output::Index(vec![1])],
                "{target:?}"
            );
            assert_eq!(
                of(&[-inf, nan]),
                [Output::Index(vec![0]), Output::Index(vec![-1])],
                "{target:?}"
            );
            assert_eq!(
                of(&[nan, 2.0, 1.0, 1.0, 2.0]),
                [Output::Index(vec![2]), Output::Index(vec![1])],
                "{target:?}"
            );
            assert_eq!(of(&[]), [Output::Index(vec![-1]), Output::Index(vec![-1])], "{target:?}");
            let mut long = vec![5.0; 3000];
            (long[2100], long[1700], long[2500]) = (1.0, 9.0, 9.0);
            assert_eq!(
                of(&long),
                [Output::Index(vec![2100]), Output::Index(vec![1700])],
                "{target:?}"
            );
        }
    }
}

#[test]
fn columns_have_strides_and_other_types() {
    let program = pairs(Type::F64, |b, x, y| b.value(Node::Binary(Binary::Mul, x, y)));
    let (i, j): (Vec<f32>, Vec<f64>) =
        ((0..90).map(|k| k as f32).collect(), (0..1000).map(f64::from).collect());
    for target in targets() {
        let column = |stride| Column::strided(sprat_formula::Data::F32(&i), stride);
        let inputs = Inputs::new(
            &program,
            vec![column(3)],
            vec![Column::strided(sprat_formula::Data::F64(&j), 7)],
            &[],
        );
        let results = common::compile(&program, target).run(&inputs.unwrap());
        let sum: f64 = (0..1000).step_by(7).map(f64::from).sum();
        assert_eq!(
            results[0],
            Output::F64((0..30).map(|k| f64::from(3 * k) * sum).collect()),
            "{target:?}"
        );
    }
}
