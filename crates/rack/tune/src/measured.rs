//! What a load measured, and when one measurement is better than another.

use serde::{Deserialize, Serialize};
use sprat_load::Report;

/// What is believed to be better at least, as a share: less is chance on any machine.
const LEAST_MARGIN: f64 = 0.05;

/// What must be believed at most: a change that brings more than this is one, however restless the
/// machine is.
const MOST_MARGIN: f64 = 0.5;

/// A second in which nothing was answered counts as one of this, ms.
const NOTHING_MS: f64 = 60_000.0;

/// What came of a load. Times are ms, from when operations were to start.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Measured {
    /// By which measurements are compared: the geometric mean of the p99 of each second, so that a
    /// single bad second does not decide, and many do.
    pub score: f64,
    /// Half of all were no longer.
    pub p50: f64,
    /// 99 of 100 were no longer.
    pub p99: f64,
    /// 999 of 1000 were no longer.
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// Operations a second that were asked for.
    pub rate: f64,
    /// Of these, the share that was done.
    pub done: f64,
    /// Seconds in which the rate was missed.
    pub missed: usize,
    /// Seconds in all.
    pub seconds: usize,
}

impl Measured {
    /// Of a load's report.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        let ms = |micros: u64| micros as f64 / 1e3;
        let full: Vec<f64> = report
            .windows
            .iter()
            .filter(|window| window.full && window.asked > 0)
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
            rate: report.asked as f64 / report.seconds.max(1e-9),
            done: if report.asked > 0 { report.done as f64 / report.asked as f64 } else { 0.0 },
            missed: report.missed.len(),
            seconds: report.windows.len(),
        }
    }
}

/// By what two measurements of the same differ, as a share of the smaller: what lies within it is
/// chance.
#[must_use]
pub fn margin(one: &Measured, other: &Measured) -> f64 {
    let (small, large) = (one.score.min(other.score), one.score.max(other.score));
    (large / small.max(f64::MIN_POSITIVE) - 1.0).clamp(LEAST_MARGIN, MOST_MARGIN)
}

/// Whether `after` is better than `before` by more than chance.
#[must_use]
pub fn better(before: &Measured, after: &Measured, margin: f64) -> bool {
    after.score * (1.0 + margin) < before.score
}
