//! How much lateness is no reason to doubt what was measured.

use crate::chance::Probability;
use std::time::Duration;

/// Departures later than this are late, unless another time is set.
const LATE: Duration = Duration::from_millis(1);

/// Share of a line's segments that may be late, unless another is set, in percent: a guest's
/// processor is taken away for milliseconds now and then.
const PERCENT: f64 = 1.0;

/// What share of a line's segments may leave how late before its box did not keep up: 1 % more than
/// a millisecond, unless set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The share; all: lateness is never a reason.
    pub share: Probability,
    /// Departures later than this are late.
    pub late: Duration,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { share: Probability::new(PERCENT / 100.0).expect("a share"), late: LATE }
    }
}

impl Tolerance {
    /// Whether so many of these are more than may be late.
    pub(super) fn exceeded(&self, late: u64, of: u64) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a share of segments")]
        let (late, of) = (late as f64, of as f64);
        late > of * self.share.share()
    }
}
