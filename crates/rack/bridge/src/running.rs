//! A bridge with a server for Redis clients, on threads of its own.

use crate::bridged::BridgedTable;
use crate::error::Error;
use crate::figures::BridgeStats;
use crate::options::Options;
use crate::serve::serve;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// Limit on the number of threads for deliveries and replies, which mostly wait.
const MAX_THREADS: usize = 4;

/// How long the threads may take to end.
const GRACE: Duration = Duration::from_secs(1);

/// A bridge that runs until [`RunningBridge::close`].
pub struct RunningBridge {
    runtime: Runtime,
    table: BridgedTable,
    address: SocketAddr,
}

impl RunningBridge {
    /// Connects to the store and to Cassandra, and serves Redis clients at `listen`.
    ///
    /// # Errors The store or Cassandra cannot be reached or refuses a request, an option is
    /// invalid, the table has another home, the bridge cannot listen at the address, or threads
    /// cannot be created.
    pub fn start(options: &Options, listen: SocketAddr) -> Result<Self, Error> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        let (table, listener) = runtime.block_on(async {
            let listener =
                TcpListener::bind(listen).await.map_err(|error| Error::Listen { listen, error })?;
            BridgedTable::open(options).await.map(|table| (table, listener))
        })?;
        let address = listener.local_addr()?;
        runtime.spawn(serve(listener, table.clone()));
        Ok(Self { runtime, table, address })
    }

    /// Returns the address at which the bridge listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the present counters.
    #[must_use]
    pub fn stats(&self) -> BridgeStats {
        self.table.stats()
    }

    /// Refuses further writes, and delivers dirty keys for at most `patience`. Returns the number
    /// of keys that are not delivered by then; the next bridge finds these keys in the store.
    #[must_use]
    pub fn close(self, patience: Duration) -> usize {
        let left = self.runtime.block_on(self.table.close(patience));
        self.runtime.shutdown_timeout(GRACE);
        left
    }
}
