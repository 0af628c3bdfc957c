//! Scans the complete table at intervals. Queues dirty objects that are not in this bridge's
//! backlog, since the bridge that wrote them may have died. Removes `Loading` cells. If the table
//! takes too much memory, evicts objects that are also in the home.

use crate::bridged::Shared;
use crate::cell::Cell;
use crate::error::Error;
use crate::figures::count;
use crate::options::Options;
use sprat_client::{Client, Condition, Error as StoreError, Row, Table};
use sprat_host::lock;
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Limit on the keys that are recorded as read between two sweeps. Other keys may be evicted
/// although they were read.
const MAX_REFERENCED: usize = 1 << 20;

/// How long a sweep pauses when the backlog has no room.
const WAIT: Duration = Duration::from_millis(50);

/// The handle of the sweeping thread. Dropping it stops the thread.
pub(crate) struct Sweep {
    wake: SyncSender<()>,
    stop: Arc<AtomicBool>,
}

impl Sweep {
    /// Starts the thread, which begins with a sweep.
    pub(crate) fn start(
        options: &Options,
        table: Table,
        shared: Arc<Shared>,
    ) -> Result<Self, Error> {
        let (wake, woken) = sync_channel(1);
        let (ready, is_ready) = sync_channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, store, name) =
            (Arc::clone(&stop), options.store.clone(), options.table.clone());
        let (memory, period) = (options.memory, options.sweep);
        let run = move || {
            // A client belongs to one thread, so it is created on this one.
            let opened =
                Client::connect(&store).and_then(|mut client| match client.table(&name)? {
                    found if found == table => Ok(client),
                    _ => Err(StoreError::TableDropped(table.0)),
                });
            let client = match opened {
                Ok(client) => client,
                Err(error) => return drop(ready.send(Err(error))),
            };
            drop(ready.send(Ok(())));
            Sweeper { client, table, shared, woken, stop: stopped, memory, period }.run();
        };
        std::thread::Builder::new().name("sprat-sweep".to_owned()).spawn(run)?;
        match is_ready.recv() {
            Ok(made) => made?,
            Err(_) => return Err(std::io::Error::other("the thread that sweeps has ended").into()),
        }
        Ok(Self { wake, stop })
    }

    /// Lets the next sweep begin at once.
    pub(crate) fn wake(&self) {
        let _ = self.wake.try_send(()); // one pending wake-up is enough
    }

    /// Asks the thread to stop, without waiting until it ends.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake();
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Sweeper {
    client: Client,
    table: Table,
    shared: Arc<Shared>,
    woken: Receiver<()>,
    stop: Arc<AtomicBool>,
    memory: u64,
    period: Duration,
}

impl Sweeper {
    fn run(&mut self) {
        while !self.stopped() {
            match self.sweep() {
                Ok(()) => count(&self.shared.counters.sweeps),
                Err(error) => self.shared.record_error(&error),
            }
            if self.woken.recv_timeout(self.period) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Scans the table. If this did not free enough memory, scans it a second time, and then also
    /// evicts objects that were read recently.
    fn sweep(&mut self) -> Result<(), Error> {
        let recent = self.shared.references.rotate();
        if self.scan(Some(&recent))? > 0 {
            self.scan(None)?;
        }
        Ok(())
    }

    /// Scans the table once. Returns the number of bytes that are still above the limit, or 0 if
    /// the thread was stopped.
    fn scan(&mut self, recent: Option<&Recent>) -> Result<u64, Error> {
        let table = self.table;
        let mut over = self.client.table_stats(table)?.bytes.saturating_sub(self.memory);
        let mut after = None;
        loop {
            let page = self.client.scan(table, after)?;
            for row in page.rows {
                if self.stopped() {
                    return Ok(0);
                }
                self.visit(&row, recent, &mut over)?;
            }
            match page.next {
                None => return Ok(over),
                next => after = next,
            }
        }
    }

    fn visit(&mut self, row: &Row, recent: Option<&Recent>, over: &mut u64) -> Result<(), Error> {
        let cell = Cell::parse(&row.value)?;
        if !cell.may_be_evicted() {
            while !self.shared.backlog.contains(&row.key) && !self.stopped() {
                match self.shared.backlog.try_reserve() {
                    Some(room) => self.shared.backlog.push(&row.key, room),
                    None => std::thread::park_timeout(WAIT),
                }
            }
            return Ok(());
        }
        let stays =
            *over == 0 || recent.is_some_and(|recent| self.shared.references.has(recent, &row.key));
        if stays && cell != Cell::Loading {
            return Ok(());
        }
        match self.client.remove_if(self.table, &row.key, Condition::Version(row.version)) {
            Ok(Some(_)) => {
                *over = over.saturating_sub((row.key.len() + row.value.len()) as u64);
                // A `Loading` cell has no value that could leave memory.
                if cell != Cell::Loading {
                    count(&self.shared.counters.evicted);
                }
                Ok(())
            }
            // The object was written meanwhile, or is gone.
            Ok(None) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Hashes of recently read keys: those since the last sweep, and those of the interval before it.
#[derive(Default)]
pub(crate) struct References {
    hash: RandomState,
    now: Mutex<HashSet<u64>>,
    before: Mutex<HashSet<u64>>,
}

/// Hashes of the keys that were read in the last two intervals between sweeps.
pub(crate) struct Recent(HashSet<u64>);

impl References {
    pub(crate) fn record(&self, key: &[u8]) {
        let hash = self.hash.hash_one(key);
        let mut now = lock(&self.now);
        if now.len() < MAX_REFERENCED {
            now.insert(hash);
        }
    }

    fn rotate(&self) -> Recent {
        let now = std::mem::take(&mut *lock(&self.now));
        let before = std::mem::replace(&mut *lock(&self.before), now.clone());
        Recent(now.into_iter().chain(before).collect())
    }

    fn has(&self, recent: &Recent, key: &[u8]) -> bool {
        recent.0.contains(&self.hash.hash_one(key))
    }
}
