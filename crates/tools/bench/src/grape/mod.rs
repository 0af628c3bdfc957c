//! The calculator: kernels beside what the processor can do and beside peers, in turns; the drift
//! of a cluster of stars; steps of a GRAPE-DR.
//!
//! All times are processor time of one thread on one core, best of the rounds.

mod chip;
mod drift;
mod kernels;
mod peers;
mod question;
mod rate;

use crate::promises::Chapter;

pub use question::{Answer, Question};

/// The chapters, in order.
pub const CHAPTERS: &[Chapter] = &[
    ("kernels", kernels::chapter),
    ("peers", peers::chapter),
    ("drift", drift::chapter),
    ("chip", chip::chapter),
];
