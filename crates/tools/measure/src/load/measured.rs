//! The results of a run.

use serde::Serialize;

use super::run::LoadPlan;
use crate::hist::Latencies;
use crate::target::{LoadTarget, Outcome};

/// The length of a period over which averages are taken, in ns (100 ms).
pub const PERIOD_NS: u64 = 100_000_000;

/// Limit on the periods of a run (ten minutes). Operations that end later count in the last period.
const MAX_PERIODS: u64 = 6_000;

/// The results of one load against one target.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The target's name.
    pub target: String,
    /// The target's transport.
    pub transport: String,
    /// The number of the target's connections.
    pub connections: usize,
    /// The load.
    pub plan: LoadPlan,
    /// Latencies of the operations whose intended start was after the warm-up, counted from that
    /// start. Operations that missed, failed or never completed are included.
    pub latencies: Latencies,
    /// The 100 ms periods, in order.
    pub periods: Vec<Period>,
    /// The measured time, in seconds.
    pub seconds: f64,
    /// Number of operations that completed in the measured time, also those that started before it,
    /// that missed or that failed.
    pub ended: u64,
    /// Number of operations on keys that did not exist.
    pub misses: u64,
    /// Number of operations that failed, or returned a value of the wrong length.
    pub errors: u64,
    /// Number of operations that never completed; in an open load, also those that were never sent.
    /// Each is in `latencies` with the age that it had reached.
    pub unfinished: u64,
}

/// A period of 100 ms.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Period {
    /// Number of operations that completed in the period.
    pub ops: u64,
    /// The sum of the latencies of these operations, in ns.
    pub latency_sum_ns: u64,
}

/// Averages of the 100 ms periods, in ns, computed as in the published table that
/// `sprat bench basic` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PeriodAverages {
    /// The mean latency of all operations.
    pub avg: f64,
    /// The lowest mean latency of a period.
    pub min: f64,
    /// The highest mean latency of a period.
    pub max: f64,
}

impl Measured {
    /// Returns the operations that completed per second of measured time. Returns 0 if no time was
    /// measured.
    #[must_use]
    pub fn ops_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.ended as f64 / self.seconds } else { 0.0 }
    }

    /// Returns completed operations per second times the length of a value. A miss or an error
    /// counts as if it had transferred a value.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.ops_per_second() * self.plan.workload.value_bytes as f64
    }

    /// Returns averages over the 100 ms periods, without periods in which no operation ended. All
    /// averages are 0 if no operation ended.
    #[must_use]
    pub fn period_averages(&self) -> PeriodAverages {
        let busy = self.periods.iter().filter(|period| period.ops > 0);
        let averages = busy.clone().map(|period| period.latency_sum_ns as f64 / period.ops as f64);
        let (ops, sum) =
            busy.fold((0, 0), |(ops, sum), period| (ops + period.ops, sum + period.latency_sum_ns));
        if ops == 0 {
            return PeriodAverages::default();
        }
        PeriodAverages {
            avg: sum as f64 / ops as f64,
            min: averages.clone().fold(f64::INFINITY, f64::min),
            max: averages.fold(0.0, f64::max),
        }
    }

    /// Returns the number of operations that failed, missed or never completed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.misses + self.errors + self.unfinished
    }
}

/// Collects a run's latencies.
pub(super) struct Recorder {
    counts_from: u64,
    window: u64,
    latencies: Latencies,
    periods: Vec<Period>,
    misses: u64,
    errors: u64,
    unfinished: u64,
}

impl Recorder {
    pub(super) fn new(counts_from: u64, window: u64) -> Self {
        let periods = usize::try_from(window.div_ceil(PERIOD_NS).clamp(1, MAX_PERIODS))
            .expect("at most 6,000");
        Self {
            counts_from,
            window,
            latencies: Latencies::new(),
            periods: vec![Period::default(); periods],
            misses: 0,
            errors: 0,
            unfinished: 0,
        }
    }

    /// Returns the number of latencies recorded so far.
    pub(super) fn counted(&self) -> u64 {
        self.latencies.count()
    }

    /// Records an operation that ended at `end` and started, or should have started, at `start`.
    pub(super) fn record(&mut self, start: u64, end: u64, outcome: Outcome) {
        let latency = end.saturating_sub(start);
        if let Some(since) = end.checked_sub(self.counts_from).filter(|&since| since < self.window)
        {
            let index = usize::try_from(since / PERIOD_NS)
                .unwrap_or(usize::MAX)
                .min(self.periods.len() - 1);
            self.periods[index].ops += 1;
            self.periods[index].latency_sum_ns += latency;
        }
        if start >= self.counts_from {
            self.latencies.record(latency);
            match outcome {
                Outcome::Ok { .. } => {}
                Outcome::Miss => self.misses += 1,
                Outcome::Full | Outcome::Error => self.errors += 1,
            }
        }
    }

    /// Records an operation that has not completed at `now`, and for which the run no longer waits.
    /// It started, or should have started, at `start`.
    pub(super) fn give_up(&mut self, start: u64, now: u64) {
        if start >= self.counts_from {
            self.latencies.record(now.saturating_sub(start));
            self.unfinished += 1;
        }
    }

    pub(super) fn finish(mut self, target: &dyn LoadTarget, plan: &LoadPlan, end: u64) -> Measured {
        let window = end.saturating_sub(self.counts_from).min(self.window);
        self.periods.truncate(usize::try_from(window.div_ceil(PERIOD_NS)).unwrap_or(usize::MAX));
        Measured {
            target: target.name().to_owned(),
            transport: target.transport().to_owned(),
            connections: target.connections(),
            plan: plan.clone(),
            seconds: window as f64 / 1e9,
            ended: self.periods.iter().map(|period| period.ops).sum(),
            latencies: self.latencies,
            periods: self.periods,
            misses: self.misses,
            errors: self.errors,
            unfinished: self.unfinished,
        }
    }
}
