//! How much lateness is tolerated before a measurement is in doubt.

use crate::chance::Probability;
use std::time::Duration;

/// Default of [`Tolerance::late`].
const LATE: Duration = Duration::from_millis(1);

/// Default of [`Tolerance::share`], in percent. It allows for a virtual machine that occasionally
/// loses its processor for milliseconds.
const PERCENT: f64 = 1.0;

/// What share of a line's segments may leave late before the report says that the box did not keep
/// up. By default, 1 % may leave more than a millisecond late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The share; with all, lateness is never a reason.
    pub share: Probability,
    /// A departure is late if it is later than this.
    pub late: Duration,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { share: Probability::new(PERCENT / 100.0).expect("a share"), late: LATE }
    }
}

impl Tolerance {
    /// Returns whether `late` of `of` segments are more than may be late.
    pub(super) fn exceeded(&self, late: u64, of: u64) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a share of segments")]
        let (late, of) = (late as f64, of as f64);
        late > of * self.share.share()
    }
}
