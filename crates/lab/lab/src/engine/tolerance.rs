//! How much lateness is tolerated before a measurement is in doubt.

use crate::chance::Probability;
use std::time::Duration;

/// Default of [`Tolerance::late`].
const LATE: Duration = Duration::from_millis(1);

/// Default of [`Tolerance::share`], in percent. With it, a virtual machine may occasionally lose
/// its processor for milliseconds.
const PERCENT: f64 = 1.0;

/// The share of a line's segments that may leave late before the report says that the box did not
/// keep up. By default, 1 % may leave more than a millisecond late. The report never says so of a
/// line with fewer than 10 late packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The share of segments that may be late. With 100 %, lateness never counts.
    pub share: Probability,
    /// A segment is late if it leaves more than this after it was due.
    pub late: Duration,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { share: Probability::new(PERCENT / 100.0).expect("a share"), late: LATE }
    }
}

impl Tolerance {
    /// Returns whether `late` late segments of `of` are more than the share allows.
    pub(super) fn exceeded(&self, late: u64, of: u64) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a share of segments")]
        let (late, of) = (late as f64, of as f64);
        late > of * self.share.share()
    }
}
