//! What is done to one key, between memory and home: reads, writes, deliveries, and leaving memory.
//! All that makes a bridge right is here, and all by conditions on versions, so that any number of
//! bridges may do it at once and each may end at any point.

use crate::cell::{Cell, Stamps, after_delivery};
use crate::error::Error;
use crate::home::Stored;
use sprat_client::{Condition, Error as StoreError, Object};
use std::future::Future;

/// How often a read begins anew because others made and removed what it met.
const TRIES: usize = 64;

/// A table in memory: of the store, whose versions grow with each write of a key, across removals
/// too.
pub trait Near {
    /// The object of a key.
    fn get(&self, key: &[u8]) -> impl Future<Output = Result<Option<Object>, StoreError>> + Send;
    /// Stores a value if the condition holds; its version.
    fn put(
        &self,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
    /// Removes an object if the condition holds; the version it had.
    fn remove(
        &self,
        key: &[u8],
        condition: Condition,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send;
}

/// A home: of what is written to it, it keeps what has the highest write timestamp.
pub trait Far {
    /// The row of a key.
    fn read(&self, key: &[u8]) -> impl Future<Output = Result<Option<Stored>, Error>> + Send;
    /// Has a delivery applied; after an error it may have been, or be later.
    fn apply(
        &self,
        key: &[u8],
        delivery: &crate::Delivery<'_>,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// What a read found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Read {
    /// The value.
    pub value: Option<Vec<u8>>,
    /// Memory had it.
    pub hit: bool,
}

/// What a delivery came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Carried {
    /// There was nothing to carry.
    Nothing,
    /// It is at home, and memory says so.
    Settled,
    /// It is at home; by now there is something newer.
    Outdated,
}

/// A table and its home.
#[derive(Debug)]
pub struct Keeper<N, F> {
    /// The table.
    pub near: N,
    /// Its home.
    pub far: F,
    /// The home's write timestamps.
    pub stamps: Stamps,
}

impl<N: Near + Sync, F: Far + Sync> Keeper<N, F> {
    /// The value of a key, as of some moment between call and answer.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn read(&self, key: &[u8]) -> Result<Read, Error> {
        let mut place = None;
        for _ in 0..TRIES {
            if let Some(object) = self.near.get(key).await? {
                let value = match Cell::parse(&object.value)? {
                    Cell::Dirty(value) | Cell::Clean(value) => Some(value.to_vec()),
                    Cell::Gone => None,
                    // Another's, who may be gone: whoever is first puts it there.
                    Cell::Loading => {
                        place = Some(object.version);
                        break;
                    }
                };
                return Ok(Read { value, hit: true });
            }
            match self.near.put(key, &Cell::Loading.encode(), Condition::Absent).await {
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
        let row = self.far.read(key).await?;
        // What was read was right while the place was ours. If it no longer is, nothing is put
        // there; nor need it be.
        if let Some(version) = place {
            let condition = Condition::Version(version);
            match &row {
                Some(row) if row.stamp >= self.stamps.of(version) => {
                    self.newer(key, version, row.stamp).await?
                }
                Some(row) => {
                    drop(self.near.put(key, &Cell::Clean(&row.value).encode(), condition).await)
                }
                None => drop(self.near.remove(key, condition).await),
            }
        }
        Ok(Read { value: row.map(|row| row.value), hit: false })
    }

    /// The home has something newer than a place in memory: fine if the place is gone, for then
    /// somebody wrote.
    async fn newer(&self, key: &[u8], version: u64, found: i64) -> Result<(), Error> {
        match self.near.get(key).await? {
            Some(object) if object.version == version => {
                Err(Error::Foreign { found, ours: self.stamps.of(version) })
            }
            _ => Ok(()),
        }
    }

    /// Carries a key's object home, as it is now.
    ///
    /// # Errors
    /// [`Error`]: to be done again.
    pub async fn carry(&self, key: &[u8]) -> Result<Carried, Error> {
        let Some(object) = self.near.get(key).await? else { return Ok(Carried::Nothing) };
        let cell = Cell::parse(&object.value)?;
        let Some(delivery) = cell.delivery(object.version, self.stamps) else {
            return Ok(Carried::Nothing);
        };
        self.far.apply(key, &delivery).await?;
        let same = Condition::Version(object.version);
        let settled = match after_delivery(&delivery) {
            Some(clean) => match self.near.put(key, &clean.encode(), same).await {
                // It is at home; what cannot be said of it in memory is said by its absence.
                Err(StoreError::MemoryFull) => self.near.remove(key, same).await.map(drop),
                settled => settled.map(drop),
            },
            None => self.near.remove(key, same).await.map(drop),
        };
        match settled {
            Ok(()) => Ok(Carried::Settled),
            Err(StoreError::Conflict { .. }) => Ok(Carried::Outdated),
            Err(error) => Err(error.into()),
        }
    }
}
