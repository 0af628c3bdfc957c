//! Why a box did not start, or stopped by itself.

use super::MAX_PORTS;
use crate::filter::MAX_RULES;
use crate::port::PortError;

/// Why a box did not start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Ports cannot be joined in this way: there are too many, too few or an odd number.
    #[error(
        "{0} ports cannot be joined so: pairs are two ports each, a switch has two or more; \
         {MAX_PORTS} are the limit of both"
    )]
    Ports(usize),
    /// A port failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// There is no such port.
    #[error("no port {0:?}; the ports are {1}")]
    NoSuchPort(String, String),
    /// The machine does not have enough free memory.
    #[error(
        "packet memory of {needed} MB is needed, {available} MB are available: give less with \
         --memory, or set less rate, delay or buffer"
    )]
    Memory {
        /// Megabytes that all workers need.
        needed: u64,
        /// Megabytes that are free or can be reclaimed.
        available: u64,
    },
    /// The system refused a call.
    #[error("{0}: {1}")]
    System(&'static str, std::io::Error),
    /// The filter would have this many rules, more than the limit.
    #[error("{0} rules; {MAX_RULES} are the limit of a box")]
    Rules(usize),
    /// A worker has ended, or did not reply within 10 seconds.
    #[error("the box has stopped: a worker ended")]
    Stopped,
}
