//! A bridge with its face, on threads of its own.

use crate::bridged::Bridged;
use crate::error::Error;
use crate::figures::Figures;
use crate::options::Options;
use crate::serve::serve;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// Threads that carry and answer, at most; most of what they do is to wait.
const MAX_THREADS: usize = 4;

/// How long a thread may take to end.
const GRACE: Duration = Duration::from_secs(1);

/// A bridge that runs until it is [closed](Running::close).
pub struct Running {
    runtime: Runtime,
    bridged: Bridged,
    address: SocketAddr,
}

impl Running {
    /// Joins the store and Cassandra, and lets in whoever speaks to Redis at `listen`.
    ///
    /// # Errors
    /// One of the two is not there, the table has another home, or somebody else listens.
    pub fn start(options: &Options, listen: SocketAddr) -> Result<Self, Error> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        let (bridged, listener) = runtime.block_on(async {
            let listener =
                TcpListener::bind(listen).await.map_err(|error| Error::Listen { listen, error })?;
            Bridged::open(options).await.map(|bridged| (bridged, listener))
        })?;
        let address = listener.local_addr()?;
        runtime.spawn(serve(listener, bridged.clone()));
        Ok(Self { runtime, bridged, address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How it goes.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.bridged.figures()
    }

    /// Takes no more writes, and carries home what waits, for so long at most. Returns how many
    /// keys are left: the next bridge finds them in the store.
    #[must_use]
    pub fn close(self, patience: Duration) -> usize {
        let left = self.runtime.block_on(self.bridged.close(patience));
        self.runtime.shutdown_timeout(GRACE);
        left
    }
}
