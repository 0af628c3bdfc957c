//! What a transfer reports while it runs, and its outcome. This file depends on no other file of
//! `copy`.

use crate::group::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Interval between two reports of progress.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// A report of a transfer that is running, passed to the callback of its `run`.
#[derive(Clone, Debug)]
pub enum Event {
    /// The source has responded, or for an upload the server.
    Opened {
        /// The source's address without credentials, or its local path.
        source: String,
        /// The destination's local path, or for an upload its address.
        target: PathBuf,
        /// Length of the file in bytes, if known.
        length: Option<u64>,
        /// Whether the bytes are verified as they arrive.
        verified: bool,
        /// Bytes that an earlier attempt received and that are not transferred again.
        resumed: u64,
        /// Number of TCP streams; 1 for a local copy.
        streams: usize,
        /// How the file is written, as a text for the user.
        written: String,
    },
    /// The progress so far, about ten times a second.
    Progress(Progress),
    /// A group arrived corrupt. It is transferred again, unless this has happened too often.
    Wrong {
        /// The offset of the group's first byte in the file.
        offset: u64,
        /// The group's length, in bytes.
        bytes: u64,
        /// How often this group has arrived corrupt. If a host other than the first sent the group,
        /// all corrupt groups from that host count. If the group belongs to a piece of a set, all
        /// corrupt groups of that piece count.
        times: u32,
    },
    /// An attempt failed, for example because a connection broke, and the transfer tries again.
    Retry {
        /// Why the attempt failed.
        why: String,
        /// The pause before the next attempt.
        pause: Duration,
    },
    /// The bytes received cannot be used, and the file is transferred from its beginning.
    StartsOver {
        /// Why the bytes cannot be used.
        why: String,
    },
    /// Bytes of an earlier attempt are being read and verified.
    Checking {
        /// How many bytes are being verified.
        bytes: u64,
    },
    /// A file of a folder could not be copied. The transfer continues with the other files.
    Failed {
        /// The file's path within the folder.
        name: String,
        /// Why the file could not be copied.
        why: String,
    },
    /// One of several hosts cannot be used. The transfer continues with the other hosts.
    HostDropped {
        /// The file's address at the host.
        source: String,
        /// Why the host cannot be used.
        why: String,
    },
    /// A message for the user.
    Note(String),
}

/// Progress of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Bytes of the file that are complete, and verified where that is possible.
    pub done: u64,
    /// Bytes of the file that were transferred in this run.
    pub received: u64,
    /// Length of the file in bytes, if known.
    pub length: Option<u64>,
    /// The latest measurement of any stream's round-trip time; zero if there is none.
    pub rtt: Duration,
    /// Attempts to transfer bytes that failed and were repeated.
    pub retries: u64,
    /// Groups that arrived corrupt.
    pub wrong: u64,
}

/// The outcome of a transfer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The destination's local path, or for an upload its address.
    pub target: PathBuf,
    /// Length of the file in bytes.
    pub length: u64,
    /// The file's BLAKE3 hash; `None` if the destination already had the file and no sum was given.
    pub blake3: Option<Value>,
    /// Whether every group was verified against the value that the source states, or the whole file
    /// against a given sum.
    pub verified: bool,
    /// Whether the destination already had a file of the same length and time, so that nothing was
    /// transferred.
    pub unchanged: bool,
    /// The final progress.
    pub progress: Progress,
    /// Bytes received from each host in this run, first from the host that defined the file. Empty
    /// if the destination already had the file, and for uploads.
    pub sources: Vec<Served>,
    /// Duration of the run.
    pub time: Duration,
}

/// How many bytes one host contributed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Served {
    /// The file's address at the host.
    pub source: String,
    /// Bytes of the file from this host that were used.
    pub bytes: u64,
}
