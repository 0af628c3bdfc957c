//! What is shared and how, what holds a server back, and what it reports.

use super::access::Tokens;
use super::receive::KEPT_FOR;
use sprat_pace::Pace;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use thiserror::Error;

/// Most connections at a time, unless told; one more waits.
pub const MAX_CONNECTIONS: usize = 256;

/// Most connections at a time from one address (of IPv6: one network of 64 bits), unless told.
pub const MAX_PER_ADDRESS: usize = 64;

/// Most connections that wait until one that is served ends, unless told; one more is answered 503
/// and closed.
pub const MAX_WAITING: usize = 256;

/// What holds a server back from doing too much, or waiting too long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Connections at a time from one address.
    pub per_address: usize,
    /// Connections that wait for their turn, for as long as one may be idle.
    pub waiting: usize,
    /// How long a head may take from its first byte, and the first byte of a connection, with its
    /// TLS handshake.
    pub head: Duration,
    /// How long a connection may be without a request.
    pub idle: Duration,
    /// How long the other end may take no byte of an answer.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: MAX_CONNECTIONS,
            per_address: MAX_PER_ADDRESS,
            waiting: MAX_WAITING,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            patience: Duration::from_secs(60),
        }
    }
}

/// Told of every answer, on the thread of its connection.
pub type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

/// What is shared, and how.
#[derive(Clone)]
pub struct Options {
    /// The directory.
    pub root: PathBuf,
    /// Where to listen; port 0 is one that is free.
    pub listen: Vec<SocketAddr>,
    /// Also what has a name that begins with a dot.
    pub hidden: bool,
    /// Encrypts, with this certificate.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Who may see it, and put something there; without a token everybody.
    pub tokens: Tokens,
    /// Files are taken too, of so many bytes at most.
    pub writable: Option<u64>,
    /// Bytes of the disk that unfinished uploads may hold together; none: half of the filesystem.
    pub max_unfinished: Option<u64>,
    /// How long the part of an upload is kept that nobody goes on with.
    pub keep_unfinished: Duration,
    /// Names by which it may be asked for at loopback and private addresses, besides this
    /// machine's own.
    pub names: Vec<String>,
    /// Whether files are given, and taken, with their extended attributes (`user.*`), where that
    /// is asked for.
    pub xattrs: bool,
    /// How fast each connection sends.
    pub pace: Pace,
    /// Limits.
    pub limits: Limits,
    /// Told of every answer.
    pub observer: Option<Observer>,
}

impl Options {
    /// Shares `root` with everybody, without encryption, at `listen`.
    #[must_use]
    pub fn new(root: PathBuf, listen: Vec<SocketAddr>) -> Self {
        Self {
            root,
            listen,
            hidden: false,
            tls: None,
            tokens: Tokens::default(),
            writable: None,
            max_unfinished: None,
            keep_unfinished: KEPT_FOR,
            names: Vec::new(),
            xattrs: false,
            pace: Pace::Auto,
            limits: Limits::default(),
            observer: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { root, listen, hidden, tls, tokens, writable, pace, limits, .. } = self;
        let tls = tls.is_some();
        write!(
            f,
            "Options {{ {root:?}, {listen:?}, hidden: {hidden}, tls: {tls}, {tokens:?}, writable: {writable:?}, {pace:?}, {limits:?} }}"
        )
    }
}

/// An answer that was given.
#[derive(Clone, Debug)]
pub struct Event {
    /// To whom.
    pub peer: SocketAddr,
    /// What was asked; `-` when it was no request.
    pub method: &'static str,
    /// Of what, as an address has it; `-` when it was no request.
    pub path: String,
    /// The answer's status.
    pub status: u16,
    /// Bytes of its body that were given to the kernel; of what is put, bytes of the file that
    /// came.
    pub bytes: u64,
    /// Whether in verified form.
    pub verified: bool,
    /// Bytes of the file whose values were computed for it: those of others were known.
    pub summed: u64,
    /// From the request's end to the answer's.
    pub took: Duration,
    /// What the kernel knew of the connection's path then; nothing when it was gone.
    pub network: Option<sprat_pace::path::Path>,
    /// Why it was broken off.
    pub error: Option<String>,
}

/// Why nothing is shared.
#[derive(Debug, Error)]
pub enum ShareError {
    /// The directory cannot be.
    #[error("cannot share {}: {source}", path.display())]
    Root {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// An address cannot be listened at.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// No address was told.
    #[error("no address to listen at")]
    Nowhere,
    /// A thread or a pipe cannot be made.
    #[error("cannot start: {0}")]
    Start(io::Error),
}
