//! `sim`: runs simulated histories of the store and checks them.

use crate::output::print_line;
use crate::quantity;
use anyhow::{Context as _, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use sprat_sim::{Failure, SeedResult};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat sim --seeds 1000                       1,000 histories of a single server
  sprat sim --seed 4711 --verbose              one history, with all its events
  sprat sim --cluster --operations 10000 --seeds 20 --from 1000
  sprat sim --cluster --fresh --for 10m --keep failed.txt

Each seed determines a history of operations and faults in virtual time. A history fails if it
is not linearizable, or if data or replicas are lost.

Exit codes:
  1  a history failed, or another error")]
pub(crate) struct SimArgs {
    /// Number of histories to run.
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u64,
    /// Simulate clusters, whose servers replicate their logs and are killed, stopped and cut off.
    #[arg(long)]
    cluster: bool,
    /// Operations in each history, 1 to 1000000, with proportionally more faults [default: chosen
    /// by the seed].
    #[arg(
        long,
        value_name = "N",
        requires = "cluster",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000)
    )]
    operations: Option<u64>,
    /// First seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Start from a seed derived from the time, and print it.
    #[arg(long, conflicts_with = "from")]
    fresh: bool,
    /// Start histories for this time, such as 90s or 10m, instead of a number of them.
    #[arg(
        long = "for",
        value_name = "TIME",
        value_parser = quantity::run_time,
        conflicts_with = "seeds"
    )]
    time: Option<Duration>,
    /// Append the command that repeats each failed history to this file, one a line.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Run only the history of this seed.
    #[arg(
        long,
        value_name = "SEED",
        conflicts_with_all = ["seeds", "from", "fresh", "time", "keep"]
    )]
    seed: Option<u64>,
    /// Print the events of the history; without --seed, of those that fail.
    #[arg(short, long)]
    verbose: bool,
}

/// Histories that run at the same time.
const THREADS: usize = 2;

/// Distance between the first seeds of two runs that start a second apart. It exceeds the number of
/// histories that [`THREADS`] threads run in a second.
const SEEDS_A_SECOND: u64 = 1000;

pub(crate) fn sim(args: &SimArgs) -> Result<ExitCode> {
    let run = |seed| match args.operations {
        Some(operations) => sprat_sim::cluster::run_long(seed, operations),
        None if args.cluster => sprat_sim::cluster::run(seed),
        None => sprat_sim::run(seed),
    };
    match args.seed {
        Some(seed) => one(run, seed, args.verbose),
        None => many(run, args),
    }
}

/// Runs one history; with `verbose`, prints its trace.
fn one(run: impl Fn(u64) -> SeedResult, seed: u64, verbose: bool) -> Result<ExitCode> {
    match run(seed) {
        Ok((summary, trace)) => {
            if verbose {
                trace.lines().iter().try_for_each(|line| print_line(line))?;
            }
            print_line(&summary.to_string())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            print_failure(&failure, verbose)?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn many(run: impl Fn(u64) -> SeedResult + Sync, args: &SimArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let from = if args.fresh { fresh()? } else { args.from };
    if args.fresh {
        print_line(&format!("first seed: {from}"))?;
    }
    let count = if args.time.is_some() { u64::MAX } else { args.seeds };
    let template = match args.time {
        Some(_) => "{spinner} {pos} histories in {elapsed}  {per_sec}",
        None => "{bar:32} {pos}/{len} histories  {per_sec}  {eta} left",
    };
    let bar = ProgressBar::new(count)
        .with_style(ProgressStyle::with_template(template).expect("a constant template"));
    let log = args.keep.as_deref().map(FailureLog::open).transpose()?;
    // A failure is printed and saved at once, since the run may last for hours, or be interrupted.
    let first_error = Mutex::new(Ok(()));
    let goes_on = |done, failure: Option<&Failure>| {
        bar.set_position(done);
        if let Some(failure) = failure {
            let printed = bar.suspend(|| print_failure(failure, args.verbose));
            let result = printed.and_then(|()| match &log {
                Some(log) => log.add(failure),
                None => Ok(()),
            });
            let mut first_error = first_error.lock().expect("no holder panics");
            if first_error.is_ok() {
                *first_error = result;
            }
        }
        args.time.is_none_or(|time| started.elapsed() < time)
    };
    let (summary, failures) =
        sprat_sim::run_seeds(run, from..from.saturating_add(count), THREADS, goes_on);
    bar.finish_and_clear();
    first_error.into_inner().expect("no holder panicked")?;
    print_line(&summary.to_string())?;
    let verdict = match failures.len() {
        0 => "all passed".to_owned(),
        failed => format!("{failed} FAILED, see above"),
    };
    let took = started.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate to look at")]
    let rate = summary.operations as f64 / took;
    print_line(&format!(
        "{} histories in {took:.1} s, {rate:.0} operations a second: {verdict}",
        summary.histories
    ))?;
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns a seed derived from the time, so that two runs most likely begin with different seeds.
fn fresh() -> Result<u64> {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .context("this machine's clock is before 1970")?;
    Ok(since.as_secs() * SEEDS_A_SECOND)
}

/// The file of `--keep`, which collects the commands that repeat failures.
struct FailureLog<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> FailureLog<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self { path, file: file.with_context(|| format!("cannot write {}", path.display()))? })
    }

    fn add(&self, failure: &Failure) -> Result<()> {
        let line = format!("{}\n", failure.command());
        (&self.file)
            .write_all(line.as_bytes())
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

fn print_failure(failure: &Failure, verbose: bool) -> Result<()> {
    if verbose {
        failure.trace.iter().try_for_each(|line| print_line(line))?;
    }
    print_line(&failure.to_string())
}
