//! The server. It serves a directory over HTTP/1.1 to any client, and in verified form to `sprat`.
//! If allowed, it also stores uploaded files.
//!
//! One thread accepts connections, and each connection has a thread of its own. The number of
//! connections is bounded, in total and for each client network, and every wait has a time limit.

mod accept;
pub mod access;
mod answers;
mod body;
mod chunks;
mod connection;
pub mod decide;
pub mod listing;
mod names;
mod options;
pub mod page;
pub mod put;
mod receive;
mod root;
mod shared;
mod socket;
pub mod ticket;
pub mod tls;
mod transfers;
mod values;
mod version;

pub use access::{Right, TokenError, Tokens};
pub use options::{
    Event, Limits, MAX_CONNECTIONS, MAX_PER_ADDRESS, MAX_WAITING, Observer, Options, ShareError,
};
pub use receive::{KEPT_FOR, MAX_UPLOAD_STREAMS, MAX_UPLOADS};
pub use root::{RESERVED, Root};
pub use socket::{SEND_BUFFER, UNSENT};
pub use sprat_pace::Pace;
pub use transfers::{MAX_PAST, MAX_POINTS, Point, STEP, Snapshot, Transfers};
pub use version::Version;

use names::Names;
use receive::{Parts, Uploads};
use shared::Shared;
use sprat_pace::Pacer;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use values::Values;

/// A running server. [`Share::start`] opens the directory, listens, and starts the accepting
/// thread. Each connection then gets a thread of its own. [`Share::stop`] stops accepting and lets
/// transfers end. If the server is dropped instead, transfers are broken off.
pub struct Share {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    /// To close this descriptor wakes the accepting thread, which then ends.
    wake: Option<OwnedFd>,
    acceptor: Option<JoinHandle<()>>,
    /// The thread that removes old parts of uploads. It ends when the sender is dropped.
    sweeper: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Share {
    /// Starts a server.
    ///
    /// # Errors
    /// The directory cannot be opened, no address is given, the server cannot listen at an address,
    /// or a thread or a pipe cannot be created.
    pub fn start(options: Options) -> Result<Self, ShareError> {
        let Options {
            root: path,
            listen,
            hidden,
            tls,
            tokens,
            writable,
            xattrs,
            pace,
            limits,
            observer,
            ..
        } = options;
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
            Some(_) => {
                Some(sweep(&shared, parts, options.keep_unfinished).map_err(ShareError::Start)?)
            }
            None => None,
        };
        Ok(Self { shared, addresses, wake: Some(wake), acceptor: Some(acceptor), sweeper })
    }

    /// Replaces the tokens. A response in progress is not interrupted.
    pub fn set_tokens(&self, tokens: Tokens) {
        *self.shared.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    /// Returns the addresses on which the server listens, with the ports that the kernel chose.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the transfers in progress and those that ended recently.
    #[must_use]
    pub fn transfers(&self) -> &Transfers {
        &self.shared.transfers
    }

    /// Stops accepting connections, and gives transfers up to `grace` to end. Then ends the
    /// remaining transfers.
    pub fn stop(mut self, grace: Duration) {
        self.end(grace);
    }

    fn end(&mut self, grace: Duration) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.shared.stopping.store(true, Ordering::SeqCst);
        drop(self.wake.take());
        // If the thread panicked, the panic has already been reported.
        let _ = acceptor.join();
        if let Some((stop, sweeper)) = self.sweeper.take() {
            drop(stop);
            let _ = sweeper.join();
        }
        self.shared.connections().waiting.clear();
        // Idle connections read the end of the stream, and close.
        self.shared.shut(std::net::Shutdown::Read);
        if !self.shared.wait_for_none(grace) {
            self.shared.shut(std::net::Shutdown::Both);
            self.shared.wait_for_none(LAST_GRACE);
        }
    }
}

/// Upper limit of the interval between two sweeps of parts. Below the limit the interval is a
/// quarter of the time for which unfinished uploads are kept, but at least 100 ms.
const SWEEP: Duration = Duration::from_secs(3600);

/// Starts the thread that sweeps parts until the returned sender is dropped.
fn sweep(
    shared: &Arc<Shared>,
    parts: Arc<Parts>,
    kept_for: Duration,
) -> io::Result<(Sender<()>, JoinHandle<()>)> {
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

/// Time that threads get to end after their sockets were shut down.
const LAST_GRACE: Duration = Duration::from_secs(2);

impl Drop for Share {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}
