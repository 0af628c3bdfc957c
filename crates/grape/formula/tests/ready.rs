//! Compares the kernels of this crate with hand-written loops.

use sprat_chance::xorshift;
use sprat_formula::{
    Arithmetic, Column, Inputs, Kernel, Output, Precision, READY, ReferenceOutput, ready, reference,
};

/// Returns pseudo-random numbers from -1 to 1, the same in each run.
fn numbers(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        f64::from(u32::try_from(xorshift(&mut state) >> 32).unwrap()) / f64::from(u32::MAX) * 2.0
            - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn columns(seed: u64, columns: usize, count: usize) -> Vec<Vec<f64>> {
    (0..columns).map(|column| numbers(seed * 100 + u64::try_from(column).unwrap(), count)).collect()
}

fn given(columns: &[Vec<f64>]) -> Vec<Column<'_>> {
    columns.iter().map(|column| column.as_slice().into()).collect()
}

fn run(name: &str, i: &[Vec<f64>], j: &[Vec<f64>]) -> ReferenceOutput {
    let kernel = Kernel::parse(ready(name).unwrap().text, Precision::F64)
        .unwrap_or_else(|error| panic!("{error}"));
    let constants = vec![None; kernel.program.constants().len()];
    let inputs = Inputs::new(&kernel.program, given(i), given(j), &constants).unwrap();
    reference(&kernel.program, &inputs, Arithmetic::Wide)
}

/// Compares a kernel's results with expected ones for each i. The tolerance is relative to the sum
/// of the terms' magnitudes, and allows for little more than rounding.
fn check(judgement: &ReferenceOutput, expected: &[Vec<f64>]) {
    assert_eq!(judgement.outputs.len(), expected.len());
    for (result, (output, expected)) in judgement.outputs.iter().zip(expected).enumerate() {
        let Output::F64(output) = output else { panic!("result {result} is not f64: {output:?}") };
        assert_eq!(output.len(), expected.len());
        for (i, (found, expected)) in output.iter().zip(expected).enumerate() {
            let size =
                judgement.magnitudes[result].get(i).copied().unwrap_or(0.0).max(expected.abs());
            let close = (found - expected).abs() <= 1e-13 * size;
            assert!(close, "result {result} of {i}: {found}, by hand {expected}");
        }
    }
}

/// Returns for each i the sums of some terms over all j.
fn sums<const N: usize>(
    ni: usize,
    nj: usize,
    pair: impl Fn(usize, usize) -> [f64; N],
) -> Vec<Vec<f64>> {
    let sum = |result: usize, i: usize| (0..nj).map(|j| pair(i, j)[result]).sum();
    (0..N).map(|result| (0..ni).map(|i| sum(result, i)).collect()).collect()
}

#[test]
fn kernels_parse_without_unused_names_and_name_their_source() {
    for kernel in READY {
        for precision in [Precision::F32, Precision::F64] {
            let read = Kernel::parse(kernel.text, precision)
                .unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
            assert_eq!(read.unused, [], "{}", kernel.name);
            let again = Kernel::parse(&read.program.to_string(), Precision::F32).unwrap();
            assert_eq!(again.program, read.program, "{}", kernel.name);
        }
        assert!(
            kernel.text.starts_with("# ")
                && (kernel.text.contains("(19") || kernel.text.contains("(20"))
        );
    }
    assert_eq!(ready("gravity").unwrap().name, "gravity");
    assert_eq!(ready("levity"), None);
}

#[test]
fn gravity() {
    let (i, j) = (columns(1, 3, 7), columns(2, 4, 33));
    let pair = |a: usize, b: usize| {
        let d = [j[0][b] - i[0][a], j[1][b] - i[1][a], j[2][b] - i[2][a]];
        let r = (d[0].powi(2) + d[1].powi(2) + d[2].powi(2) + 1e-4).sqrt();
        let m = j[3][b];
        [m * d[0] / r.powi(3), m * d[1] / r.powi(3), m * d[2] / r.powi(3), -m / r]
    };
    check(&run("gravity", &i, &j), &sums(7, 33, pair));
}

#[test]
fn gravity_with_jerk() {
    let (i, j) = (columns(3, 6, 5), columns(4, 7, 21));
    let pair = |a: usize, b: usize| {
        let d: Vec<f64> = (0..3).map(|k| j[k][b] - i[k][a]).collect();
        let v: Vec<f64> = (3..6).map(|k| j[k][b] - i[k][a]).collect();
        let r = (d.iter().map(|d| d * d).sum::<f64>() + 1e-4).sqrt();
        let rv: f64 = d.iter().zip(&v).map(|(d, v)| d * v).sum();
        let m = j[6][b];
        let a = |k: usize| m * d[k] / r.powi(3);
        let jerk = |k: usize| m * v[k] / r.powi(3) - 3.0 * m * rv * d[k] / r.powi(5);
        [a(0), a(1), a(2), jerk(0), jerk(1), jerk(2), -m / r]
    };
    check(&run("gravity-jerk", &i, &j), &sums(5, 21, pair));
}

#[test]
fn lennard_jones_without_itself_and_beyond_the_cutoff() {
    let mut all = columns(5, 3, 40);
    all.iter_mut().flatten().for_each(|x| *x *= 4.0);
    let mut counted = 0;
    let pair = |a: usize, b: usize| {
        let d: Vec<f64> = (0..3).map(|k| all[k][a] - all[k][b]).collect();
        let r2: f64 = d.iter().map(|d| d * d).sum();
        if a == b || r2 >= 9.0 {
            return [0.0; 4];
        }
        let (s6, s12) = (r2.powi(-3), r2.powi(-6));
        let f = 24.0 * (2.0 * s12 - s6) / r2;
        [f * d[0], f * d[1], f * d[2], 4.0 * (s12 - s6)]
    };
    for a in 0..40 {
        counted += (0..40).filter(|&b| pair(a, b)[3] != 0.0).count();
    }
    assert!(counted > 40 && counted < 40 * 39, "both kinds of pairs are there: {counted}");
    check(&run("lennard-jones", &all, &all), &sums(40, 40, pair));
}

#[test]
fn gaussian() {
    let (i, j) = (columns(6, 3, 9), columns(7, 4, 30));
    let pair = |a: usize, b: usize| {
        let r2: f64 = (0..3).map(|k| (j[k][b] - i[k][a]).powi(2)).sum();
        [j[3][b] * (-0.5 * r2).exp()]
    };
    check(&run("gaussian", &i, &j), &sums(9, 30, pair));
}

#[test]
fn nearest_is_another_particle_than_itself() {
    let mut all = columns(8, 3, 25);
    all.iter_mut().for_each(|column| column[7] = column[3]); // two at the same position
    all.push((0..25).map(f64::from).collect());
    let judgement = run("nearest", &all, &all);
    let by_hand = |a: usize| {
        let r2 = |b: usize| (0..3).map(|k| (all[k][b] - all[k][a]).powi(2)).sum::<f64>();
        let others = (0..25).filter(|&b| b != a);
        others.map(|b| (r2(b), b)).min_by(|x, y| x.0.total_cmp(&y.0)).unwrap()
    };
    let expected: Vec<(f64, usize)> = (0..25).map(by_hand).collect();
    assert_eq!((expected[3], expected[7]), ((0.0, 7), (0.0, 3)));
    let places = expected.iter().map(|(_, b)| i64::try_from(*b).unwrap()).collect();
    assert_eq!(
        judgement.outputs,
        [Output::F64(expected.iter().map(|(r2, _)| *r2).collect()), Output::Index(places)]
    );
    // A single particle has no neighbour.
    let alone: Vec<Vec<f64>> = all.iter().map(|column| column[..1].to_vec()).collect();
    assert_eq!(
        run("nearest", &alone, &alone).outputs,
        [Output::F64(vec![f64::INFINITY]), Output::Index(vec![-1])]
    );
}

#[test]
fn sph_density() {
    let (mut i, j) = (columns(9, 4, 12), columns(10, 4, 50));
    i[3].iter_mut().for_each(|h| *h = 0.3 + 0.2 * h.abs());
    let pair = |a: usize, b: usize| {
        let h = i[3][a];
        let q = (0..3).map(|k| (j[k][b] - i[k][a]).powi(2)).sum::<f64>().sqrt() / h;
        let w = if q < 1.0 {
            1.0 - 1.5 * q * q + 0.75 * q * q * q
        } else if q < 2.0 {
            0.25 * (2.0 - q).powi(3)
        } else {
            0.0
        };
        [j[3][b] * w / (std::f64::consts::PI * h.powi(3)), if q < 2.0 { 1.0 } else { 0.0 }]
    };
    check(&run("sph-density", &i, &j), &sums(12, 50, pair));
}
