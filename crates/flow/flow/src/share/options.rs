//! Options of a server, its limits, and what it reports.

use super::access::Tokens;
use super::receive::KEPT_FOR;
use sprat_pace::Pace;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use thiserror::Error;

/// Default limit of concurrent connections. A further connection waits.
pub const MAX_CONNECTIONS: usize = 256;

/// Default limit of concurrent connections from one IPv4 address, or one IPv6 network of 64 bits.
pub const MAX_PER_ADDRESS: usize = 64;

/// Default limit of connections that wait for a slot. A further connection is answered with 503 and
/// closed.
pub const MAX_WAITING: usize = 256;

/// Limits that protect a server from overload and from clients that stall.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Limit on concurrent connections.
    pub connections: usize,
    /// Limit on concurrent connections from one IPv4 address or one IPv6 network of 64 bits.
    pub per_address: usize,
    /// Limit on connections that wait for a slot. A connection waits at most for the time `idle`.
    pub waiting: usize,
    /// Time limit for a request's head to arrive, from its first byte. For the first request of a
    /// connection the time starts with the connection and includes the TLS handshake.
    pub head: Duration,
    /// Time limit for a connection without a request.
    pub idle: Duration,
    /// Time limit for a client to make progress: to acknowledge a byte of a response, or to send a
    /// byte of an upload.
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

/// A function that is called after every response, on the thread of the response's connection.
pub type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

/// Options of a server. [`Options::new`] takes `root` and `listen`, and sets all other options to
/// defaults.
#[derive(Clone)]
pub struct Options {
    /// The directory to share.
    pub root: PathBuf,
    /// Addresses to listen on. Port 0 stands for a free port.
    pub listen: Vec<SocketAddr>,
    /// Whether to share names that begin with a dot.
    pub hidden: bool,
    /// The TLS configuration with a certificate; `None` serves plain text.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The tokens that grant access. If there are no tokens, everybody has access.
    pub tokens: Tokens,
    /// Limit on the length of an uploaded file, in bytes. A longer file is rejected. `None` forbids
    /// uploads.
    pub writable: Option<u64>,
    /// Limit on the disk space that all unfinished uploads together hold, in bytes. An upload that
    /// would exceed the limit is rejected with status 507. `None` stands for half of the
    /// filesystem.
    pub max_unfinished: Option<u64>,
    /// Time for which the part of an interrupted upload is kept, since it was last written.
    pub keep_unfinished: Duration,
    /// Host names accepted at loopback and private addresses in addition to this machine's own
    /// name.
    pub names: Vec<String>,
    /// Whether to send and accept extended attributes (`user.*`) with files.
    pub xattrs: bool,
    /// How the sending rate of each connection is controlled.
    pub pace: Pace,
    /// Limits on connections and waits.
    pub limits: Limits,
    /// A function to call after every response; `None` for no function.
    pub observer: Option<Observer>,
}

impl Options {
    /// Returns options that share `root` with everybody, without encryption, on the addresses
    /// `listen`.
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
            "Options {{ {root:?}, {listen:?}, hidden: {hidden}, tls: {tls}, {tokens:?}, writable: \
             {writable:?}, {pace:?}, {limits:?} }}"
        )
    }
}

/// A response that was sent.
#[derive(Clone, Debug)]
pub struct Event {
    /// The client's address.
    pub peer: SocketAddr,
    /// The method; `-` for an invalid request.
    pub method: &'static str,
    /// The percent-encoded path; `*` for `OPTIONS *`, `-` for an invalid request.
    pub path: String,
    /// The HTTP status of the response; 0 if the connection broke before there was a response.
    pub status: u16,
    /// Bytes of the body passed to the kernel; for an upload, bytes of the file that were received.
    pub bytes: u64,
    /// Whether the body was in verified form.
    pub verified: bool,
    /// Bytes of the file in the groups whose hashes were computed for this response, because the
    /// hashes were not cached or the client asked to recompute them.
    pub summed: u64,
    /// Time from the end of the request's head to the end of the response; almost zero for an
    /// invalid request.
    pub took: Duration,
    /// The kernel's statistics of the connection's path at the end of the response; `None` if they
    /// cannot be read.
    pub network: Option<sprat_pace::path::Path>,
    /// Why the response was broken off or a PUT was rejected; `None` if neither happened.
    pub error: Option<String>,
}

/// Why a server cannot start.
#[derive(Debug, Error)]
pub enum ShareError {
    /// The directory cannot be shared.
    #[error("cannot share {}: {source}", path.display())]
    Root {
        /// The directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The server cannot listen on an address.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address at which to listen.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// No address was given.
    #[error("no address to listen at")]
    Nowhere,
    /// A thread or a pipe cannot be created.
    #[error("cannot start: {0}")]
    Start(io::Error),
}
