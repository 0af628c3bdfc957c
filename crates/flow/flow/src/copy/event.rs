//! What a transfer reports while it goes on, and at its end. Uses no other file of `copy`.

use crate::group::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Interval between two reports of progress.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// What happens meanwhile.
#[derive(Clone, Debug)]
pub enum Event {
    /// The source has answered.
    Opened {
        /// Where from.
        source: String,
        /// Where to.
        target: PathBuf,
        /// Bytes of the file, if they are known.
        length: Option<u64>,
        /// Whether what comes is verified on the way.
        verified: bool,
        /// Bytes that were here already.
        resumed: u64,
        /// Streams.
        streams: usize,
        /// How the file is written.
        written: String,
    },
    /// Where it is; some ten times a second.
    Progress(Progress),
    /// A group arrived wrong and is fetched again.
    Wrong {
        /// Where in the file, bytes.
        offset: u64,
        /// How long it is.
        bytes: u64,
        /// How often it arrived wrong so far.
        times: u32,
    },
    /// A connection failed; another is tried.
    Retry {
        /// Why.
        why: String,
        /// After which pause.
        pause: Duration,
    },
    /// What is here cannot be used, and everything is fetched.
    StartsOver {
        /// Why.
        why: String,
    },
    /// What is here is read and verified.
    Checking {
        /// Bytes.
        bytes: u64,
    },
    /// A file of a folder could not be copied; the others are.
    Failed {
        /// Its name within the folder.
        name: String,
        /// Why.
        why: String,
    },
    /// One of several hosts is of no use, and the copy goes on with the others.
    Without {
        /// The file there.
        source: String,
        /// Why.
        why: String,
    },
    /// What the user should know.
    Note(String),
}

/// Where a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Bytes of the file that are here, and right as far as can be known.
    pub done: u64,
    /// Bytes of those that came in this run.
    pub received: u64,
    /// Bytes of the file, if they are known.
    pub length: Option<u64>,
    /// The round-trip time as a stream saw it last; zero when not known.
    pub rtt: Duration,
    /// Connections that failed and were tried again.
    pub retries: u64,
    /// Groups that arrived wrong.
    pub wrong: u64,
}

/// What came of a copy.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The file.
    pub target: PathBuf,
    /// Its length, bytes.
    pub length: u64,
    /// Its BLAKE3 hash; none when it was there already and no sum was asked for.
    pub blake3: Option<Value>,
    /// Whether every group was verified against the source's value, or the whole against a sum
    /// that was given.
    pub verified: bool,
    /// Whether it was there already, as long and as old as the source, and nothing was done.
    pub unchanged: bool,
    /// How it went.
    pub progress: Progress,
    /// What came from where in this run, the host that decided what the file is first; empty when
    /// nothing was done.
    pub sources: Vec<Served>,
    /// How long it took.
    pub time: Duration,
}

/// What came from one host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Served {
    /// The file there.
    pub source: String,
    /// Bytes of it that were taken.
    pub bytes: u64,
}
