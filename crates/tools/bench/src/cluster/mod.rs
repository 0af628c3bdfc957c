//! The store on many servers, all of them on this machine: what replicas cost, how fast what a
//! server had is brought back, and what clients notice when one dies, or when a tablet moves. And
//! what it costs that members of a cluster seal what they say.

mod encryption;
mod failover;
mod latency;
mod moving;
mod recovery;
mod servers;

use crate::promises::Chapter;

/// The chapters, in order.
pub const CHAPTERS: &[Chapter] = &[
    ("write", latency::chapter),
    ("recovery", recovery::chapter),
    ("failover", failover::chapter),
    ("moving", moving::chapter),
    ("encryption", encryption::chapter),
];
