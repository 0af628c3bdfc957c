//! The server: a directory over HTTP/1.1, for any client, and in verified form for ours; into it too, where that is wanted.
//!
//! One thread accepts, and one serves each connection. Their number is bounded, in all and for each peer, and so is every wait.

mod accept;
pub mod access;
mod answers;
mod body;
mod chunks;
mod connection;
pub mod decide;
pub mod listing;
mod names;
pub mod page;
pub mod put;
mod receive;
mod root;
mod socket;
pub mod ticket;
pub mod tls;
mod transfers;
mod values;
mod version;

pub use access::{Right, TokenError, Tokens};
pub use receive::{KEPT_FOR, MAX_LANES, MAX_UPLOADS};
pub use root::{RESERVED, Root};
pub use socket::{SEND_BUFFER, UNSENT};
pub use sprat_pace::Pace;
pub use transfers::{MAX_PAST, MAX_POINTS, Point, STEP, Snapshot, Transfers};
pub use version::Version;

use names::Names;
use receive::{Parts, Uploads};
use sprat_pace::Pacer;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io};
use thiserror::Error;
use values::Values;

/// Most connections at a time, unless told; one more waits.
pub const MAX_CONNECTIONS: usize = 256;

/// Most connections at a time from one address (of IPv6: one network of 64 bits), unless told.
pub const MAX_FROM_ONE: usize = 64;

/// Most connections that wait until one that is served ends, unless told; one more is answered 503
/// and closed.
pub const MAX_WAITING: usize = 256;

/// What holds a server back from doing too much, or waiting too long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Connections at a time from one address.
    pub from_one: usize,
    /// Connections that wait for their turn, for as long as one may be idle.
    pub waiting: usize,
    /// How long a head may take from its first byte, and the first byte of a connection, with its TLS handshake.
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
            from_one: MAX_FROM_ONE,
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
    /// Names by which it may be asked for at loopback and private addresses, besides this machine's
    /// own.
    pub names: Vec<String>,
    /// Whether files are given, and taken, with their extended attributes (`user.*`), where that is asked for.
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
    /// Bytes of its body that were given to the kernel; of what is put, bytes of the file that came.
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

/// A server that runs until it is stopped or dropped.
pub struct Share {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    /// Ends the thread that accepts by being closed.
    wake: Option<OwnedFd>,
    acceptor: Option<JoinHandle<()>>,
    /// Ends the thread that looks after what uploads left by being dropped.
    sweeper: Option<(Sender<()>, JoinHandle<()>)>,
}

/// What all threads of a server know.
struct Shared {
    root: Root,
    tls: Option<Arc<rustls::ServerConfig>>,
    tokens: RwLock<Tokens>,
    names: Names,
    /// Longest file that is taken, if any is.
    writable: Option<u64>,
    uploads: Uploads,
    xattrs: bool,
    pace: Pace,
    pacer: Pacer,
    limits: Limits,
    observer: Option<Observer>,
    transfers: Arc<Transfers>,
    values: Values,
    connections: Mutex<Connections>,
    /// Notified when a connection ends.
    ended: Condvar,
    stopping: AtomicBool,
}

#[derive(Default)]
struct Connections {
    next: u64,
    served: HashMap<u64, Arc<accept::Held>>,
    from: HashMap<IpAddr, usize>,
    waiting: VecDeque<accept::Waiting>,
}

impl Share {
    /// Begins to serve.
    ///
    /// # Errors
    /// [`ShareError`].
    pub fn start(options: Options) -> Result<Self, ShareError> {
        let Options { root: path, listen, hidden, tls, tokens, writable, xattrs, pace, limits, observer, .. } = options;
        let root = Root::open(&path, hidden).map_err(|source| ShareError::Root { path, source })?;
        let listeners = accept::listen(&listen, writable.is_some())?;
        let addresses = listeners.iter().map(|(_, address)| *address).collect();
        let parts = Arc::new(Parts::new(options.max_unfinished));
        let shared = Arc::new(Shared {
            root,
            tls,
            tokens: RwLock::new(tokens),
            names: Names::new(&options.names),
            writable,
            xattrs,
            uploads: Uploads::new(parts.clone()),
            pace,
            pacer: Pacer::start().map_err(ShareError::Start)?,
            limits,
            observer,
            transfers: Arc::default(),
            values: Values::default(),
            connections: Mutex::default(),
            ended: Condvar::new(),
            stopping: AtomicBool::new(false),
        });
        let (woken, wake) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|errno| ShareError::Start(errno.into()))?;
        let for_acceptor = shared.clone();
        let acceptor = std::thread::Builder::new()
            .name("share".to_owned())
            .spawn(move || accept::run(&for_acceptor, &listeners, &woken))
            .map_err(ShareError::Start)?;
        let sweeper = match writable {
            Some(_) => Some(sweep(&shared, parts, options.keep_unfinished).map_err(ShareError::Start)?),
            None => None,
        };
        Ok(Self { shared, addresses, wake: Some(wake), acceptor: Some(acceptor), sweeper })
    }

    /// Takes other tokens from here on; whoever is being served goes on to the end of the answer.
    pub fn set_tokens(&self, tokens: Tokens) {
        *self.shared.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    /// Where it listens, with the ports that were chosen.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What is being sent.
    #[must_use]
    pub fn transfers(&self) -> &Transfers {
        &self.shared.transfers
    }

    /// Takes no more connections, lets what is being sent go on for `grace` at most, and ends the rest.
    pub fn stop(mut self, grace: Duration) {
        self.end(grace);
    }

    fn end(&mut self, grace: Duration) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.shared.stopping.store(true, Ordering::SeqCst);
        drop(self.wake.take());
        // A thread that panicked has told so.
        let _ = acceptor.join();
        if let Some((stop, sweeper)) = self.sweeper.take() {
            drop(stop);
            let _ = sweeper.join();
        }
        self.shared.connections().waiting.clear();
        // Those that wait for a request find that none comes.
        self.shared.shut(std::net::Shutdown::Read);
        if !self.shared.wait_for_none(grace) {
            self.shared.shut(std::net::Shutdown::Both);
            self.shared.wait_for_none(LAST_GRACE);
        }
    }
}

/// Longest time between two looks at what uploads left.
const SWEEP: Duration = Duration::from_secs(3600);

/// Looks after what uploads left, until the other end of the channel is dropped.
fn sweep(shared: &Arc<Shared>, parts: Arc<Parts>, kept_for: Duration) -> io::Result<(Sender<()>, JoinHandle<()>)> {
    let (stop, stopped) = channel();
    let shared = shared.clone();
    let every = (kept_for / 4).clamp(Duration::from_millis(100), SWEEP);
    let work = move || {
        let is_stopped = || shared.is_stopping();
        parts.sweep(&shared.root, kept_for, &is_stopped);
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(every) {
            parts.sweep(&shared.root, kept_for, &is_stopped);
        }
    };
    let thread = std::thread::Builder::new().name("share-parts".to_owned()).spawn(work)?;
    Ok((stop, thread))
}

/// How long threads have whose sockets were shut.
const LAST_GRACE: Duration = Duration::from_secs(2);

impl Drop for Share {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn tokens(&self) -> RwLockReadGuard<'_, Tokens> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().expect("no holder panics")
    }

    fn shut(&self, how: std::net::Shutdown) {
        for held in self.connections().served.values() {
            let _ = held.socket.shutdown(how);
        }
    }

    /// Waits for the end of all connections; false when it is too long.
    fn wait_for_none(&self, longest: Duration) -> bool {
        let until = Instant::now() + longest;
        let mut connections = self.connections();
        while !connections.served.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            connections = self.ended.wait_timeout(connections, left).expect("no holder panics").0;
        }
        true
    }
}
