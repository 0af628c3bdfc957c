//! `sim`.

use super::print_line;
use crate::args::SimArgs;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use sprat_sim::{Failure, Run};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

/// Histories run at once.
const THREADS: usize = 2;

pub(crate) fn sim(args: &SimArgs) -> Result<ExitCode> {
    let run = |seed| match args.operations {
        Some(operations) => sprat_sim::cluster::run_long(seed, operations),
        None if args.cluster => sprat_sim::cluster::run(seed),
        None => sprat_sim::run(seed),
    };
    match args.seed {
        Some(seed) => one(run, seed, args.verbose),
        None => many(run, args.from..args.from.saturating_add(args.seeds), args.verbose),
    }
}

/// One history, told in full if asked.
fn one(run: impl Fn(u64) -> Run, seed: u64, verbose: bool) -> Result<ExitCode> {
    match run(seed) {
        Ok((summary, trace)) => {
            if verbose {
                trace.lines().iter().try_for_each(|line| print_line(line))?;
            }
            print_line(&summary.to_string())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            tell(&failure, verbose)?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn many(run: impl Fn(u64) -> Run + Sync, seeds: Range<u64>, verbose: bool) -> Result<ExitCode> {
    let started = Instant::now();
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} histories  {per_sec}  {eta} left");
    let bar = ProgressBar::new(seeds.end - seeds.start).with_style(style.expect("a constant template"));
    let (summary, failures) = sprat_sim::run_seeds(run, seeds, THREADS, |done| bar.set_position(done));
    bar.finish_and_clear();
    failures.iter().try_for_each(|failure| tell(failure, verbose))?;
    print_line(&summary.to_string())?;
    let verdict = if failures.is_empty() { "all can be" } else { "some cannot be, see above" };
    let took = started.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate to look at")]
    let rate = summary.operations as f64 / took;
    print_line(&format!("{} histories in {took:.1} s, {rate:.0} operations a second: {verdict}", summary.histories))?;
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(failure: &Failure, verbose: bool) -> Result<()> {
    if verbose {
        failure.trace.iter().try_for_each(|line| print_line(line))?;
    }
    print_line(&failure.to_string())
}
