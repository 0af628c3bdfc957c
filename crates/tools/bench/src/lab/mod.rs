//! What the network box promises, measured between kernels: hosts in network namespaces of the
//! benchmark's own, joined by a box over TAPs. Nothing leaves them.

mod delay;
mod fat;
pub(crate) mod host;
mod loss;
mod merge;
pub(crate) mod net;
pub(crate) mod probe;
mod record;
pub(crate) mod stream;
mod switching;
mod window;

use crate::promises::Chapter;

/// The chapters, in order.
pub const CHAPTERS: &[Chapter] = &[
    ("delay", delay::chapter),
    ("rate", delay::rate),
    ("loss", loss::chapter),
    ("stream", fat::chapter),
    ("merge", merge::chapter),
    ("window", window::chapter),
    ("switch", switching::chapter),
    ("capture", record::chapter),
];
