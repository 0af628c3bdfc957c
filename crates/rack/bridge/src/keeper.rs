//! The operations on one key, between memory and home: read and deliver. Like the eviction in
//! `sweep`, they change the memory only on condition of the object's version or absence, so that
//! any number of bridges may run at once, and each may end at any point.

use crate::cell::{Cell, Stamps, after_delivery};
use crate::error::Error;
use crate::home::HomeRow;
use sprat_client::{Condition, Error as StoreError, Object};
use std::future::Future;

/// Limit on the attempts of a read to find the key in memory or to insert a `Loading` cell. Each
/// attempt may fail because other bridges insert and remove the key. After the last one, the value
/// is read from the home and not filled in.
const TRIES: usize = 64;

/// A table in the store's memory. The versions of a key grow with each write, also across removals.
pub trait MemoryTable {
    /// Reads the object of a key.
    fn get(&self, key: &[u8]) -> impl Future<Output = Result<Option<Object>, StoreError>> + Send;
    /// Stores a value if the condition holds, and returns its version.
    fn put(
        &self,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
    /// Removes an object if the condition holds, and returns the version that it had.
    fn remove(
        &self,
        key: &[u8],
        condition: Condition,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send;
}

/// A home table. Of all writes to a key, it keeps the one with the highest write timestamp.
pub trait HomeTable {
    /// Reads the row of a key.
    fn read(&self, key: &[u8]) -> impl Future<Output = Result<Option<HomeRow>, Error>> + Send;
    /// Applies a delivery. After an error the delivery may have been applied, or may be applied
    /// later.
    fn apply(
        &self,
        key: &[u8],
        delivery: &crate::Delivery<'_>,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// The result of a read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReadResult {
    /// The value, if there is one.
    pub value: Option<Vec<u8>>,
    /// Whether memory answered the read, with a value or with a deletion.
    pub hit: bool,
}

/// The result of a delivery.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Delivered {
    /// There was nothing to deliver: the key has no object, or its object is clean or loading.
    Nothing,
    /// The home has the object, and memory has it marked clean or removed.
    Settled,
    /// The home has the object, but a newer write has replaced it in memory.
    Outdated,
}

/// A table in memory with its home, and the operations on both. It has no state of its own, so that
/// any number of bridges may share a table. A read first puts a `Loading` cell into memory, and
/// fills the cell only if its version is still the same. A delivery marks an object clean only if
/// no newer write has replaced the object.
#[derive(Debug)]
pub struct KeyOperations<N, F> {
    /// The table in memory.
    pub near: N,
    /// The home of the table.
    pub far: F,
    /// The write timestamps of the table's versions.
    pub stamps: Stamps,
}

impl<N: MemoryTable + Sync, F: HomeTable + Sync> KeyOperations<N, F> {
    /// Reads the value of a key, as it was at some moment during the call.
    ///
    /// # Errors
    /// Any [`Error`] of the table or its home.
    pub async fn read(&self, key: &[u8]) -> Result<ReadResult, Error> {
        let mut loading = None;
        for _ in 0..TRIES {
            if let Some(object) = self.near.get(key).await? {
                let value = match Cell::parse(&object.value)? {
                    Cell::Dirty(value) | Cell::Clean(value) => Some(value.to_vec()),
                    Cell::Gone => None,
                    // Another reader has stored this cell, and may have ended since. The first
                    // reader to finish fills the cell.
                    Cell::Loading => {
                        loading = Some(object.version);
                        break;
                    }
                };
                return Ok(ReadResult { value, hit: true });
            }
            match self.near.put(key, &Cell::Loading.encode(), Condition::Absent).await {
                Ok(version) => {
                    loading = Some(version);
                    break;
                }
                Err(StoreError::Conflict { .. }) => {}
                // The key was absent a moment ago, so the home has every acknowledged write to it,
                // and the value can be read from there without a cell.
                Err(StoreError::MemoryFull) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let row = self.far.read(key).await?;
        // The value was current while the `Loading` cell had this version. If the cell has been
        // replaced since, the value must not be filled in.
        if let Some(version) = loading {
            let condition = Condition::Version(version);
            match &row {
                Some(row) if row.stamp >= self.stamps.of(version) => {
                    self.check_newer(key, version, row.stamp).await?
                }
                Some(row) => {
                    drop(self.near.put(key, &Cell::Clean(&row.value).encode(), condition).await)
                }
                None => drop(self.near.remove(key, condition).await),
            }
        }
        Ok(ReadResult { value: row.map(|row| row.value), hit: false })
    }

    /// Checks a row of the home whose write timestamp is not below that of a `Loading` cell.
    /// Returns [`Error::Foreign`] if the cell still exists: then another program has written the
    /// row.
    async fn check_newer(&self, key: &[u8], version: u64, found: i64) -> Result<(), Error> {
        match self.near.get(key).await? {
            Some(object) if object.version == version => {
                Err(Error::Foreign { found, ours: self.stamps.of(version) })
            }
            _ => Ok(()),
        }
    }

    /// Delivers a key's present object to the home.
    ///
    /// # Errors
    /// Memory or the home failed. The delivery may have been executed, and must be repeated.
    pub async fn deliver(&self, key: &[u8]) -> Result<Delivered, Error> {
        let Some(object) = self.near.get(key).await? else { return Ok(Delivered::Nothing) };
        let cell = Cell::parse(&object.value)?;
        let Some(delivery) = cell.delivery(object.version, self.stamps) else {
            return Ok(Delivered::Nothing);
        };
        self.far.apply(key, &delivery).await?;
        let same = Condition::Version(object.version);
        let settled = match after_delivery(&delivery) {
            Some(clean) => match self.near.put(key, &clean.encode(), same).await {
                // The home has the object. If memory has no room to mark the object clean, removing
                // the object is equally correct.
                Err(StoreError::MemoryFull) => self.near.remove(key, same).await.map(drop),
                settled => settled.map(drop),
            },
            None => self.near.remove(key, same).await.map(drop),
        };
        match settled {
            Ok(()) => Ok(Delivered::Settled),
            Err(StoreError::Conflict { .. }) => Ok(Delivered::Outdated),
            Err(error) => Err(error.into()),
        }
    }
}
