//! Compares gravity on every target with plain sums in `f64`.

#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers are rounded to the type of a kernel's variables"
)]

use crate::common;
use common::{bodies, gravity, numbers, targets};
use sprat_formula::{Column, Inputs, Type};
use sprat_vector::{Compiled, Options};
use std::num::NonZeroUsize;

const SOFTENING: f64 = 1e-4;

fn expected(x: &[Vec<f64>; 3], m: &[f64], i: usize) -> [f64; 4] {
    let mut sum = [0.0; 4];
    for j in 0..m.len() {
        let d = [0, 1, 2].map(|k| x[k][j] - x[k][i]);
        let r2 = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + SOFTENING;
        let inverse = 1.0 / r2.sqrt();
        (0..3).for_each(|k| sum[k] += m[j] * inverse / r2 * d[k]);
        sum[3] += m[j] * inverse;
    }
    sum
}

#[test]
fn gravity_is_right_to_the_stated_bounds() {
    let (x, m) = bodies(4096);
    for (of, bits, bound) in [(Type::F32, 24, 1e-5), (Type::F64, 53, 1e-14)] {
        let program = gravity(of, bits);
        // The kernel and the comparison use the same numbers, rounded to the kernel's type.
        let round = |all: &[f64]| -> Vec<f64> {
            if of == Type::F32 {
                all.iter().map(|&x| f64::from(x as f32)).collect()
            } else {
                all.to_vec()
            }
        };
        let (x, m) = ([round(&x[0]), round(&x[1]), round(&x[2])], round(&m));
        for target in targets() {
            let options = Options { target, threads: NonZeroUsize::new(2).unwrap() };
            let compiled = Compiled::new(&program, options).unwrap();
            let i: Vec<Column> = x.iter().map(|x| Column::from(&x[..])).collect();
            let j = i.iter().copied().chain([Column::from(&m[..])]).collect();
            let inputs = Inputs::new(&program, i, j, &[Some(SOFTENING)]).unwrap();
            let results: Vec<Vec<f64>> = compiled.run(&inputs).iter().map(numbers).collect();
            for at in (0..4096).step_by(17) {
                let expected = expected(&x, &m, at);
                let got = [0, 1, 2, 3].map(|k| results[k][at]);
                let size = (0..3).map(|k| expected[k].powi(2)).sum::<f64>().sqrt();
                let error = (0..3).map(|k| (got[k] - expected[k]).powi(2)).sum::<f64>().sqrt();
                assert!(
                    error <= bound * size,
                    "{target:?} {of:?} {at}: {got:?} for {expected:?}: {}",
                    error / size
                );
                let error = (got[3] + expected[3]).abs() / expected[3];
                assert!(error <= bound, "{target:?} {of:?} {at}: potential off by {error}");
            }
        }
    }
}
