//! Reads, writes, and what carries them home.

use crate::backlog::Backlog;
use crate::cell::{Cell, MAX_BRIDGED_VALUE, Stamps, after_delivery};
use crate::error::Error;
use crate::figures::{Counters, Figures, count};
use crate::home::Home;
use crate::options::Options;
use crate::sweep::{References, Sweep};
use sprat_client::{AsyncClient, Condition, Error as StoreError, Table};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;

/// Deliveries under way at once.
pub const CARRIERS: usize = 32;

/// How long a write waits for room in the backlog, or in the store's memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a delivery that failed rests, and a write that found memory full.
const REST: Duration = Duration::from_millis(200);

/// How often a read begins anew because others made and removed what it met.
const TRIES: usize = 64;

/// Times that a full backlog, or one being drained, is looked at again.
const LOOK: Duration = Duration::from_millis(20);

/// Where write timestamps begin and what the home is, by table: one table of the store for all bridges.
const REGISTER: &str = "sprat-bridges";

/// A table in memory with a home. To be cloned and shared.
#[derive(Clone)]
pub struct Bridged {
    shared: Arc<Shared>,
    sweep: Arc<Sweep>,
    carriers: Arc<Mutex<JoinSet<()>>>,
}

pub(crate) struct Shared {
    store: AsyncClient,
    pub(crate) table: Table,
    stamps: Stamps,
    home: Home,
    pub(crate) backlog: Backlog,
    pub(crate) counters: Counters,
    pub(crate) references: References,
    trouble: Mutex<Option<String>>,
    closing: AtomicBool,
}

impl Bridged {
    /// Joins a table and its home, and begins to carry. To be called within a runtime of several threads.
    ///
    /// # Errors
    /// One of the two is not there, or the table has another home.
    pub async fn open(options: &Options) -> Result<Self, Error> {
        let home = Home::connect(&options.home).await?;
        let store = AsyncClient::connect(&options.store)?;
        let table = store.create_table(&options.table).await?;
        let stamps = register(&store, table, &format!("{}.{}", options.home.keyspace, options.home.table)).await?;
        let shared = Arc::new(Shared {
            store,
            table,
            stamps,
            home,
            backlog: Backlog::default(),
            counters: Counters::default(),
            references: References::default(),
            trouble: Mutex::default(),
            closing: AtomicBool::new(false),
        });
        let sweep = Sweep::start(options, Arc::clone(&shared))?;
        let mut carriers = JoinSet::new();
        for _ in 0..CARRIERS {
            let shared = Arc::clone(&shared);
            carriers.spawn(async move { shared.carry_on().await });
        }
        Ok(Self { shared, sweep: Arc::new(sweep), carriers: Arc::new(Mutex::new(carriers)) })
    }

    /// The value of a key; `None` when there is none.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.shared.get(key).await
    }

    /// Stores a value. Once this has returned, the store has it durably, and it will be at home.
    ///
    /// # Errors
    /// [`Error`]; after one of the store's that is indeterminate the write may have been done.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if value.len() > MAX_BRIDGED_VALUE {
            return Err(Error::ValueTooLarge(value.len()));
        }
        self.write(key, Cell::Dirty(value)).await
    }

    /// Deletes a key, whether there is one or not.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn delete(&self, key: &[u8]) -> Result<(), Error> {
        self.write(key, Cell::Gone).await
    }

    async fn write(&self, key: &[u8], cell: Cell<'_>) -> Result<(), Error> {
        let shared = &self.shared;
        let bytes = cell.encode();
        let until = Instant::now() + PATIENCE;
        loop {
            if shared.closing.load(Ordering::Relaxed) {
                return Err(Error::Closed);
            }
            let room = shared.backlog.room(PATIENCE).await.ok_or(Error::Behind(PATIENCE))?;
            let written = shared.store.put(shared.table, key, &bytes, Condition::None).await;
            match &written {
                Err(StoreError::MemoryFull) if Instant::now() < until => {
                    drop(room);
                    self.sweep.nudge();
                    tokio::time::sleep(REST).await;
                    continue;
                }
                // Whether it was done or not, a carrier finds out.
                Ok(_) => shared.backlog.push(key, room),
                Err(error) if error.is_indeterminate() => shared.backlog.push(key, room),
                Err(_) => {}
            }
            written?;
            count(&shared.counters.writes);
            return Ok(());
        }
    }

    /// What the home has of a key, whatever is in memory: for comparing.
    ///
    /// # Errors
    /// [`Error::Home`].
    pub async fn at_home(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.shared.home.read(key).await?.map(|row| row.value))
    }

    /// How it goes.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (dirty, oldest) = self.shared.backlog.extent();
        let trouble = self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Figures { dirty, lag: oldest.as_secs_f64(), trouble, ..self.shared.counters.figures() }
    }

    /// Takes no more writes, and carries home what waits, for so long at most. Returns how many keys are left; the next bridge
    /// finds them in the store.
    pub async fn close(&self, patience: Duration) -> usize {
        self.shared.closing.store(true, Ordering::Relaxed);
        let until = Instant::now() + patience;
        while self.shared.backlog.extent().0 > 0 && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
        self.sweep.stop();
        self.carriers.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        self.shared.backlog.extent().0
    }
}

impl Shared {
    async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.references.note(key);
        let mut place = None;
        for _ in 0..TRIES {
            let found = self.store.get(self.table, key).await?;
            if let Some(object) = found {
                let found = match Cell::parse(&object.value)? {
                    Cell::Dirty(_) | Cell::Clean(_) => {
                        let mut value = object.value;
                        value.remove(0);
                        Some(value)
                    }
                    Cell::Gone => None,
                    // Another's, who may be gone: whoever is first puts it there.
                    Cell::Loading => {
                        place = Some(object.version);
                        break;
                    }
                };
                count(&self.counters.hits);
                return Ok(found);
            }
            match self.store.put(self.table, key, &Cell::Loading.encode(), Condition::Absent).await {
                Ok(version) => {
                    place = Some(version);
                    break;
                }
                Err(StoreError::Conflict { .. }) => {}
                // It was absent a moment ago, so the home has all of it.
                Err(StoreError::MemoryFull) => break,
                Err(error) => return Err(error.into()),
            }
        }
        count(&self.counters.misses);
        let row = self.home.read(key).await?;
        if let (Some(row), Some(version)) = (&row, place)
            && row.stamp >= self.stamps.of(version)
        {
            return self.newer(key, version, row.stamp).await.map(|()| Some(row.value.clone()));
        }
        // What was read was right while the place was ours. If it no longer is, nothing is put there; nor need it be.
        match (&row, place) {
            (Some(row), Some(version)) => {
                let cell = Cell::Clean(&row.value).encode();
                drop(self.store.put(self.table, key, &cell, Condition::Version(version)).await);
            }
            (None, Some(version)) => {
                drop(self.store.remove(self.table, key, Condition::Version(version)).await);
            }
            (_, None) => {}
        }
        Ok(row.map(|row| row.value))
    }

    /// The home has something newer than a place in memory: fine if the place is gone, for then somebody wrote.
    async fn newer(&self, key: &[u8], version: u64, found: i64) -> Result<(), Error> {
        match self.store.get(self.table, key).await? {
            Some(object) if object.version == version => Err(Error::Foreign { found, ours: self.stamps.of(version) }),
            _ => Ok(()),
        }
    }

    /// Carries keys home, one after another.
    async fn carry_on(&self) {
        loop {
            let key = self.backlog.next().await;
            match self.carry(&key).await {
                Ok(true) => self.backlog.ended(&key),
                Ok(false) => self.backlog.failed(&key),
                Err(error) => {
                    count(&self.counters.failed);
                    self.note(&error);
                    tokio::time::sleep(REST).await;
                    self.backlog.failed(&key);
                }
            }
        }
    }

    /// Carries a key's object home as it is now. Whether that is what it still is.
    async fn carry(&self, key: &[u8]) -> Result<bool, Error> {
        let Some(object) = self.store.get(self.table, key).await? else { return Ok(true) };
        let cell = Cell::parse(&object.value)?;
        let Some(delivery) = cell.delivery(object.version, self.stamps) else { return Ok(true) };
        self.home.apply(key, &delivery).await?;
        count(&self.counters.applied);
        let same = Condition::Version(object.version);
        let settled = match after_delivery(&delivery) {
            Some(clean) => match self.store.put(self.table, key, &clean.encode(), same).await {
                // It is at home; what cannot be said of it in memory is said by its absence.
                Err(StoreError::MemoryFull) => self.store.remove(self.table, key, same).await.map(drop),
                settled => settled.map(drop),
            },
            None => self.store.remove(self.table, key, same).await.map(drop),
        };
        match settled {
            Ok(()) => Ok(true),
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn note(&self, error: &Error) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }
}

/// Where the write timestamps of a table begin: written once, by whichever bridge is first, and never changed. A table that is dropped and
/// made again has another number, and begins anew, later.
async fn register(store: &AsyncClient, table: Table, home: &str) -> Result<Stamps, Error> {
    let register = store.create_table(REGISTER).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_micros()).unwrap_or(0);
    let entry = [&now.to_le_bytes()[..], home.as_bytes()].concat();
    let key = table.0.to_le_bytes();
    match store.put(register, &key, &entry, Condition::Absent).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let entry = store.get(register, &key).await?.ok_or(Error::NotACell)?.value;
    let (base, there) = entry.split_first_chunk().ok_or(Error::NotACell)?;
    if there != home.as_bytes() {
        return Err(Error::OtherHome { there: String::from_utf8_lossy(there).into_owned(), wanted: home.to_owned() });
    }
    Stamps::new(u64::from_le_bytes(*base))
}
