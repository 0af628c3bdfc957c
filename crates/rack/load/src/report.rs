//! The result of a load.

use crate::failures::Failures;
use crate::windows::{Quantiles, Window};
use serde::Serialize;

/// Share of a window's scheduled operations: at least this many operations must succeed during the
/// window.
pub const KEPT_SHARE: f64 = 0.95;

/// Number of operations that a window may always lack: an operation that starts at the very end of
/// its window completes in the next one.
pub const EDGE: u64 = 1;

/// The result of a load. Quantiles of times are in us.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadReport {
    /// Seconds for which operations were scheduled.
    pub seconds: f64,
    /// Whether the load was stopped early.
    pub stopped: bool,
    /// Operations that were scheduled.
    #[serde(rename = "asked")]
    pub scheduled: u64,
    /// Operations that were sent.
    pub sent: u64,
    /// Operations that were not sent, because too many were outstanding.
    pub not_sent: u64,
    /// Operations that succeeded.
    pub done: u64,
    /// Operations that failed, including those without an answer.
    pub failed: u64,
    /// Operations without an answer when the load ended.
    pub unanswered: u64,
    /// Reads that found nothing.
    pub found_nothing: u64,
    /// Operations that succeeded after the end of the last window.
    pub late: u64,
    /// Time from the scheduled start to the answer, of successful operations: how long a client
    /// would have waited.
    pub response: Quantiles,
    /// Time from actual start to answer, of successful operations.
    pub service: Quantiles,
    /// Time from scheduled to actual start: how late the load generator was.
    pub lateness: Quantiles,
    /// Failures by kind.
    pub failures: Failures,
    /// Windows, in order.
    pub windows: Vec<Window>,
    /// Numbers of the windows that [`missed`] their rate.
    pub missed: Vec<usize>,
}

impl LoadReport {
    /// Returns whether every operation completed at the scheduled rate: no window missed its rate,
    /// all operations were sent, and none failed. False if no operation was scheduled.
    #[must_use]
    pub fn kept_rate(&self) -> bool {
        self.scheduled > 0 && self.missed.is_empty() && self.not_sent == 0 && self.failed == 0
    }
}

/// Returns the numbers of the full windows that missed their rate. During such a window, fewer
/// operations succeeded than [`KEPT_SHARE`] of those scheduled in it, and more than [`EDGE`]
/// operations are lacking. They are counted for this window alone, or for it and all windows before
/// it without operations that failed or were not sent; the larger number counts. If answers take
/// longer than a twentieth of a window, the first window after each rise of the rate counts as
/// missed.
#[must_use]
pub fn missed(windows: &[Window]) -> Vec<usize> {
    let (mut expected, mut delivered) = (0, 0);
    let mut misses = |window: &Window| {
        expected += window.scheduled - window.not_sent - window.failed;
        delivered += window.delivered;
        let short = window
            .scheduled
            .saturating_sub(window.delivered)
            .max(expected.saturating_sub(delivered));
        window.full
            && (window.delivered as f64) < KEPT_SHARE * window.scheduled as f64
            && short > EDGE
    };
    windows
        .iter()
        .enumerate()
        .filter(|(_, window)| misses(window))
        .map(|(number, _)| number)
        .collect()
}
