//! `bench rack`: a rack on this machine, started by `sprat rack up`. Checks whether our load
//! generator and a peer report a stopped instance, and measures the effect of tuning.

mod bed;
mod honesty;
mod tuned;

use crate::promises::Chapter;

/// The chapters, in order.
pub const CHAPTERS: &[Chapter] =
    &[("honesty", honesty::chapter), ("planted", tuned::planted), ("defaults", tuned::defaults)];
