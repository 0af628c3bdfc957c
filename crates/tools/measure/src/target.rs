//! What a system under load looks like to the thread that loads it.

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
    /// An echo of the far end's driver: the path without the store. Of targets whose driver has
    /// such a thing.
    Ping,
}

/// How one operation ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// Done; `bytes` of value were read (0 for a write).
    Ok {
        /// Bytes of value in the answer.
        bytes: usize,
    },
    /// The key was not there.
    Miss,
    /// Refused, as the system's memory is full: perhaps for a moment, until what is dead has been
    /// cleaned away.
    Full,
    /// The system answered with an error, or lost the operation.
    Error,
}

/// An operation that ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Completion {
    /// What [`Target::submit`] was given.
    pub tag: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// What the generator does while nothing has arrived.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Asks again at once: lowest latency, costs a core.
    Spin,
    /// Sleeps in the kernel until something arrives, as an ordinary blocking client does.
    Sleep,
}

impl Wait {
    /// What a client or server that waits like this does: `spinning` or `sleeping`.
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
/// Operations are submitted to one of the target's connections and complete later, in order or
/// not, in [`poll`](Self::poll). A target never reorders its own clock readings into the figures:
/// the generator reads the clock, before `submit` and after `poll`.
pub trait Target {
    /// The system's name, as tables print it: `redis`, `sprat`.
    fn name(&self) -> &str;

    /// How it is reached: `tcp`, `unix`, `fast+udp`.
    fn transport(&self) -> &str;

    /// Connections (or sessions) it has; operations are spread over them by index.
    fn connections(&self) -> usize;

    /// Takes one operation for `connection` without blocking. The bytes may wait for the next
    /// [`poll`](Self::poll), so that operations submitted together leave together.
    /// Returns `false`, and takes nothing, when that connection's window is full.
    ///
    /// # Errors
    /// When the connection is beyond use: the run ends.
    fn submit(&mut self, connection: usize, op: &Op<'_>, tag: u64) -> Result<bool>;

    /// Sends what waits to be sent and appends what has completed to `done`. Returns at once when
    /// `patience` is zero; else sleeps until something completed or `patience` is over. May return
    /// early with nothing.
    ///
    /// # Errors
    /// When a connection is beyond use: the run ends.
    fn poll(&mut self, patience: Duration, done: &mut Vec<Completion>) -> Result<()>;

    /// Why the latest operation that ended in [`Outcome::Full`] or [`Outcome::Error`] did, where
    /// the target knows.
    fn failure(&self) -> Option<&str> {
        None
    }

    /// Called before (`true`) and after (`false`) the target's turn in an interleaved run, so that
    /// one whose server spins can park it while others are measured.
    fn set_active(&mut self, active: bool) {
        let _ = active;
    }
}
