//! `bench lab`: measures the network box between real kernels. The hosts are network namespaces of
//! the benchmark, which a box connects over TAPs. Nothing leaves the namespaces.

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
