//! Programs at random on the simulated machine against the reference.

use proptest::prelude::*;
use sprat_formula::{
    Arithmetic, Binary, Builder, Column, Compare, Field, Inputs, Node, Output, Program, Reduction, Type, Unary, Value,
    reference,
};
use sprat_grapedr::{Shape, compile, run};

/// What the next value is made by: what, and of which earlier values.
type Draw = (u8, usize, usize, usize);

/// A program of draws. Roots and quotients are of numbers from 1 on, so that errors stay as large as those of what they are made of; exponentials
/// of numbers below 0. Comparisons are of variables as they are given, so that they come out the same.
fn program(of: Type, draws: &[Draw]) -> Program {
    let fields = |names: [&str; 2]| names.map(|name| Field { name: name.to_owned(), of }).to_vec();
    let mut builder = Builder::new(fields(["a", "b"]), fields(["c", "d"]), vec![]);
    let given: Vec<Value> = [Node::I(0), Node::I(1), Node::J(0), Node::J(1)].map(|node| builder.value(node)).to_vec();
    let one = builder.number(1.0, of);
    let mut numbers = given.clone();
    let mut bools = vec![builder.value(Node::Compare(Compare::Lt, given[0], given[2]))];
    for &(what, a, b, c) in draws {
        let (x, y) = (numbers[a % numbers.len()], numbers[b % numbers.len()]);
        let (p, q) = (bools[a % bools.len()], bools[c % bools.len()]);
        let mut unary = |what, x| builder.value(Node::Unary(what, x));
        let bounded = |builder: &mut Builder, x| {
            // From 1 to 2, whatever x is: 1 + 1 / (1 + x x).
            let square = builder.value(Node::Binary(Binary::Mul, x, x));
            let more = builder.value(Node::Binary(Binary::Add, one, square));
            let part = builder.value(Node::Binary(Binary::Div, one, more));
            builder.value(Node::Binary(Binary::Add, one, part))
        };
        let next = match what % 14 {
            0 => builder.value(Node::Binary(Binary::Add, x, y)),
            1 => builder.value(Node::Binary(Binary::Sub, x, y)),
            2 => {
                let (x, y) = (bounded(&mut builder, x), bounded(&mut builder, y));
                builder.value(Node::Binary(Binary::Mul, x, y))
            }
            3 => unary(Unary::Neg, x),
            4 => unary(Unary::Abs, x),
            5 => {
                let x = bounded(&mut builder, x);
                builder.value(Node::Unary(Unary::Sqrt, x))
            }
            6 => {
                let x = bounded(&mut builder, x);
                builder.value(Node::Unary(Unary::Rsqrt { bits: 60 }, x))
            }
            7 => {
                let x = bounded(&mut builder, x);
                let negative = builder.value(Node::Unary(Unary::Neg, x));
                builder.value(Node::Unary(Unary::Exp, negative))
            }
            8 => builder.value(Node::Binary(Binary::Min, given[a % 4], given[b % 4])),
            9 => builder.value(Node::Binary(Binary::Max, given[a % 4], given[b % 4])),
            10 => builder.value(Node::Select(q, x, y)),
            11 => {
                let zero = builder.number(0.0, of);
                builder.value(Node::Select(q, x, zero))
            }
            12 => {
                let compare = [Compare::Lt, Compare::Le, Compare::Eq, Compare::Ne][c % 4];
                bools.push(builder.value(Node::Compare(compare, given[a % 4], given[b % 4])));
                continue;
            }
            _ => {
                let node =
                    [Node::Unary(Unary::Not, p), Node::Binary(Binary::And, p, q), Node::Binary(Binary::Or, p, q)]
                        [b % 3];
                bools.push(builder.value(node));
                continue;
            }
        };
        numbers.push(next);
    }
    let (last, holds) = (*numbers.last().unwrap(), *bools.last().unwrap());
    builder.result("sum", Reduction::Sum, last);
    builder.result("least", Reduction::Min, given[draws.len() % 4]);
    builder.result("most", Reduction::ArgMax, given[(draws.len() + 1) % 4]);
    builder.result("all", Reduction::And, holds);
    builder.result("any", Reduction::Or, holds);
    builder.finish()
}

/// Numbers of few digits: equal ones occur.
fn numbers(count: usize) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec((-8i32..9).prop_map(|number| f64::from(number) / 4.0), count)
}

fn columns(all: &[Vec<f64>]) -> Vec<Column<'_>> {
    all.iter().map(|all| Column::from(&all[..])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn programs_agree_with_the_reference(
        wide: bool,
        draws in prop::collection::vec(any::<Draw>(), 1..40),
        (i, j) in (1usize..150, 0usize..40).prop_flat_map(|(ni, nj)| {
            (prop::collection::vec(numbers(ni), 2), prop::collection::vec(numbers(nj), 2))
        }),
        chips in 1usize..5,
    ) {
        let program = program(if wide { Type::F64 } else { Type::F32 }, &draws);
        let inputs = Inputs::new(&program, columns(&i), columns(&j), &[]).unwrap();
        let judged = reference(&program, &inputs, Arithmetic::Wide);
        let shape = Shape::new(chips, 5e8).unwrap();
        let kernel = compile(&program).unwrap();
        let read_back = sprat_grapedr::assemble(&kernel.listing().to_string());
        prop_assert_eq!(read_back.as_ref(), Ok(kernel.listing()));
        let ours = run(&kernel, &inputs, shape, None).outputs;
        // Sums of sums double their errors with each draw at most, and do so rarely.
        let tolerance = if wide { 1e-12 } else { 1e-4 };
        let close = |a: f64, b: f64, size: f64| a == b || (a - b).abs() <= tolerance * size.max(1.0);
        match (&ours[0], &judged.outputs[0]) {
            (Output::F32(a), Output::F32(b)) => for (at, (&a, &b)) in a.iter().zip(b).enumerate() {
                prop_assert!(close(f64::from(a), f64::from(b), judged.magnitudes[0][at]), "{} and {}", a, b);
            },
            (Output::F64(a), Output::F64(b)) => for (at, (&a, &b)) in a.iter().zip(b).enumerate() {
                prop_assert!(close(a, b, judged.magnitudes[0][at]), "{} and {}", a, b);
            },
            other => prop_assert!(false, "{:?}", other),
        }
        prop_assert_eq!(&ours[1..], &judged.outputs[1..]);
    }
}
