//! The interface between the load generator and a system under load.

use std::time::Duration;

use anyhow::Result;

/// One operation of the load.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    /// Read the value of `key`.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Store `value` under `key`.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// An echo by the peer's driver: the path without the store. Only for targets whose driver
    /// supports it.
    Ping,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It succeeded, and read `bytes` of value (0 for a write).
    Ok {
        /// Bytes of value in the reply.
        bytes: usize,
    },
    /// The key does not exist.
    Miss,
    /// The system refused it because its memory is full, perhaps only until cleaning has freed
    /// some.
    Full,
    /// The system replied with an error, or lost the operation.
    Error,
}

/// A completed operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Completion {
    /// The tag passed to [`LoadTarget::submit`].
    pub tag: u64,
    /// Its outcome.
    pub outcome: Outcome,
}

/// How the generator waits for completions.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Polls again at once: lowest latency, uses a whole core.
    Spin,
    /// Sleeps in the kernel until something arrives, like an ordinary blocking client.
    Sleep,
}

impl Wait {
    /// Names this way to wait: `spinning` or `sleeping`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Spin => "spinning",
            Self::Sleep => "sleeping",
        }
    }
}

/// A system under load, driven by one generator thread.
///
/// The generator submits operations to the target's connections with [`submit`](Self::submit); they
/// complete later, in any order, in [`poll`](Self::poll). The generator reads the clock itself,
/// before `submit` and after `poll`, so that a target cannot put its own readings into the figures.
pub trait LoadTarget {
    /// Returns the system's name in tables: `redis`, `sprat`.
    fn name(&self) -> &str;

    /// Returns the transport: `tcp`, `unix`, `fast+udp`.
    fn transport(&self) -> &str;

    /// Returns the number of its connections or sessions; operations are spread over them by index.
    fn connections(&self) -> usize;

    /// Submits one operation on `connection` without blocking. The target may send it only at the
    /// next [`poll`](Self::poll), so that operations submitted together leave together. Returns
    /// `false`, and submits nothing, if the connection's window is full.
    ///
    /// # Errors
    /// If the connection is broken: the run ends.
    fn submit(&mut self, connection: usize, op: &Op<'_>, tag: u64) -> Result<bool>;

    /// Sends what waits to be sent and appends completed operations to `done`. With zero `patience`
    /// it returns at once; otherwise it sleeps until something has completed or `patience` is over,
    /// and may return early with nothing.
    ///
    /// # Errors
    /// If a connection is broken: the run ends.
    fn poll(&mut self, patience: Duration, done: &mut Vec<Completion>) -> Result<()>;

    /// Returns why the latest operation with [`Outcome::Full`] or [`Outcome::Error`] failed, if the
    /// target knows.
    fn failure(&self) -> Option<&str> {
        None
    }

    /// The generator calls this before (`true`) and after (`false`) the target's turn in an
    /// interleaved run, so that a target whose server spins can park it while others are measured.
    fn set_active(&mut self, active: bool) {
        let _ = active;
    }
}
