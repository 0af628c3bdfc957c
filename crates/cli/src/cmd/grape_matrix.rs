//! `grape dgemm` and `lu`: dense matrices on a simulated GRAPE-DR, held against a plain computation.

use super::grape_sim::{json_of_timing, shape, table};
use super::{CORRUPT, print_json, print_line};
use crate::args::GrapeMatrixArgs;
use anyhow::Result;
use serde_json::json;
use sprat_chance::Chance;
use sprat_grapedr::{Sides, Timing, gflops};
use sprat_plan::quantity::digits;
use std::process::ExitCode;

/// What a number may be off, relative to the sum of the sizes of what it is made of.
const ALLOWED: f64 = 1e-13;

pub(crate) fn dgemm(args: &GrapeMatrixArgs) -> Result<ExitCode> {
    let (n, mut chance) = (args.size, Chance::new(args.seed));
    let (a, b) = (numbers(&mut chance, n * n), numbers(&mut chance, n * n));
    let mut c = vec![0.0; n * n];
    let timing = sprat_grapedr::dgemm(shape(args.shape)?, Sides { m: n, n, k: n }, &a, &b, &mut c)?;
    let error = (0..n).map(|row| worst(&a[row * n..(row + 1) * n], &b, &c[row * n..(row + 1) * n]));
    let error = error.fold(0.0, worse);
    tell(args, "C = A B", &timing, 2 * cube(n), error)
}

pub(crate) fn lu(args: &GrapeMatrixArgs) -> Result<ExitCode> {
    let (n, mut chance) = (args.size, Chance::new(args.seed));
    let a = numbers(&mut chance, n * n);
    let found = sprat_grapedr::lu(shape(args.shape)?, n, &a)?;
    // L times U must be the matrix, in the order of the pivots.
    let mut upper = found.factors.clone();
    (0..n).for_each(|row| upper[row * n..row * n + row].fill(0.0));
    let error = (0..n).map(|row| {
        let mut lower = found.factors[row * n..(row + 1) * n].to_vec();
        lower[row] = 1.0;
        lower[row + 1..].fill(0.0);
        let from = found.pivots[row];
        worst(&lower, &upper, &a[from * n..(from + 1) * n])
    });
    tell(args, "P A = L U", &found.timing, found.operations, error.fold(0.0, worse))
}

fn tell(args: &GrapeMatrixArgs, what: &str, timing: &Timing, operations: u64, error: f64) -> Result<ExitCode> {
    let shape = shape(args.shape)?;
    let seconds = timing.seconds(shape);
    let rate = |seconds: f64| if seconds > 0.0 { gflops(operations, seconds) } else { 0.0 };
    let (inside, whole) = (rate(seconds.compute), rate(seconds.whole));
    let right = error <= ALLOWED;
    if args.json {
        print_json(&json!({
            "size": args.size, "error": error, "right": right, "operations": operations,
            "gflops_compute": inside, "gflops_whole": whole, "timing": json_of_timing(timing, shape),
        }))?;
    } else {
        print_line(table(timing, shape).to_string().trim_end())?;
        let (inside, whole) = (digits(inside), digits(whole));
        print_line(&format!("{inside} Gflop/s of the chips' own time, {whole} with all that goes in and out"))?;
        print_line(&format!("{what} to {error:.1e}, relative; {ALLOWED:.0e} is allowed"))?;
    }
    if right {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("sprat: the machine's answer is not that of a plain computation");
    Ok(ExitCode::from(CORRUPT))
}

/// How far numbers of a row are off at most from those that a row and a matrix give, relative to the sum of the sizes of the products.
fn worst(row: &[f64], matrix: &[f64], given: &[f64]) -> f64 {
    let mut sums = vec![(0.0_f64, 0.0_f64); given.len()];
    for (factor, numbers) in row.iter().zip(matrix.chunks(given.len())) {
        for ((sum, size), number) in sums.iter_mut().zip(numbers) {
            *sum += factor * number;
            *size += (factor * number).abs();
        }
    }
    let off = sums.iter().zip(given).map(|((sum, size), given)| (sum - given).abs() / size.max(f64::MIN_POSITIVE));
    off.fold(0.0, worse)
}

/// The greater; what is no number is the worst of all, where `max` would pass it over.
fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

fn numbers(chance: &mut Chance, count: usize) -> Vec<f64> {
    (0..count).map(|_| chance.share() - 0.5).collect()
}

fn cube(side: usize) -> u64 {
    u64::try_from(side).expect("no wider").pow(3)
}
