//! A table in memory with a home table in Cassandra: reads, writes, and the tasks that deliver
//! writes to the home.

use crate::backlog::Backlog;
use crate::cell::{Cell, MAX_BRIDGED_VALUE, Stamps};
use crate::error::Error;
use crate::figures::{BridgeStats, Counters, count};
use crate::home::Home;
use crate::keeper::{Delivered, HomeTable as _, KeyOperations, MemoryTable};
use crate::options::Options;
use crate::sweep::{References, Sweep};
use sprat_client::{AsyncClient, Condition, Error as StoreError, Object, Table};
use sprat_host::lock;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;

/// Number of concurrent deliveries.
pub const DELIVERY_WORKERS: usize = 32;

/// How long a write waits for room in the backlog, or in the store's memory, before it fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pause after a failed delivery, and after a write that found memory full.
const REST: Duration = Duration::from_millis(200);

/// Interval between checks of a backlog that is being drained.
const LOOK: Duration = Duration::from_millis(20);

/// Name of the table in the store that records, for each bridged table, the base of its write
/// timestamps and the name of its home. All bridges share it.
const REGISTER: &str = "sprat-bridges";

/// A table in the store's memory whose home is a table of Cassandra. Reads are answered from
/// memory, or from the home if memory lacks the key. A write is acknowledged once the store has it
/// durably, and background tasks deliver it to the home. Any number of processes may open the same
/// table. Clones share the same tasks. [`BridgedTable::close`] delivers the dirty keys and ends the
/// tasks.
#[derive(Clone)]
pub struct BridgedTable {
    shared: Arc<Shared>,
    sweep: Arc<Sweep>,
    workers: Arc<Mutex<JoinSet<()>>>,
}

pub(crate) struct Shared {
    operations: KeyOperations<Store, Home>,
    pub(crate) backlog: Backlog,
    pub(crate) counters: Counters,
    pub(crate) references: References,
    last_error: Mutex<Option<String>>,
    closing: AtomicBool,
}

/// A table of the store, and the client that reads and writes it.
#[derive(Clone)]
struct Store {
    client: AsyncClient,
    table: Table,
}

impl MemoryTable for Store {
    fn get(&self, key: &[u8]) -> impl Future<Output = Result<Option<Object>, StoreError>> + Send {
        self.client.get(self.table, key)
    }

    fn put(
        &self,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send {
        self.client.put_if(self.table, key, value, condition)
    }

    fn remove(
        &self,
        key: &[u8],
        condition: Condition,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send {
        self.client.remove_if(self.table, key, condition)
    }
}

impl BridgedTable {
    /// Connects to a table and its home, and starts the background tasks. Call this within a
    /// runtime that has several threads.
    ///
    /// # Errors The options are invalid, the store or Cassandra cannot be reached or refuses a
    /// statement, the table is recorded with another home, its record of home and timestamps is
    /// invalid, or a thread cannot be created.
    pub async fn open(options: &Options) -> Result<Self, Error> {
        let home = Home::connect(&options.home).await?;
        let client = AsyncClient::connect(&options.store)?;
        let table = client.create_table(&options.table).await?;
        let stamps =
            register(&client, table, &format!("{}.{}", options.home.keyspace, options.home.table))
                .await?;
        let shared = Arc::new(Shared {
            operations: KeyOperations { near: Store { client, table }, far: home, stamps },
            backlog: Backlog::default(),
            counters: Counters::default(),
            references: References::default(),
            last_error: Mutex::default(),
            closing: AtomicBool::new(false),
        });
        let sweep = Sweep::start(options, table, Arc::clone(&shared))?;
        let mut workers = JoinSet::new();
        for _ in 0..DELIVERY_WORKERS {
            let shared = Arc::clone(&shared);
            workers.spawn(async move { shared.deliver_all().await });
        }
        Ok(Self { shared, sweep: Arc::new(sweep), workers: Arc::new(Mutex::new(workers)) })
    }

    /// Reads the value of a key. Returns `None` if the key is empty, or has no value.
    ///
    /// # Errors Any [`Error`] of the store, or of the home if memory lacks the key. Among them are
    /// [`Error::NotACell`] and [`Error::Foreign`], if another program has written the object or the
    /// row.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match key.is_empty() {
            true => Ok(None),
            false => self.shared.get(key).await,
        }
    }

    /// Stores a value. When this returns, the store has the value durably, and background tasks
    /// will deliver it to the home.
    ///
    /// # Errors
    /// The value is longer than [`MAX_BRIDGED_VALUE`], key and value are too long for a row of the
    /// home, the key is empty, the bridge is closed, the backlog has no room within ten seconds, or
    /// the store fails. After an indeterminate error of the store, the write may have been
    /// executed.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if value.len() > MAX_BRIDGED_VALUE {
            return Err(Error::ValueTooLarge(value.len()));
        }
        let (bytes, most) = (key.len() + value.len(), self.shared.operations.far.longest());
        if bytes > most {
            return Err(Error::TooLargeForHome { bytes, most });
        }
        self.write(key, Cell::Dirty(value)).await
    }

    /// Deletes a key, whether it exists or not.
    ///
    /// # Errors
    /// The key is empty, the bridge is closed, the backlog has no room within ten seconds, or the
    /// store fails. After an indeterminate error of the store, the deletion may have been executed.
    pub async fn delete(&self, key: &[u8]) -> Result<(), Error> {
        self.write(key, Cell::Gone).await
    }

    async fn write(&self, key: &[u8], cell: Cell<'_>) -> Result<(), Error> {
        // Cassandra has no empty keys, so neither the value nor its deletion could ever be
        // delivered.
        if key.is_empty() {
            return Err(Error::EmptyKey);
        }
        let shared = &self.shared;
        let bytes = cell.encode();
        let until = Instant::now() + PATIENCE;
        loop {
            if shared.closing.load(Ordering::Relaxed) {
                return Err(Error::Closed);
            }
            let room = shared.backlog.reserve(PATIENCE).await.ok_or(Error::Behind(PATIENCE))?;
            let written = shared.operations.near.put(key, &bytes, Condition::None).await;
            match &written {
                Err(StoreError::MemoryFull) if Instant::now() < until => {
                    drop(room);
                    self.sweep.wake();
                    tokio::time::sleep(REST).await;
                    continue;
                }
                // After an indeterminate error, the delivery finds out whether the write was
                // executed.
                Ok(_) => shared.backlog.push(key, room),
                Err(error) if error.is_indeterminate() => shared.backlog.push(key, room),
                Err(_) => {}
            }
            written?;
            count(&shared.counters.writes);
            return Ok(());
        }
    }

    /// Reads a key from the home without looking it up in memory, for comparisons.
    ///
    /// # Errors
    /// [`Error::Home`] if Cassandra refuses the read, does not answer it in time, or returns a row
    /// of another form.
    pub async fn at_home(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.shared.operations.far.read(key).await?.map(|row| row.value))
    }

    /// Returns the present counters.
    #[must_use]
    pub fn stats(&self) -> BridgeStats {
        let (dirty, oldest) = self.shared.backlog.extent();
        let last_error = lock(&self.shared.last_error).clone();
        BridgeStats { dirty, lag: oldest.as_secs_f64(), last_error, ..self.shared.counters.stats() }
    }

    /// Refuses further writes, and delivers dirty keys for at most `patience`. Returns the number
    /// of keys that are not delivered by then; the next bridge finds these keys in the store.
    pub async fn close(&self, patience: Duration) -> usize {
        self.shared.closing.store(true, Ordering::Relaxed);
        let until = Instant::now() + patience;
        while self.shared.backlog.extent().0 > 0 && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
        self.sweep.stop();
        lock(&self.workers).abort_all();
        self.shared.backlog.extent().0
    }
}

impl Shared {
    async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.references.record(key);
        let read = self.operations.read(key).await?;
        count(if read.hit { &self.counters.hits } else { &self.counters.misses });
        Ok(read.value)
    }

    /// Delivers keys, one after the other, for ever.
    async fn deliver_all(&self) {
        loop {
            let key = self.backlog.next().await;
            let delivered = self.operations.deliver(&key).await;
            if matches!(delivered, Ok(Delivered::Settled | Delivered::Outdated)) {
                count(&self.counters.applied);
            }
            match delivered {
                Ok(Delivered::Nothing | Delivered::Settled) => self.backlog.delivered(&key),
                Ok(Delivered::Outdated) => self.backlog.retry(&key),
                Err(error) => {
                    count(&self.counters.failed);
                    self.record_error(&error);
                    tokio::time::sleep(REST).await;
                    self.backlog.retry(&key);
                }
            }
        }
    }

    pub(crate) fn record_error(&self, error: &Error) {
        *lock(&self.last_error) = Some(error.to_string());
    }
}

/// Returns a table's write timestamps, and checks that the table's home is `home`. The first bridge
/// records their base and the home, and no later bridge changes this record. A table that is
/// dropped and created again has another id, and gets a new, later base.
async fn register(store: &AsyncClient, table: Table, home: &str) -> Result<Stamps, Error> {
    let register = store.create_table(REGISTER).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_micros()).unwrap_or(0);
    let entry = [&now.to_le_bytes()[..], home.as_bytes()].concat();
    let key = table.0.to_le_bytes();
    match store.put_if(register, &key, &entry, Condition::Absent).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let entry = store.get(register, &key).await?.ok_or(Error::NotACell)?.value;
    let (base, there) = entry.split_first_chunk().ok_or(Error::NotACell)?;
    if there != home.as_bytes() {
        return Err(Error::OtherHome {
            there: String::from_utf8_lossy(there).into_owned(),
            wanted: home.to_owned(),
        });
    }
    Stamps::new(u64::from_le_bytes(*base))
}
