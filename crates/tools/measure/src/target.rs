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
    /// Read the values of several keys in one request.
    GetMany {
        /// The keys, one after another.
        keys: &'a [u8],
        /// The length of each key.
        key_bytes: usize,
    },
    /// Store `value` under `key`.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Read the values of several keys, or store a value under each of them, in one transaction.
    /// Only for targets that have transactions.
    Transact {
        /// The keys, one after another; no two are equal.
        keys: &'a [u8],
        /// The length of each key.
        key_bytes: usize,
        /// The value to store; `None` to read.
        value: Option<&'a [u8]>,
    },
    /// A ping that the peer's driver echoes. It measures the path without the store. Only for
    /// targets whose driver supports pings.
    Ping,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The operation succeeded.
    Ok {
        /// Bytes of value that were read, of all values together; 0 for a write.
        bytes: usize,
    },
    /// The key does not exist.
    Miss,
    /// The system refused the operation because its memory is full, perhaps only until cleaning has
    /// freed memory.
    Full,
    /// The system replied with an error, or lost the operation.
    Error,
}

impl Outcome {
    /// Returns the outcome of an operation that consists of one with this outcome and one with the
    /// `other`: the first that is not `Ok`, or the sum of the bytes.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Ok { bytes }, Self::Ok { bytes: more }) => Self::Ok { bytes: bytes + more },
            (Self::Ok { .. }, other) => other,
            (failed, _) => failed,
        }
    }
}

/// A completed operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Completion {
    /// The tag passed to [`LoadTarget::submit`].
    pub tag: u64,
    /// The operation's outcome.
    pub outcome: Outcome,
}

/// How the generator waits for completions.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Polls again at once. This has the lowest latency and uses a whole core.
    Spin,
    /// Sleeps in the kernel until bytes arrive, like an ordinary blocking client.
    Sleep,
}

impl<'a> Op<'a> {
    /// Returns the operation's keys.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let (keys, key_bytes) = match *self {
            Op::Get { key } | Op::Put { key, .. } => (key, key.len()),
            Op::GetMany { keys, key_bytes } | Op::Transact { keys, key_bytes, .. } => {
                (keys, key_bytes)
            }
            Op::Ping => (&[][..], 1),
        };
        keys.chunks_exact(key_bytes)
    }

    /// Returns whether the operation is a read.
    #[must_use]
    pub fn reads(&self) -> bool {
        matches!(self, Op::Get { .. } | Op::GetMany { .. } | Op::Transact { value: None, .. })
    }
}

impl Wait {
    /// Returns `spinning` or `sleeping`.
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
/// The generator submits operations to the target's connections with [`submit`](Self::submit). They
/// complete later, in any order, in [`poll`](Self::poll). The generator itself reads the clock,
/// before `submit` and after `poll`, so that a target cannot put its own readings into the figures.
pub trait LoadTarget {
    /// Returns the system's name in tables: `redis`, `sprat`.
    fn name(&self) -> &str;

    /// Returns the transport: `tcp`, `unix`, `fast+udp`.
    fn transport(&self) -> &str;

    /// Returns the number of the target's connections or sessions. Operations are spread over them
    /// by index.
    fn connections(&self) -> usize;

    /// Submits one operation on `connection` without blocking. The target may send it only at the
    /// next [`poll`](Self::poll), so that operations submitted together leave together. Returns
    /// `false`, and submits nothing, if the connection's window is full.
    ///
    /// # Errors
    /// If the connection is broken. The run then ends.
    fn submit(&mut self, connection: usize, op: &Op<'_>, tag: u64) -> Result<bool>;

    /// Sends the operations that wait to be sent, and appends completed operations to `done`. With
    /// zero `patience` it returns at once. Otherwise it sleeps until an operation has completed or
    /// `patience` is over; it may also return early without a completion.
    ///
    /// # Errors
    /// If a connection is broken. The run then ends.
    fn poll(&mut self, patience: Duration, done: &mut Vec<Completion>) -> Result<()>;

    /// Returns why the latest operation with [`Outcome::Full`] or [`Outcome::Error`] failed, if the
    /// target knows the reason.
    fn failure(&self) -> Option<&str> {
        None
    }

    /// The generator calls this before (`true`) and after (`false`) the target's turn in an
    /// interleaved run. A target whose server spins can thus park it while other targets are
    /// measured.
    fn set_active(&mut self, active: bool) {
        let _ = active;
    }
}
