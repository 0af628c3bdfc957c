//! A rack on this machine, brought there by `sprat rack up`: whether the load tells what happened,
//! beside a peer of it; and what tuning brings.

mod bed;
mod honesty;
mod tuned;

use crate::promises::Chapter;

/// The chapters, in order.
pub const CHAPTERS: &[Chapter] =
    &[("honesty", honesty::chapter), ("planted", tuned::planted), ("defaults", tuned::defaults)];
