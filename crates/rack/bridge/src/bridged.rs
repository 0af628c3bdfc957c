//! Reads, writes, and what carries them home.

use crate::backlog::Backlog;
use crate::cell::{Cell, MAX_BRIDGED_VALUE, Stamps};
use crate::error::Error;
use crate::figures::{Counters, Figures, count};
use crate::home::Home;
use crate::keeper::{Carried, Far as _, Keeper, Near};
use crate::options::Options;
use crate::sweep::{References, Sweep};
use sprat_client::{AsyncClient, Condition, Error as StoreError, Object, Table};
use sprat_host::lock;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;

/// Deliveries under way at once.
pub const CARRIERS: usize = 32;

/// How long a write waits for room in the backlog, or in the store's memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a delivery that failed rests, and a write that found memory full.
const REST: Duration = Duration::from_millis(200);

/// Times that a full backlog, or one being drained, is looked at again.
const LOOK: Duration = Duration::from_millis(20);

/// Where write timestamps begin and what the home is, by table: one table of the store for all
/// bridges.
const REGISTER: &str = "sprat-bridges";

/// A table in memory with a home. To be cloned and shared.
#[derive(Clone)]
pub struct Bridged {
    shared: Arc<Shared>,
    sweep: Arc<Sweep>,
    carriers: Arc<Mutex<JoinSet<()>>>,
}

pub(crate) struct Shared {
    keeper: Keeper<Store, Home>,
    pub(crate) backlog: Backlog,
    pub(crate) counters: Counters,
    pub(crate) references: References,
    trouble: Mutex<Option<String>>,
    closing: AtomicBool,
}

/// A table of the store.
#[derive(Clone)]
struct Store {
    client: AsyncClient,
    table: Table,
}

impl Near for Store {
    fn get(&self, key: &[u8]) -> impl Future<Output = Result<Option<Object>, StoreError>> + Send {
        self.client.get(self.table, key)
    }

    fn put(
        &self,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send {
        self.client.put(self.table, key, value, condition)
    }

    fn remove(
        &self,
        key: &[u8],
        condition: Condition,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send {
        self.client.remove(self.table, key, condition)
    }
}

impl Bridged {
    /// Joins a table and its home, and begins to carry. To be called within a runtime of several
    /// threads.
    ///
    /// # Errors
    /// One of the two is not there, or the table has another home.
    pub async fn open(options: &Options) -> Result<Self, Error> {
        let home = Home::connect(&options.home).await?;
        let client = AsyncClient::connect(&options.store)?;
        let table = client.create_table(&options.table).await?;
        let stamps =
            register(&client, table, &format!("{}.{}", options.home.keyspace, options.home.table))
                .await?;
        let shared = Arc::new(Shared {
            keeper: Keeper { near: Store { client, table }, far: home, stamps },
            backlog: Backlog::default(),
            counters: Counters::default(),
            references: References::default(),
            trouble: Mutex::default(),
            closing: AtomicBool::new(false),
        });
        let sweep = Sweep::start(options, table, Arc::clone(&shared))?;
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
        match key.is_empty() {
            true => Ok(None),
            false => self.shared.get(key).await,
        }
    }

    /// Stores a value. Once this has returned, the store has it durably, and it will be at home.
    ///
    /// # Errors
    /// [`Error`]; after one of the store's that is indeterminate the write may have been done.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if value.len() > MAX_BRIDGED_VALUE {
            return Err(Error::ValueTooLarge(value.len()));
        }
        let (bytes, most) = (key.len() + value.len(), self.shared.keeper.far.longest());
        if bytes > most {
            return Err(Error::TooLargeForHome { bytes, most });
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
        // Acknowledged, it could never be carried home, nor could its removal.
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
            let room = shared.backlog.room(PATIENCE).await.ok_or(Error::Behind(PATIENCE))?;
            let written = shared.keeper.near.put(key, &bytes, Condition::None).await;
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
        Ok(self.shared.keeper.far.read(key).await?.map(|row| row.value))
    }

    /// How it goes.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (dirty, oldest) = self.shared.backlog.extent();
        let trouble = lock(&self.shared.trouble).clone();
        Figures { dirty, lag: oldest.as_secs_f64(), trouble, ..self.shared.counters.figures() }
    }

    /// Takes no more writes, and carries home what waits, for so long at most. Returns how many
    /// keys are left; the next bridge finds them in the store.
    pub async fn close(&self, patience: Duration) -> usize {
        self.shared.closing.store(true, Ordering::Relaxed);
        let until = Instant::now() + patience;
        while self.shared.backlog.extent().0 > 0 && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
        self.sweep.stop();
        lock(&self.carriers).abort_all();
        self.shared.backlog.extent().0
    }
}

impl Shared {
    async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.references.note(key);
        let read = self.keeper.read(key).await?;
        count(if read.hit { &self.counters.hits } else { &self.counters.misses });
        Ok(read.value)
    }

    /// Carries keys home, one after another.
    async fn carry_on(&self) {
        loop {
            let key = self.backlog.next().await;
            let carried = self.keeper.carry(&key).await;
            if matches!(carried, Ok(Carried::Settled | Carried::Outdated)) {
                count(&self.counters.applied);
            }
            match carried {
                Ok(Carried::Nothing | Carried::Settled) => self.backlog.ended(&key),
                Ok(Carried::Outdated) => self.backlog.failed(&key),
                Err(error) => {
                    count(&self.counters.failed);
                    self.note(&error);
                    tokio::time::sleep(REST).await;
                    self.backlog.failed(&key);
                }
            }
        }
    }

    pub(crate) fn note(&self, error: &Error) {
        *lock(&self.trouble) = Some(error.to_string());
    }
}

/// Where the write timestamps of a table begin: written once, by whichever bridge is first, and
/// never changed. A table that is dropped and made again has another number, and begins anew,
/// later.
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
        return Err(Error::OtherHome {
            there: String::from_utf8_lossy(there).into_owned(),
            wanted: home.to_owned(),
        });
    }
    Stamps::new(u64::from_le_bytes(*base))
}
