//! Tests various numbers of particles, kernels that are too large for the registers, and threads.

use crate::common;
use common::{bodies, field, gravity, numbers, random, run, targets};
use sprat_formula::{
    Binary, Builder, Column, Inputs, MAX_NODES, Node, Reduction, Type, Unary, Value,
};
use sprat_vector::{Compiled, Error, Options, Target};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn any_number_of_particles_has_results() {
    for of in [Type::F32, Type::F64] {
        let program = gravity(of, 53);
        let (x, m) = bodies(1100);
        let all: Vec<&[f64]> = vec![&x[0], &x[1], &x[2], &m];
        // Apart from rounding, the result of one particle does not depend on the number of others.
        for target in targets() {
            let whole = run(&program, target, &all[..3], &all, &[0.1]);
            for ni in [0, 1, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 128, 129, 513] {
                let some: Vec<&[f64]> = all[..3].iter().map(|x| &x[..ni]).collect();
                let part = run(&program, target, &some, &all, &[0.1]);
                for (part, whole) in part.iter().zip(&whole) {
                    let (part, whole) = (numbers(part), numbers(whole));
                    assert_eq!(part.len(), ni, "{target:?}");
                    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * b.abs().max(1.0);
                    assert!(part.iter().zip(&whole).all(near), "{target:?} {of:?}, {ni} particles");
                }
            }
            for nj in [0, 1, 2, 511, 512, 513, 1024, 1025] {
                let some: Vec<&[f64]> = all.iter().map(|x| &x[..nj]).collect();
                let part = numbers(&run(&program, target, &all[..3], &some, &[0.1])[3]);
                for i in (0..1100).step_by(91) {
                    let term = |j: usize| {
                        m[j] / (0..3)
                            .map(|k| (x[k][j] - x[k][i]).powi(2))
                            .sum::<f64>()
                            .mul_add(1.0, 0.1)
                            .sqrt()
                    };
                    let expected: f64 = (0..nj).map(term).sum();
                    assert!(
                        (part[i] + expected).abs() <= 1e-5 * expected,
                        "{target:?} {of:?}, {nj} of j"
                    );
                }
            }
        }
    }
}

/// With this many particles, the division of j into runs depends on the number of i.
#[test]
fn parts_of_i_have_the_same_bits() {
    let program = gravity(Type::F64, 53);
    let (x, m) = bodies(140_000);
    let columns: Vec<Column> = [&x[0], &x[1], &x[2], &m].map(|x| Column::from(&x[..])).to_vec();
    let i = columns[..3].iter().map(|column| column.part(0..600)).collect();
    let inputs = Inputs::new(&program, i, columns, &[Some(0.01)]).unwrap();
    let best = Target::best();
    let compiled = Compiled::new(&program, Options { target: best, ..Options::default() }).unwrap();
    let whole: Vec<Vec<f64>> = compiled.run(&inputs).iter().map(numbers).collect();
    for part in [0..0, 0..1, 1..300, 300..600, 599..600, 0..600] {
        let found: Vec<Vec<f64>> =
            compiled.run_part(&inputs, part.clone()).iter().map(numbers).collect();
        let expected: Vec<&[f64]> = whole.iter().map(|whole| &whole[part.clone()]).collect();
        assert_eq!(found, expected, "{best:?} {part:?}");
    }
    let alone = compiled.run(&inputs.of_i(1..300));
    assert!(
        numbers(&alone[0]) != whole[0][1..300],
        "a division that depends on the range of i gives other bits"
    );
}

#[test]
fn few_i_and_many_j_do_not_depend_on_threads() {
    let program = gravity(Type::F32, 24);
    let (x, m) = bodies(60_000);
    let columns: Vec<Column> = [&x[0], &x[1], &x[2], &m].map(|x| Column::from(&x[..])).to_vec();
    for target in targets().into_iter().filter(|&target| target != Target::Portable) {
        let results = [1, 2, 5].map(|threads| {
            let options = Options { target, threads: NonZeroUsize::new(threads).unwrap() };
            let i = columns[..3].iter().map(|_| Column::from(&x[0][..19])).collect();
            let inputs = Inputs::new(&program, i, columns.clone(), &[Some(0.01)]).unwrap();
            Compiled::new(&program, options).unwrap().run(&inputs)
        });
        assert_eq!(results[0], results[1], "{target:?}");
        assert_eq!(results[0], results[2], "{target:?}");
        let expected: f64 = (0..60_000)
            .map(|j| {
                m[j] / (0..3)
                    .map(|k| (x[k][j] - x[0][3]).powi(2))
                    .sum::<f64>()
                    .mul_add(1.0, 0.01)
                    .sqrt()
            })
            .sum();
        let got = -numbers(&results[0][3])[3];
        assert!((got - expected).abs() <= 1e-6 * expected, "{target:?}: {got} for {expected}");
    }
}

/// Many values live at the same time: all are computed before the first is used, and they are used
/// in the order of their computation.
#[test]
fn kernels_larger_than_registers_spill() {
    for of in [Type::F32, Type::F64] {
        for count in [3u8, 20, 40, 100, 250] {
            let mut b = Builder::new(vec![field("x", of)], vec![field("y", of)], Vec::new());
            let (i, j) = (b.value(Node::I(0)), b.value(Node::J(0)));
            let all: Vec<Value> = (0..count)
                .map(|k| {
                    let number = b.number(f64::from(k), of);
                    let sum = b.value(Node::Binary(Binary::Add, i, number));
                    b.value(Node::Binary(Binary::Mul, sum, j))
                })
                .collect();
            let larger: Vec<Value> = all
                .iter()
                .map(|&value| {
                    let half = b.number(0.5, of);
                    let half = b.value(Node::Binary(Binary::Mul, i, half));
                    b.value(Node::Compare(sprat_formula::Compare::Lt, half, value))
                })
                .collect();
            let zero = b.number(0.0, of);
            let mut total = zero;
            for (&value, &larger) in all.iter().zip(&larger) {
                let value = b.value(Node::Select(larger, value, zero));
                total = b.value(Node::Binary(Binary::Add, total, value));
            }
            b.result("total", Reduction::Sum, total);
            for (k, &value) in all.iter().enumerate().step_by(5) {
                b.result(&format!("max{k}"), Reduction::Max, value);
            }
            let program = b.finish();
            let (i, j): (Vec<f64>, Vec<f64>) =
                ((0..21).map(f64::from).collect(), (0..9).map(f64::from).collect());
            for target in targets() {
                let results = run(&program, target, &[&i], &[&j], &[]);
                for (at, &x) in i.iter().enumerate() {
                    let value = |k: u8, y: f64| (x + f64::from(k)) * y;
                    let pair = |y: f64| -> f64 {
                        (0..count).map(|k| value(k, y)).filter(|&v| x * 0.5 < v).sum()
                    };
                    let expected: f64 = j.iter().map(|&y| pair(y)).sum();
                    assert_eq!(
                        numbers(&results[0])[at],
                        expected,
                        "{target:?} {of:?}, {count} values"
                    );
                    for (result, k) in results[1..].iter().zip((0..count).step_by(5)) {
                        assert_eq!(
                            numbers(result)[at],
                            value(k, 8.0),
                            "{target:?} {of:?}, {count} values"
                        );
                    }
                }
                let facts = common::compile(&program, target).facts();
                assert!(target == Target::Portable || count < 40 || facts.spills > 0, "{facts:?}");
            }
        }
    }
}

#[test]
fn unsupported_kernels_are_refused_and_runs_can_be_ended() {
    let program = gravity(Type::F64, 53);
    for target in [Target::Avx512, Target::Avx2, Target::Portable] {
        let compiled = Compiled::new(&program, Options { target, ..Options::default() });
        assert_eq!(compiled.is_ok(), target.is_supported());
        assert!(compiled.is_ok() || matches!(compiled, Err(Error::Lacks { .. })));
    }
    let mut random = random(3);
    let x: Vec<f64> = (0..2000).map(|_| random()).collect();
    let columns = |count| vec![Column::from(&x[..]); count];
    let inputs = Inputs::new(&program, columns(3), columns(4), &[Some(1.0)]).unwrap();
    for target in targets() {
        let compiled = common::compile(&program, target);
        let pairs = AtomicU64::new(0);
        let count = |some| {
            pairs.fetch_add(some, Ordering::Relaxed);
            ControlFlow::Continue(())
        };
        assert!(compiled.run_with(&inputs, &count).is_some());
        assert_eq!(pairs.into_inner(), 4_000_000);
        assert!(compiled.run_with(&inputs, &|_| ControlFlow::Break(())).is_none());
    }
}

/// A plain 32-bit sum of this many terms would lose three more digits.
#[test]
fn sums_of_a_million_keep_their_digits() {
    let mut b = Builder::new(vec![field("x", Type::F32)], vec![field("y", Type::F32)], Vec::new());
    let (i, j) = (b.value(Node::I(0)), b.value(Node::J(0)));
    let sum = b.value(Node::Binary(Binary::Add, i, j));
    b.result("sum", Reduction::Sum, sum);
    let program = b.finish();
    let mut random = random(11);
    let j: Vec<f64> = (0..1_000_000).map(|_| (random() * 1e6).floor() / 1e6).collect();
    for target in targets() {
        let got = numbers(&run(&program, target, &[&[0.0, 1.0]], &[&j], &[])[0]);
        for (x, got) in [0.0, 1.0].into_iter().zip(got) {
            let expected: f64 = j.iter().map(|y| x + y).sum();
            assert!((got - expected).abs() <= 1e-6 * expected, "{target:?}: {got} for {expected}");
        }
    }
}

/// The longest program that is allowed, made of the functions with the most code.
#[test]
fn the_longest_program_compiles() {
    for of in [Type::F32, Type::F64] {
        let mut b = Builder::new(vec![field("x", of)], vec![field("y", of)], Vec::new());
        let (i, j) = (b.value(Node::I(0)), b.value(Node::J(0)));
        let mut value = b.value(Node::Binary(Binary::Mul, i, j));
        while b.len() + 3 < MAX_NODES {
            let negative = b.value(Node::Unary(Unary::Neg, value));
            let power = b.value(Node::Unary(Unary::Exp, negative));
            value = b.value(Node::Binary(Binary::Max, power, j));
        }
        b.result("sum", Reduction::Sum, value);
        let program = b.finish();
        let expected = |x: f64, y: f64| {
            let rounds = (MAX_NODES - 6) / 3;
            (0..=rounds).fold(x * y, |value, _| (-value).exp().max(y))
        };
        for target in targets() {
            let got = numbers(&run(&program, target, &[&[0.5, 2.0]], &[&[0.25, 0.75]], &[])[0]);
            for (x, got) in [0.5, 2.0].into_iter().zip(got) {
                let expected = expected(x, 0.25) + expected(x, 0.75);
                assert!(
                    (got - expected).abs() <= 1e-5 * expected,
                    "{target:?} {of:?}: {got} for {expected}"
                );
            }
        }
    }
}

/// A kernel without variables of i has one i, and a kernel without variables of j has one j.
/// Results may depend on one particle alone, or on no particle.
#[test]
fn kernels_without_variables_run() {
    for of in [Type::F32, Type::F64] {
        for (with_i, with_j) in [(false, false), (false, true), (true, false), (true, true)] {
            let fields = |with, name| if with { vec![field(name, of)] } else { Vec::new() };
            let constants =
                vec![sprat_formula::Constant { name: "c".to_owned(), of, default: Some(3.0) }];
            let mut b = Builder::new(fields(with_i, "x"), fields(with_j, "y"), constants);
            let c = b.value(Node::Constant(0));
            let square = b.value(Node::Binary(Binary::Mul, c, c));
            b.result("run", Reduction::Sum, square);
            for (with, node) in [(with_i, Node::I(0)), (with_j, Node::J(0))] {
                if with {
                    let value = b.value(node);
                    let value = b.value(Node::Binary(Binary::Add, value, square));
                    b.result("own", Reduction::Sum, value);
                    let four = b.number(13.0, of);
                    let above = b.value(Node::Compare(sprat_formula::Compare::Lt, four, value));
                    b.result("any", Reduction::Or, above);
                    b.result("all", Reduction::And, above);
                }
            }
            let program = b.finish();
            let (x, y) = ([1.0, 5.0, 2.0], [2.0, 7.0]);
            let i: &[&[f64]] = if with_i { &[&x] } else { &[] };
            let j: &[&[f64]] = if with_j { &[&y] } else { &[] };
            let (ni, nj) = (if with_i { 3 } else { 1 }, if with_j { 2.0 } else { 1.0 });
            for target in targets() {
                let results: Vec<Vec<f64>> =
                    run(&program, target, i, j, &[3.0]).iter().map(numbers).collect();
                let mut expected = vec![vec![9.0 * nj; ni]];
                if with_i {
                    expected.push(x.iter().map(|x| (x + 9.0) * nj).collect());
                    expected.extend([vec![0.0, 1.0, 0.0], vec![0.0, 1.0, 0.0]]);
                }
                if with_j {
                    expected.extend([vec![27.0; ni], vec![1.0; ni], vec![0.0; ni]]);
                }
                assert_eq!(results, expected, "{target:?} {of:?} {with_i} {with_j}");
            }
        }
    }
    let program = Builder::new(vec![field("x", Type::F32)], Vec::new(), Vec::new()).finish();
    for target in targets() {
        assert!(run(&program, target, &[&[1.0]], &[], &[]).is_empty(), "{target:?}");
    }
}
