//! `bench flow`: compares the file mover with the usual programs. The hosts are network namespaces
//! of the benchmark, connected by a long fat pipe of the lab.

mod browser;
mod path;
mod ramp;
mod steady;
mod transfer;

use crate::promises::Chapter;

/// The chapters, in order.
pub const CHAPTERS: &[Chapter] = &[
    ("path", path::chapter),
    ("share", path::share),
    ("memory", steady::memory),
    ("disk", steady::disk),
    ("ramp", ramp::chapter),
    ("browser", browser::chapter),
];
