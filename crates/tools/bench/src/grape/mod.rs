//! `bench grape`: compares kernels with the processor's peak and with peers, alternately. Also
//! measures the energy drift of a cluster of stars, and counts the steps of a GRAPE-DR.
//!
//! All times are processor times of one thread on one core. The best round counts.

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
