//! Compares the built-in kernels on every target with the reference implementation.

use crate::common;
use common::{compile, numbers, random, targets};
use sprat_formula::{Arithmetic, Column, Inputs, Kernel, Precision, READY, Reduction, reference};

const PARTICLES: usize = 301;

#[test]
fn ready_kernels_agree() {
    let mut random = random(19);
    // The numbers are exact in 32 bits, so that all types compute with the same numbers.
    let mut number = || (random() * 65536.0).floor() / 65536.0;
    let columns: Vec<Vec<f64>> =
        (0..8).map(|_| (0..PARTICLES).map(|_| number()).collect()).collect();
    for ready in READY {
        for (precision, bound) in [(Precision::F32, 2e-5), (Precision::F64, 1e-13)] {
            let program = Kernel::parse(ready.text, precision).unwrap().program;
            let take =
                |count: usize| columns[..count].iter().map(|all| Column::from(&all[..])).collect();
            let constants: Vec<Option<f64>> = program
                .constants()
                .iter()
                .map(|constant| Some(constant.default.unwrap_or(0.0625)))
                .collect();
            let (i, j) = (take(program.i().len()), take(program.j().len()));
            let inputs = Inputs::new(&program, i, j, &constants).unwrap();
            let judged = reference(&program, &inputs, Arithmetic::Typed);
            for target in targets() {
                let results = compile(&program, target).run(&inputs);
                for (at, result) in program.results().iter().enumerate() {
                    let (got, expected) = (numbers(&results[at]), numbers(&judged.outputs[at]));
                    for i in 0..PARTICLES {
                        let sum = result.reduction == Reduction::Sum;
                        let size = if sum { judged.magnitudes[at][i] } else { expected[i].abs() };
                        let near = (got[i] - expected[i]).abs() <= bound * size;
                        let (name, got, expected) = (&result.name, got[i], expected[i]);
                        assert!(
                            near,
                            "{} {name} of {i} on {target:?} in {precision:?}: {got} for {expected}",
                            ready.name
                        );
                    }
                }
            }
        }
    }
}
