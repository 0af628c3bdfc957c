//! `bench cluster`: the store on several servers of this machine. Measures the cost of replicas,
//! the speed of recovery, what clients notice when a server dies or a tablet migrates, and the cost
//! of encryption.

mod encryption;
mod failover;
mod latency;
mod moving;
mod recovery;
mod servers;
mod transactions;

use crate::promises::Chapter;

/// The chapters, in order.
pub const CHAPTERS: &[Chapter] = &[
    ("write", latency::chapter),
    ("transactions", transactions::chapter),
    ("recovery", recovery::chapter),
    ("failover", failover::chapter),
    ("moving", moving::chapter),
    ("encryption", encryption::chapter),
];
