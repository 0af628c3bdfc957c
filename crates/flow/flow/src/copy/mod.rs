//! The copy: a file from a server, or another disk, to here, whole and verified or not at all.
//!
//! ```no_run
//! use sprat_flow::copy::{Event, Fetch, Options};
//! let fetch = Fetch::new("sprat://left.example/big.iso", "big.iso".as_ref(), Options::default())?;
//! let outcome = fetch.run(&mut |event| {
//!     if let Event::Progress(progress) = event {
//!         eprintln!("{} B are here", progress.done);
//!     }
//! })?;
//! assert!(outcome.verified);
//! # Ok::<(), sprat_flow::copy::Error>(())
//! ```
//!
//! The caller's thread waits and tells; each stream has a thread of its own, which receives, checks, and hands groups to one
//! [`Sink`](crate::file::Sink).

pub mod answer;
pub(crate) mod client;
pub(crate) mod error;
mod finish;
mod host;
mod job;
mod lane;
mod local;
mod look;
mod options;
pub mod plan;
mod resume;
mod send;
mod shared;
mod sources;
pub mod spread;
mod sums;
mod tree;
mod unknown;
mod vouch;

pub use error::Error;
pub use look::{Look, look};
pub use options::{MAX_HOSTS, MAX_STREAMS, Options};
pub use send::{Upload, UploadTree};
pub use spread::{Gather, Spread, SpreadOutcome};
pub use sums::{Summed, Summer, Sums};
pub use tree::{Tree, TreeOutcome};

use crate::file::Place;
use crate::group::Value;
use sprat_http::{Address, Cancel};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where `/dev/null` is: what is copied there is received and verified, and thrown away.
const NOWHERE: &str = "/dev/null";

/// Between two tellings of where a copy is.
const TELL: Duration = Duration::from_millis(100);

/// A transfer of one file to here: from a server, from several that may have it, or from another
/// disk of this machine.
///
/// [`Fetch::new`] says where from and where to, [`Fetch::also`] names more servers, and
/// [`Fetch::run`] does it, on the caller's thread and one more for each stream. It reports what
/// happens by a callback, and returns when the file has its name or cannot have it. Until then the
/// bytes lie beside the destination, with a journal of what is verified and durable, from which the
/// next run of an equal transfer goes on. [`Fetch::cancel`] returns a handle by which any thread
/// stops it. A transfer may run again after an error.
#[derive(Debug)]
pub struct Fetch {
    origin: Origin,
    /// Other hosts that may have the same file.
    others: Vec<Address>,
    place: Place,
    options: Options,
    cancel: Cancel,
}

/// Where a file comes from.
#[derive(Clone, Debug)]
enum Origin {
    Server(Address),
    File(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(address) => address.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

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
    /// Whether every group was verified against the source's value, or the whole against a sum that was given.
    pub verified: bool,
    /// Whether it was there already, as long and as old as the source, and nothing was done.
    pub unchanged: bool,
    /// How it went.
    pub progress: Progress,
    /// What came from where in this run, the host that decided what the file is first; empty when nothing was done.
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

impl Fetch {
    /// Fetches the file at an address, or a local one, to `target`: the name that it will have, or
    /// a directory in which it keeps its own.
    ///
    /// # Errors
    /// [`Error::Usage`], [`Error::Place`].
    pub fn new(source: &str, target: &Path, options: Options) -> Result<Self, Error> {
        if source.contains("://") {
            let address = Address::parse(source)?.with_token(options.token.as_deref());
            return Self::of(address, target, options);
        }
        let path = PathBuf::from(source);
        let name = path.file_name().map(PathBuf::from);
        Self::from(Origin::File(path), name, target, options)
    }

    /// Fetches the file at an address that was parsed before, with the credentials that it has.
    ///
    /// # Errors
    /// As [`Fetch::new`].
    pub fn of(address: Address, target: &Path, options: Options) -> Result<Self, Error> {
        let name = address.name().map(PathBuf::from);
        Self::from(Origin::Server(address), name, target, options)
    }

    fn from(origin: Origin, name: Option<PathBuf>, target: &Path, options: Options) -> Result<Self, Error> {
        options.check()?;
        let is_folder = target.is_dir() || target.as_os_str().as_encoded_bytes().ends_with(b"/");
        let target = match name {
            _ if !is_folder => target.to_owned(),
            Some(name) => target.join(name),
            None => {
                return Err(Error::Usage(format!(
                    "{origin}: has no name at its end; say what the file is to be called"
                )));
            }
        };
        Ok(Self { origin, others: Vec::new(), place: Place::of(&target)?, options, cancel: Cancel::default() })
    }

    /// Another host that may have the same file: `HOST[:PORT]` for the same path there, by the same token; or an address, which is told
    /// nothing of who we are but what is in it. Every group that comes from it is held against what the first host says of it.
    ///
    /// # Errors
    /// [`Error::Usage`]: not an address, a host that is named already, more than [`MAX_HOSTS`], or the source is a local file.
    pub fn also(&mut self, host: &str) -> Result<(), Error> {
        let Origin::Server(first) = &self.origin else {
            return Err(Error::Usage(format!("{host}: other hosts are for a file on a server, not for a local one")));
        };
        let other = if host.contains("://") { Address::parse(host)? } else { first.at_host(host)? };
        if other.path().ends_with('/') {
            return Err(Error::Usage(format!("{other}: is a folder; name the file")));
        }
        if *first == other || self.others.contains(&other) {
            return Err(Error::Usage(format!("{other}: is named twice")));
        }
        if self.others.len() + 1 >= MAX_HOSTS {
            return Err(Error::Usage(format!("more than {MAX_HOSTS} hosts for one file")));
        }
        self.others.push(other);
        Ok(())
    }

    /// Whether what comes is thrown away.
    fn is_for_nowhere(&self) -> bool {
        self.place.target() == Path::new(NOWHERE)
    }

    /// The file that will be there.
    #[must_use]
    pub fn target(&self) -> &Path {
        self.place.target()
    }

    /// A handle that stops it.
    #[must_use]
    pub fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Stops when this handle says so, which others may share.
    pub fn stop_with(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }

    /// Fetches the file, and reports how it goes.
    ///
    /// # Errors
    /// [`Error`]. What has arrived stays beside the destination, for the next attempt, unless it is of no use.
    pub fn run(&self, tell: &mut dyn FnMut(&Event)) -> Result<Outcome, Error> {
        job::run(self, tell)
    }
}
