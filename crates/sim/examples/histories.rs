//! `histories SEEDS FROM [OPERATIONS]`: what `sprat sim --cluster` does, for who builds the simulator often and nothing above it: see
//! `scripts/mutations`. Ends with 1 when a history cannot be.

use sprat_sim::{cluster, run_seeds};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let &[seeds, from, ..] = &numbers[..] else {
        eprintln!("histories SEEDS FROM [OPERATIONS]");
        return ExitCode::from(2);
    };
    let run = |seed| match numbers.get(2) {
        Some(&operations) => cluster::run_long(seed, operations),
        None => cluster::run(seed),
    };
    let started = Instant::now();
    let (summary, failures) = run_seeds(run, from..from + seeds, 2, |_| {});
    failures.iter().for_each(|failure| println!("{failure}"));
    println!("{summary}\n{} failed, {:.1} s", failures.len(), started.elapsed().as_secs_f64());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
