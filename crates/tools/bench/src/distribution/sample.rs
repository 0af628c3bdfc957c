//! Runs many operations, one at a time, and examines the slow ones.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sprat_net::Scale;

use super::causes::{Cause, Exclusion, PathEnd, Tally};
use super::cliffs::{Cliff, TAIL_FROM_MEDIANS};
use super::look::{Cores, Observer};
use crate::single::{Objects, OperationTimes, Single};
use sprat_measure::hist::{Latencies, nanos};

/// Number of operations before each round. They do not count, but the usual times are learned from
/// them.
const WARM_UP: usize = 2_000;

/// Pairs of readings that measure the usual iteration of the server's loop, and the number of
/// operations between the two readings of a pair.
const USUAL_LOOKS: usize = 16;
const USUAL_OPERATIONS: usize = 8;

/// Limit on the operations of a path that are examined. The causes of the others stay unknown.
const MAX_EXAMINED: usize = 50_000;

/// Operations from this quantile on are examined, if they take at least [`TAIL_FROM_MEDIANS`]
/// medians. With a lower quantile, the readings would take most of the run.
const EXAMINED_FROM: f64 = 0.99;

/// An operation that takes this many medians is examined even if it is below that quantile, as
/// happens on a machine with much jitter.
const EXAMINED_FROM_MEDIANS: u64 = 8;

/// Limit on the operations between two readings, so that the changes since the last reading are
/// recent.
const LOOK_EVERY: u64 = 512;

/// Step between the numbers of successive objects: a prime, so that successive objects are not
/// adjacent in memory.
const STRIDE: usize = 7_919;

/// The operations over one path.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Samples {
    /// The latencies of all operations in ns.
    #[serde(with = "sprat_measure::hist::counted")]
    pub latencies: Latencies,
    /// The examined slow operations: latency in ns, and cause.
    pub examined: Vec<(u64, Cause)>,
    /// Counts of readings that show an event although no operation was slow.
    pub chance: ChanceCounts,
    /// Number of operations that were made after readings. They do not count.
    pub uncounted: u64,
    /// Total time of all rounds in seconds.
    pub seconds: f64,
    /// Whether the server reported the times of its loop.
    #[serde(rename = "server_tells")]
    pub server_is_timed: bool,
    /// Whether the interrupts of the cores were known.
    #[serde(rename = "interrupts_told")]
    pub interrupts_known: bool,
}

/// Counts the events in readings that no slow operation preceded. Interrupts and page faults have
/// no duration of their own, so they can be named as a cause by chance; these counts show how
/// often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChanceCounts {
    /// Number of readings that no slow operation preceded.
    pub looks: u64,
    /// Number of such readings with an interrupt of the client's core.
    pub client_interrupts: u64,
    /// Number of such readings with an interrupt of the server's core.
    pub server_interrupts: u64,
    /// Number of such readings with a page fault at either end.
    pub faults: u64,
}

/// Runs the operations of one path.
pub(super) struct Sampler {
    pub(super) single: Single,
    objects: Objects,
    write: bool,
    observer: Observer,
    scale: Scale,
    number: usize,
    pub(super) found: Samples,
}

impl Sampler {
    /// Makes a sampler, and fills the table with `objects`.
    pub(super) fn new(
        mut single: Single,
        objects: Objects,
        write: bool,
        cores: Cores,
    ) -> Result<Self> {
        single.fill(&objects)?;
        let scale = Scale::measure();
        let observer = Observer::new(cores, scale);
        Ok(Self { single, objects, write, observer, scale, number: 0, found: Samples::default() })
    }

    fn operate(&mut self) -> Result<OperationTimes> {
        self.number = (self.number + STRIDE) % self.objects.keys;
        self.single.operate(&self.objects, self.number, self.write)
    }

    /// Runs a round: learns the usual times, then makes `count` operations.
    ///
    /// # Errors
    /// When an operation gets a wrong answer or none.
    pub(super) fn run(&mut self, count: u64) -> Result<()> {
        let (median, examined_from) = self.learn()?;
        let began = Instant::now();
        let mut since_look = 0;
        for _ in 0..count {
            let times = self.operate()?;
            let ns = nanos(self.scale, times.total);
            self.found.latencies.record(ns);
            since_look += 1;
            let examine = ns >= examined_from && self.found.examined.len() < MAX_EXAMINED;
            if examine || since_look >= LOOK_EVERY {
                let change = self.observer.look(&mut self.single)?;
                if examine {
                    let cause =
                        self.observer.evidence(&times, ns.saturating_sub(median), &change).cause();
                    self.found.examined.push((ns, cause));
                } else if ns < examined_from {
                    self.found.chance.add(change.chance_events());
                }
                self.operate()?;
                self.found.uncounted += 1;
                self.observer.settle();
                since_look = 0;
            }
        }
        self.found.seconds += began.elapsed().as_secs_f64();
        self.found.server_is_timed = self.observer.server_is_timed();
        self.found.interrupts_known = self.observer.knows_interrupts();
        Ok(())
    }

    /// Learns the usual times. Returns the median, and the latency at which an operation is long
    /// enough to be examined, both in ns.
    fn learn(&mut self) -> Result<(u64, u64)> {
        let mut warm_up = Vec::with_capacity(WARM_UP);
        for _ in 0..WARM_UP {
            warm_up.push(self.operate()?);
        }
        let mut server_iterations = Vec::with_capacity(USUAL_LOOKS);
        for _ in 0..USUAL_LOOKS {
            self.observer.look(&mut self.single)?;
            for _ in 0..USUAL_OPERATIONS {
                self.operate()?;
            }
            self.observer.look(&mut self.single)?;
            server_iterations.extend(self.observer.longest_server_iteration());
        }
        let client_iterations =
            warm_up.iter().map(|times| nanos(self.scale, times.longest_iteration)).collect();
        // With much jitter the server is held up in most of these intervals, but not in all of
        // them, so the minimum is an undisturbed iteration.
        self.observer.learn(
            quantile(client_iterations, 0.5),
            server_iterations.into_iter().min().unwrap_or(0),
        );
        self.operate()?;
        self.observer.settle();
        let totals: Vec<u64> = warm_up.iter().map(|times| nanos(self.scale, times.total)).collect();
        let median = quantile(totals.clone(), 0.5);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a time of some us"
        )]
        let tail = (median as f64 * TAIL_FROM_MEDIANS) as u64;
        Ok((
            median,
            quantile(totals, EXAMINED_FROM).clamp(tail, (median * EXAMINED_FROM_MEDIANS).max(tail)),
        ))
    }
}

impl ChanceCounts {
    fn add(&mut self, seen: [bool; 3]) {
        self.looks += 1;
        let counts = [&mut self.client_interrupts, &mut self.server_interrupts, &mut self.faults];
        counts.into_iter().zip(seen).for_each(|(count, seen)| *count += u64::from(seen));
    }

    /// Returns the share of readings, 0 to 1, that would have named `cause` for an end that had
    /// been held up by another cause. `None` for causes that are never named by chance, and without
    /// readings.
    #[must_use]
    pub fn of(&self, cause: Cause) -> Option<f64> {
        let count = match cause {
            Cause::Interrupt(PathEnd::Client) => self.client_interrupts,
            Cause::Interrupt(PathEnd::Server) => self.server_interrupts,
            Cause::Fault(_) => self.faults,
            _ => return None,
        };
        (self.looks > 0).then(|| count as f64 / self.looks as f64)
    }
}

impl Samples {
    /// Returns the latencies without the excluded operations, in ns. Operations that were not
    /// examined are included.
    ///
    /// # Panics
    /// If the samples are not [sound](Self::is_sound).
    #[must_use]
    pub fn without(&self, exclusion: Exclusion) -> Latencies {
        self.less(|cause| exclusion.excludes(cause)).expect("sound, as measured and as read")
    }

    /// Returns whether every examined operation is also in `latencies`. This can be false for
    /// samples that were read from a file.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.less(|_| true).is_some()
    }

    fn less(&self, taken: impl Fn(Cause) -> bool) -> Option<Latencies> {
        let mut excluded = Latencies::new();
        self.examined.iter().filter(|one| taken(one.1)).for_each(|&(ns, _)| excluded.record(ns));
        self.latencies.without(&excluded)
    }

    /// Returns the share of operations that `exclusion` excludes, 0 to 1.
    #[must_use]
    pub fn share(&self, exclusion: Exclusion) -> f64 {
        let taken = self.examined.iter().filter(|one| exclusion.excludes(one.1)).count();
        taken as f64 / self.latencies.count().max(1) as f64
    }

    /// Counts the causes of the examined operations within a step.
    #[must_use]
    pub fn tally(&self, cliff: &Cliff) -> Tally {
        let mut tally = Tally::default();
        // The limits of a step come from the histogram, whose bars are 1/1000 wide.
        let within = |ns: u64| ns <= cliff.to_ns && ns.saturating_add(ns / 500) >= cliff.from_ns;
        self.examined
            .iter()
            .filter(|&&(ns, _)| within(ns))
            .for_each(|&(_, cause)| tally.add(cause));
        tally
    }

    /// Returns the causes of all examined operations that took longer than `ns`, with counts.
    #[must_use]
    pub fn causes_beyond(&self, ns: u64) -> Vec<(Cause, u64)> {
        let mut counts = HashMap::<Cause, u64>::new();
        for &(_, cause) in self.examined.iter().filter(|one| one.0 > ns) {
            *counts.entry(cause).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|&(cause, count)| (std::cmp::Reverse(count), cause));
        counts
    }
}

fn quantile(mut values: Vec<u64>, share: f64) -> u64 {
    values.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in a list of some thousands"
    )]
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(0)
}
