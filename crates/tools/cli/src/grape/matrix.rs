//! `grape dgemm` and `lu`: dense matrices on a simulated GRAPE-DR or on this processor, checked
//! against a plain computation.

use crate::exit::CORRUPT;
use crate::grape::sim::{ShapeArgs, json_of_timing, shape, table};
use crate::output::{print_json, print_line};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use sprat_chance::Chance;
use sprat_grape::{MatrixError, Options, Sides, Threads, matrix};
use sprat_grapedr::{Timing, gflops};
use sprat_plan::quantity::digits;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat grape dgemm --size 256
  sprat grape lu --size 256 --chips 4 --clock 400MHz
  sprat grape dgemm --size 4096 --on cpu

The result is checked against a plain computation; of large matrices, some rows are checked.
With --on cpu, the matrices are computed three times, and the median time is reported.

Exit codes:
  10  the result differs from that of the plain computation")]
pub(crate) struct GrapeMatrixArgs {
    /// Rows and columns of the random matrices.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = side)]
    size: usize,

    /// Seed of the random numbers; the same seed repeats the same matrices.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// What computes: a simulated GRAPE-DR (slow), or this processor.
    #[arg(long, value_enum, default_value_t = MatrixArg::Grapedr)]
    on: MatrixArg,

    #[command(flatten)]
    shape: ShapeArgs,

    /// Number of threads, with --on cpu [default: one for each processor]; at most 16 for each
    /// processor.
    #[arg(long, value_name = "COUNT")]
    threads: Option<NonZeroUsize>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum MatrixArg {
    Grapedr,
    Cpu,
}

fn side(text: &str) -> Result<usize, String> {
    let limit = sprat_grapedr::MAX_SIDE;
    let size = text.parse().ok().filter(|size| (1..=limit).contains(size));
    size.ok_or_else(|| format!("want a whole number from 1 to {limit}"))
}

/// Allowed error of a number, relative to the sum of the absolute values that were added.
const TOLERANCE: f64 = 1e-13;

/// Approximate limit on the multiplications of the plain computation. For a larger matrix it
/// computes only some of the rows, but at least [`ROWS`].
const PRODUCTS: usize = 1 << 32;

/// Lower limit on the rows that are checked. A smaller matrix is checked completely.
const ROWS: usize = 16;

/// Number of runs on this processor. The median time is reported.
const TIMES: usize = 3;

/// Time of a computation.
enum Took {
    Machine(Timing),
    Processor { seconds: f64, threads: NonZeroUsize },
}

pub(crate) fn dgemm(args: &GrapeMatrixArgs) -> Result<ExitCode> {
    let (n, mut chance) = (args.size, Chance::new(args.seed));
    let (a, b) = (numbers(&mut chance, n * n), numbers(&mut chance, n * n));
    let sides = Sides { m: n, n, k: n };
    let (c, took) = match threads(args)? {
        None => {
            let mut c = vec![0.0; n * n];
            let timing = sprat_grapedr::dgemm(shape(args.shape)?, sides, &a, &b, &mut c)?;
            (c, Took::Machine(timing))
        }
        Some(threads) => timed(&threads, || {
            let mut c = vec![0.0; n * n];
            let begun = Instant::now();
            matrix::dgemm(&threads, sides, &a, &b, &mut c)?;
            Ok((c, begun.elapsed().as_secs_f64()))
        })?,
    };
    let error = checked_rows(n)
        .map(|row| max_error(&a[row * n..(row + 1) * n], &b, &c[row * n..(row + 1) * n]));
    report(args, "C = A B", &took, 2 * cube(n), error.fold(0.0, max_or_nan))
}

pub(crate) fn lu(args: &GrapeMatrixArgs) -> Result<ExitCode> {
    let (n, mut chance) = (args.size, Chance::new(args.seed));
    let a = numbers(&mut chance, n * n);
    let (factors, pivots, operations, took) = match threads(args)? {
        None => {
            let found = sprat_grapedr::lu(shape(args.shape)?, n, &a)?;
            (found.factors, found.pivots, found.operations, Took::Machine(found.timing))
        }
        Some(threads) => {
            let (found, took) = timed(&threads, || {
                let begun = Instant::now();
                let found = matrix::lu(&threads, n, &a)?;
                Ok((found, begun.elapsed().as_secs_f64()))
            })?;
            (found.factors, found.pivots, 2 * cube(n) / 3, took)
        }
    };
    // L times U must equal the matrix with its rows in the order of the pivots.
    let mut upper = factors.clone();
    (0..n).for_each(|row| upper[row * n..row * n + row].fill(0.0));
    let error = checked_rows(n).map(|row| {
        let mut lower = factors[row * n..(row + 1) * n].to_vec();
        lower[row] = 1.0;
        lower[row + 1..].fill(0.0);
        let from = pivots[row];
        max_error(&lower, &upper, &a[from * n..(from + 1) * n])
    });
    report(args, "P A = L U", &took, operations, error.fold(0.0, max_or_nan))
}

/// Returns the threads for `--on cpu`, and `None` for the simulated GRAPE-DR.
fn threads(args: &GrapeMatrixArgs) -> Result<Option<Threads>> {
    match args.on {
        MatrixArg::Grapedr if args.threads.is_some() => bail!("--threads needs --on cpu"),
        MatrixArg::Grapedr => Ok(None),
        MatrixArg::Cpu if args.shape.chips.is_some() || args.shape.clock.is_some() => {
            bail!("--chips and --clock need --on grapedr")
        }
        MatrixArg::Cpu => {
            Ok(Some(Threads::new(args.threads.unwrap_or(Options::default().threads))?))
        }
    }
}

/// Runs a computation [`TIMES`] times and returns the run with the median time.
fn timed<T>(
    threads: &Threads,
    once: impl Fn() -> Result<(T, f64), MatrixError>,
) -> Result<(T, Took)> {
    let mut all = (0..TIMES).map(|_| once()).collect::<Result<Vec<_>, _>>()?;
    all.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    let (found, seconds) = all.swap_remove(TIMES / 2);
    Ok((found, Took::Processor { seconds, threads: threads.count() }))
}

/// Prints time, rate and error. The exit code is [`CORRUPT`] if the error exceeds [`TOLERANCE`].
fn report(
    args: &GrapeMatrixArgs,
    what: &str,
    took: &Took,
    operations: u64,
    error: f64,
) -> Result<ExitCode> {
    let rate = |seconds: f64| if seconds > 0.0 { gflops(operations, seconds) } else { 0.0 };
    let (right, rows) = (error <= TOLERANCE, checked_rows(args.size).count());
    let mut value = json!({
        "size": args.size, "error": error, "right": right, "rows": rows, "operations": operations,
    });
    let lines = match took {
        Took::Machine(timing) => {
            let shape = shape(args.shape)?;
            let seconds = timing.seconds(shape);
            let (inside, whole) = (rate(seconds.compute), rate(seconds.whole));
            value["gflops_compute"] = json!(inside);
            value["gflops_whole"] = json!(whole);
            value["timing"] = json_of_timing(timing, shape);
            let (inside, whole) = (digits(inside), digits(whole));
            let rates = format!("{inside} Gflop/s on the chips, {whole} with all transfers");
            format!("{}\n{rates}", table(timing, shape).to_string().trim_end())
        }
        Took::Processor { seconds, threads } => {
            value["gflops"] = json!(rate(*seconds));
            value["seconds"] = json!(seconds);
            value["threads"] = json!(threads);
            format!("{} Gflop/s of this processor, on {threads} threads", digits(rate(*seconds)))
        }
    };
    if args.json {
        print_json(&value)?;
    } else {
        print_line(&lines)?;
        let of = if rows < args.size {
            format!(" in {rows} of {} rows", args.size)
        } else {
            String::new()
        };
        print_line(&format!(
            "relative error of {what}: {error:.1e}{of}; allowed: {TOLERANCE:.0e}"
        ))?;
    }
    if right {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("sprat: the result differs from that of a plain computation");
    Ok(ExitCode::from(CORRUPT))
}

/// Returns the rows to check against the plain computation: all, or evenly spaced ones.
fn checked_rows(n: usize) -> impl Iterator<Item = usize> {
    let rows = (PRODUCTS / (n * n)).max(ROWS).min(n);
    (0..rows).map(move |at| at * n / rows)
}

/// Returns the largest error of `given`, which should be the product of `row` and `matrix`. The
/// error of a number is relative to the sum of the absolute values that were added.
fn max_error(row: &[f64], matrix: &[f64], given: &[f64]) -> f64 {
    let mut sums = vec![(0.0_f64, 0.0_f64); given.len()];
    for (factor, numbers) in row.iter().zip(matrix.chunks(given.len())) {
        for ((sum, size), number) in sums.iter_mut().zip(numbers) {
            *sum += factor * number;
            *size += (factor * number).abs();
        }
    }
    let off = sums
        .iter()
        .zip(given)
        .map(|((sum, size), given)| (sum - given).abs() / size.max(f64::MIN_POSITIVE));
    off.fold(0.0, max_or_nan)
}

/// Returns the greater number, or NaN if either is NaN; `f64::max` would ignore a NaN.
fn max_or_nan(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

fn numbers(chance: &mut Chance, count: usize) -> Vec<f64> {
    (0..count).map(|_| chance.share() - 0.5).collect()
}

fn cube(side: usize) -> u64 {
    u64::try_from(side).expect("no wider").pow(3)
}
