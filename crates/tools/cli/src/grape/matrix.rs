//! `grape dgemm` and `lu`: dense matrices on a simulated GRAPE-DR or on this processor, held
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

What comes of it is held against a plain computation, of large matrices some rows; exit code 10 where they differ.
On this processor a library computes (faer), three times: the middle time is told.")]
pub(crate) struct GrapeMatrixArgs {
    /// Rows and columns of the matrices, whose numbers are drawn by chance.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = side)]
    size: usize,

    /// Where chance begins.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// What computes: a simulated GRAPE-DR (slow), or this processor.
    #[arg(long, value_enum, default_value_t = MatrixArg::Grapedr)]
    on: MatrixArg,

    #[command(flatten)]
    shape: ShapeArgs,

    /// With cpu: how many threads, 16 for each processor at most; default one for each.
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

/// What a number may be off, relative to the sum of the sizes of what it is made of.
const ALLOWED: f64 = 1e-13;

/// Products of the plain computation, about: rows of larger matrices are not all held against it,
/// but [`ROWS`] at least.
const PRODUCTS: usize = 1 << 32;

/// Rows of a matrix that are held against the plain computation, at least.
const ROWS: usize = 16;

/// Times that this processor computes, of which the middle one is told.
const TIMES: usize = 3;

/// What it took.
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
    let error =
        held(n).map(|row| worst(&a[row * n..(row + 1) * n], &b, &c[row * n..(row + 1) * n]));
    tell(args, "C = A B", &took, 2 * cube(n), error.fold(0.0, worse))
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
    // L times U must be the matrix, in the order of the pivots.
    let mut upper = factors.clone();
    (0..n).for_each(|row| upper[row * n..row * n + row].fill(0.0));
    let error = held(n).map(|row| {
        let mut lower = factors[row * n..(row + 1) * n].to_vec();
        lower[row] = 1.0;
        lower[row + 1..].fill(0.0);
        let from = pivots[row];
        worst(&lower, &upper, &a[from * n..(from + 1) * n])
    });
    tell(args, "P A = L U", &took, operations, error.fold(0.0, worse))
}

/// Threads of this processor's, if it is to compute.
fn threads(args: &GrapeMatrixArgs) -> Result<Option<Threads>> {
    match args.on {
        MatrixArg::Grapedr if args.threads.is_some() => bail!("--threads is of --on cpu"),
        MatrixArg::Grapedr => Ok(None),
        MatrixArg::Cpu if args.shape.chips.is_some() || args.shape.clock.is_some() => {
            bail!("--chips and --clock are of --on grapedr")
        }
        MatrixArg::Cpu => {
            Ok(Some(Threads::new(args.threads.unwrap_or(Options::default().threads))?))
        }
    }
}

/// Computes some times; tells the middle one's seconds.
fn timed<T>(
    threads: &Threads,
    once: impl Fn() -> Result<(T, f64), MatrixError>,
) -> Result<(T, Took)> {
    let mut all = (0..TIMES).map(|_| once()).collect::<Result<Vec<_>, _>>()?;
    all.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    let (found, seconds) = all.swap_remove(TIMES / 2);
    Ok((found, Took::Processor { seconds, threads: threads.count() }))
}

fn tell(
    args: &GrapeMatrixArgs,
    what: &str,
    took: &Took,
    operations: u64,
    error: f64,
) -> Result<ExitCode> {
    let rate = |seconds: f64| if seconds > 0.0 { gflops(operations, seconds) } else { 0.0 };
    let (right, rows) = (error <= ALLOWED, held(args.size).count());
    let mut told = json!({
        "size": args.size, "error": error, "right": right, "rows": rows, "operations": operations,
    });
    let lines = match took {
        Took::Machine(timing) => {
            let shape = shape(args.shape)?;
            let seconds = timing.seconds(shape);
            let (inside, whole) = (rate(seconds.compute), rate(seconds.whole));
            told["gflops_compute"] = json!(inside);
            told["gflops_whole"] = json!(whole);
            told["timing"] = json_of_timing(timing, shape);
            let (inside, whole) = (digits(inside), digits(whole));
            let rates = format!(
                "{inside} Gflop/s of the chips' own time, {whole} with all that goes in and out"
            );
            format!("{}\n{rates}", table(timing, shape).to_string().trim_end())
        }
        Took::Processor { seconds, threads } => {
            told["gflops"] = json!(rate(*seconds));
            told["seconds"] = json!(seconds);
            told["threads"] = json!(threads);
            format!("{} Gflop/s of this processor, on {threads} threads", digits(rate(*seconds)))
        }
    };
    if args.json {
        print_json(&told)?;
    } else {
        print_line(&lines)?;
        let of = if rows < args.size {
            format!(" in {rows} of {} rows", args.size)
        } else {
            String::new()
        };
        print_line(&format!("{what} to {error:.1e}, relative{of}; {ALLOWED:.0e} is allowed"))?;
    }
    if right {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("sprat: the answer is not that of a plain computation");
    Ok(ExitCode::from(CORRUPT))
}

/// Rows that are held against the plain computation: all, or evenly chosen ones.
fn held(n: usize) -> impl Iterator<Item = usize> {
    let rows = (PRODUCTS / (n * n)).max(ROWS).min(n);
    (0..rows).map(move |at| at * n / rows)
}

/// How far numbers of a row are off at most from those that a row and a matrix give, relative to
/// the sum of the sizes of the products.
fn worst(row: &[f64], matrix: &[f64], given: &[f64]) -> f64 {
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
