//! `check`: runs random operations and checks every answer against a model.

use crate::connect::{Connect, connect};
use crate::output::{print_json, print_line};
use crate::quantity::counted;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sprat_check::{CheckError, Counts, Disagreement, Run, Work};
use sprat_client::{Client, Error, Table};
use sprat_host::random;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat check                       10,000 operations in a new table, dropped afterwards
  sprat check --operations 1000000 --depth 32
  sprat check --seed 4711 --keep    repeat the operations of a seed, and keep the table
  sprat check -C tcp:host=192.168.100.31,port=12246 --json

One operation in ten increments a shared counter while others increment it. The rest, on 256
objects, are 40 % gets, 35 % puts, 10 % removals and 15 % increments; half of the puts and
removals are conditional. Values: 10 % empty, 5 % 8 B, 55 % up to 200 B, 20 % up to 10 KB, 8 %
up to 100 KB, 2 % up to 1 MB; every fourth object is a counter. A quarter of the puts give their
object a time to live, of 1 ms to an hour. By turns, --depth operations are sent one by one, and
--depth operations as one batch. A wrong answer ends the run, and the table stays.

Exit codes:
  1  a wrong answer, or another error
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    connect: Connect,
    /// Number of operations.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    operations: u64,
    /// Seed of the random operations [default: random; printed at the end].
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Operations in flight, 1 to 64; with 1, each waits for the answer of the one before.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = parse_check_depth)]
    depth: usize,
    /// Table to create; it must not exist [default: check-SEED].
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Keep the table; without this flag, it is dropped after a run without errors.
    #[arg(long)]
    keep: bool,
    /// Hide the progress bar.
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON: the summary.
    #[arg(long)]
    json: bool,
}

/// Parses the number of operations in flight. It must be far below the number of objects, since
/// each object has at most one operation in flight.
fn parse_check_depth(text: &str) -> Result<usize, String> {
    counted(text, 64, "operations in flight")
}

/// Operations between two updates of the progress bar, since drawing costs more than an operation.
const UPDATE_INTERVAL: u64 = 64;

/// Exclusive limit on random seeds: short enough to be typed again.
const SEEDS: u64 = 1_000_000_000;

pub(crate) fn check(args: &CheckArgs) -> Result<ExitCode> {
    let seed = args.seed.unwrap_or_else(|| random() % SEEDS);
    let name = args.table.clone().unwrap_or_else(|| format!("check-{seed}"));
    let mut client = connect(&args.connect)?;
    let table = fresh_table(&mut client, &name)?;
    let mut run = Run::new(&mut client, table, Work::new(seed), args.depth);
    let (bar, started) = (progress(args), Instant::now());
    let judged = run.execute(args.operations, &mut |number| {
        if number.is_multiple_of(UPDATE_INTERVAL) {
            bar.set_position(number);
        }
    });
    bar.finish_and_clear();
    let (counts, seconds) = (run.counts(), started.elapsed().as_secs_f64());
    let judged = judged
        .map_err(|CheckError { place, source }| anyhow::Error::new(source).context(place))
        .with_context(|| {
            format!("the check with seed {seed} failed before its end; kept table {name:?}")
        })?;
    if judged.is_ok() && !args.keep {
        client.drop_table(&name)?;
    }
    let again = format!(
        "sprat check --operations {} --depth {} --seed {seed}",
        args.operations, args.depth
    );
    if args.json {
        print_json(&json(&counts, seed, seconds, judged.as_ref().err()))?;
    } else if judged.is_ok() {
        print_line(&text(&counts, seed, seconds))?;
    }
    match judged {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(disagreement) => {
            eprintln!("sprat: {disagreement}");
            eprintln!(
                "sprat: kept table {name:?} for inspection; to repeat the run: {again} --table NAME"
            );
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Makes a table. Returns an error if the name exists, since the existing objects may be needed.
fn fresh_table(client: &mut Client, name: &str) -> Result<Table> {
    match client.table(name) {
        Err(Error::NoSuchTable(_)) => Ok(client.create_table(name)?),
        Err(error) => Err(error.into()),
        Ok(_) => bail!(
            "table {name:?} exists: choose another with --table, or run `sprat table drop {name}`"
        ),
    }
}

/// Makes the progress bar; with `--quiet`, a hidden one.
fn progress(args: &CheckArgs) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:32} {pos}/{len} operations  {per_sec}  {eta} left");
    let bar = if args.quiet { ProgressBar::hidden() } else { ProgressBar::new(args.operations) };
    bar.with_style(style.expect("a constant template"))
}

fn rate(counts: &Counts, seconds: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate to be read by people")]
    let operations = counts.operations() as f64;
    operations / seconds.max(f64::MIN_POSITIVE)
}

fn text(counts: &Counts, seed: u64, seconds: f64) -> String {
    let Counts {
        gets,
        puts,
        removals,
        increments,
        shared,
        refusals,
        bytes_sent,
        bytes_received,
        objects,
    } = counts;
    format!(
        "{} operations in {seconds:.1} s ({:.0} a second), every answer correct\n\
         {gets} gets, {puts} puts, {removals} removals, {increments} increments ({shared} of the \
         shared counter), {refusals} refused as expected, {objects} objects at the end\n\
         {:.1} MB stored, {:.1} MB read; seed {seed}",
        counts.operations(),
        rate(counts, seconds),
        megabytes(*bytes_sent),
        megabytes(*bytes_received),
    )
}

fn json(counts: &Counts, seed: u64, seconds: f64, disagreement: Option<&Disagreement>) -> Value {
    json!({
        "ok": disagreement.is_none(),
        "seed": seed,
        "operations": counts.operations(),
        "gets": counts.gets,
        "puts": counts.puts,
        "removals": counts.removals,
        "increments": counts.increments,
        "shared_increments": counts.shared,
        "refusals": counts.refusals,
        "bytes_stored": counts.bytes_sent,
        "bytes_read": counts.bytes_received,
        "objects": counts.objects,
        "seconds": seconds,
        "operations_per_second": rate(counts, seconds),
        "disagreement": disagreement.map(|one| json!({
            "operation": one.operation,
            "asked": one.asked,
            "key": one.key,
            "expected": one.expected,
            "got": one.got,
        })),
    })
}

#[expect(clippy::cast_precision_loss, reason = "megabytes to be read by people")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
