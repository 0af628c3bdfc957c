//! What came of a load.

use crate::failures::Failures;
use crate::windows::{Quantiles, Window};
use serde::Serialize;

/// Share of what was asked in a window that must have been delivered in it.
pub const KEPT_SHARE: f64 = 0.95;

/// Operations that a window may lack besides: one that starts at its very end is done in the next.
pub const EDGE: u64 = 1;

/// What came of a load. Times are us.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// For how long operations were asked for, seconds.
    pub seconds: f64,
    /// Whether it was stopped before its end.
    pub stopped: bool,
    /// Operations that were to start.
    pub asked: u64,
    /// Of these, those that were sent.
    pub sent: u64,
    /// Those that were not, because too many were under way.
    pub not_sent: u64,
    /// Of those sent, those that were done.
    pub done: u64,
    /// Those that failed, those without an answer among them.
    pub failed: u64,
    /// Those that had no answer when the time for it was up.
    pub unanswered: u64,
    /// Of those done, reads that found nothing.
    pub found_nothing: u64,
    /// Of those done, those that were so after the last window.
    pub late: u64,
    /// From the intended start to the answer, of those done: what whoever asks has to wait.
    pub response: Quantiles,
    /// From the actual start to the answer, of those done.
    pub service: Quantiles,
    /// From the intended start to the actual one: how late the load itself was.
    pub lateness: Quantiles,
    /// What failed.
    pub failures: Failures,
    /// Windows of time, in order.
    pub windows: Vec<Window>,
    /// Windows that [`missed`] their rate, by number.
    pub missed: Vec<usize>,
}

impl Report {
    /// Whether all that was asked was delivered when it was asked: no window missed, nothing not
    /// sent, no failure.
    #[must_use]
    pub fn kept_rate(&self) -> bool {
        self.asked > 0 && self.missed.is_empty() && self.not_sent == 0 && self.failed == 0
    }
}

/// Full windows in which less was delivered than was asked, by number: below [`KEPT_SHARE`] of it,
/// and more than [`EDGE`] operations short, be it of windows before. Where answers take longer than
/// a twentieth of a window, the first one after each rise of the rate is among them.
#[must_use]
pub fn missed(windows: &[Window]) -> Vec<usize> {
    let (mut expected, mut delivered) = (0, 0);
    let mut misses = |window: &Window| {
        expected += window.asked - window.not_sent - window.failed;
        delivered += window.delivered;
        let short =
            window.asked.saturating_sub(window.delivered).max(expected.saturating_sub(delivered));
        window.full && (window.delivered as f64) < KEPT_SHARE * window.asked as f64 && short > EDGE
    };
    windows
        .iter()
        .enumerate()
        .filter(|(_, window)| misses(window))
        .map(|(number, _)| number)
        .collect()
}
