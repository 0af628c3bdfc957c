//! Summarizes the measurement of a load, and compares two of them.

use serde::{Deserialize, Serialize};
use sprat_load::LoadReport;

/// Lower limit on the margin: on any machine a smaller relative difference is noise.
const LEAST_MARGIN: f64 = 0.05;

/// Upper limit on the margin: an improvement of more than this counts even on a noisy machine.
const MOST_MARGIN: f64 = 0.5;

/// The latency, in ms, that stands for a window without successful operations.
const NOTHING_MS: f64 = 60_000.0;

/// A load's result. Times are in ms, from the intended start of operations.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Measured {
    /// The value to compare, lower is better: the geometric mean of the 99th percentiles of the
    /// report's full windows in which operations were scheduled. A window without successful
    /// operations counts as 60,000 ms, and a load without full windows has this score. A single bad
    /// window hardly changes the score; many bad windows do.
    pub score: f64,
    /// Median latency.
    pub p50: f64,
    /// 99th percentile of latency.
    pub p99: f64,
    /// 99.9th percentile of latency.
    pub p999: f64,
    /// The largest latency of an operation.
    pub max: f64,
    /// Scheduled operations per second, whether they succeeded or not.
    pub rate: f64,
    /// Share of the scheduled operations that succeeded, 0 to 1; 0 if none was scheduled.
    pub done: f64,
    /// The number of windows in which the load missed its rate.
    pub missed: usize,
    /// The number of windows in the report, including partial ones.
    pub seconds: usize,
}

impl Measured {
    /// Summarizes the report of a load.
    #[must_use]
    pub fn of(report: &LoadReport) -> Self {
        let ms = |micros: u64| micros as f64 / 1e3;
        let full: Vec<f64> = report
            .windows
            .iter()
            .filter(|window| window.full && window.scheduled > 0)
            .map(|window| {
                if window.response.count > 0 { ms(window.response.p99.max(1)) } else { NOTHING_MS }
            })
            .collect();
        let logs: f64 = full.iter().map(|p99| p99.ln()).sum();
        Self {
            score: if full.is_empty() { NOTHING_MS } else { (logs / full.len() as f64).exp() },
            p50: ms(report.response.p50),
            p99: ms(report.response.p99),
            p999: ms(report.response.p999),
            max: ms(report.response.max),
            rate: report.scheduled as f64 / report.seconds.max(1e-9),
            done: if report.scheduled > 0 {
                report.done as f64 / report.scheduled as f64
            } else {
                0.0
            },
            missed: report.missed.len(),
            seconds: report.windows.len(),
        }
    }
}

/// Returns the margin: the relative difference of the scores of two measurements of the same
/// settings, limited to 0.05 to 0.5. If two settings differ by less than the margin, the difference
/// is noise.
#[must_use]
pub fn margin(one: &Measured, other: &Measured) -> f64 {
    let (small, large) = (one.score.min(other.score), one.score.max(other.score));
    (large / small.max(f64::MIN_POSITIVE) - 1.0).clamp(LEAST_MARGIN, MOST_MARGIN)
}

/// Returns whether `after` improves on `before` by more than `margin`: the score of `before`
/// exceeds `1 + margin` times that of `after`.
#[must_use]
pub fn better(before: &Measured, after: &Measured, margin: f64) -> bool {
    after.score * (1.0 + margin) < before.score
}
