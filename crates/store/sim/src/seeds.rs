//! Runs many histories, on several threads.

use crate::report::{Failure, Summary};
use crate::trace::Trace;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of failures after which no more histories are begun.
const ENOUGH_FAILURES: usize = 5;

/// The results of all histories so far.
#[derive(Default)]
struct Outcome {
    summary: Summary,
    failures: Vec<Failure>,
}

/// The result of a seed's history.
pub type SeedResult = Result<(Summary, Trace), Box<Failure>>;

/// Runs the histories of `seeds` with `run` on `threads` threads. After each history, one of the
/// threads calls `goes_on` with the number of histories that are done and, if this one failed, its
/// failure. `goes_on` returns whether to begin more. Returns the summary, and the failures ordered
/// by seed. Begins no more histories after 5 failures.
///
/// # Panics
/// When `run` or `goes_on` panics.
pub fn run_seeds(
    run: impl Fn(u64) -> SeedResult + Sync,
    seeds: Range<u64>,
    threads: usize,
    goes_on: impl Fn(u64, Option<&Failure>) -> bool + Sync,
) -> (Summary, Vec<Failure>) {
    let next = AtomicU64::new(seeds.start);
    let enough = AtomicBool::new(false);
    let outcome = Mutex::new(Outcome::default());
    let work = || {
        while !enough.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let result = run(seed);
            let mut outcome = outcome.lock().expect("no holder panics");
            let failed = match result {
                Ok((summary, _)) => {
                    outcome.summary += summary;
                    false
                }
                Err(failure) => {
                    outcome.summary.histories += 1;
                    outcome.failures.push(*failure);
                    true
                }
            };
            let goes_on =
                goes_on(outcome.summary.histories, outcome.failures.last().filter(|_| failed));
            enough
                .fetch_or(!goes_on || outcome.failures.len() >= ENOUGH_FAILURES, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let Outcome { summary, mut failures } = outcome.into_inner().expect("no holder panicked");
    failures.sort_by_key(|failure| failure.seed);
    (summary, failures)
}
