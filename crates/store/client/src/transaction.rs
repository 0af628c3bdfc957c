//! What a transaction has read and will change, until it is committed.

use crate::asynchronous::AsyncClient;
use crate::batch::{Batch, BatchResult};
use crate::blocking::Client;
use crate::core::TransactionOperation;
use crate::error::Error;
use crate::types::{Object, Table};
use sprat_host::random;
use sprat_wire::expiry::Ttl;
use sprat_wire::op::Condition;
use sprat_wire::transaction::TransactionAction;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a transaction is tried in all, while other clients change its objects.
pub const TRANSACTION_ATTEMPTS: u32 = 100;

/// The longest wait before the second attempt at a transaction, and before any attempt. The limit
/// is doubled for each attempt, and the wait is a random part of it, so that two transactions that
/// have stopped one another do not meet again.
const BACKOFF: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(20));

/// Returns the wait before a transaction is tried again that has failed `failures` times.
pub(crate) fn backoff(failures: u32) -> Duration {
    let limit = BACKOFF.1.min(BACKOFF.0 * (1 << failures.min(16)));
    Duration::from_nanos(random() % u64::try_from(limit.as_nanos()).expect("milliseconds"))
}

/// The results of a batch, and whether one server executed all of it at one moment.
pub(crate) type BatchResults = (Vec<Result<BatchResult, Error>>, bool);

/// What a transaction does to an object.
#[derive(Debug)]
enum Change {
    Put(Vec<u8>, Option<Ttl>),
    Remove,
}

/// An object of a transaction.
#[derive(Debug, Default)]
struct Touched {
    /// The object as it was read, `None` for no object; the outer `None` if it was not read.
    read: Option<Option<Object>>,
    /// `None` if it is not changed.
    change: Option<Change>,
}

/// The objects of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Touches {
    objects: BTreeMap<(u32, Vec<u8>), Touched>,
    /// Number of objects that were read first, together, and so at one moment.
    at_once: usize,
}

/// How a transaction is committed.
pub(crate) enum Commit<'a> {
    /// It is, as it is: it has read one object at most, or all at one moment.
    Done,
    /// The objects that it has read, all of which it found, must still have the same versions: see
    /// [`Touches::is_unchanged`].
    Validate(Batch<'a>),
    /// These operations must be executed together.
    Execute(Vec<TransactionOperation<'a>>),
}

impl Touches {
    fn at(&mut self, table: Table, key: &[u8]) -> &mut Touched {
        self.objects.entry((table.0, key.to_vec())).or_default()
    }

    /// Returns the value of an object as the transaction sees it; the outer `None` if the
    /// transaction has not read or changed it.
    #[expect(clippy::option_option, reason = "see above")]
    fn seen(&self, table: Table, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let touched = self.objects.get(&(table.0, key.to_vec()))?;
        match &touched.change {
            Some(Change::Put(value, _)) => Some(Some(value.clone())),
            Some(Change::Remove) => Some(None),
            None => Some(touched.read.as_ref()?.as_ref().map(|object| object.value.clone())),
        }
    }

    fn note_read(&mut self, table: Table, key: &[u8], object: Option<Object>) {
        self.at(table, key).read.get_or_insert(object);
    }

    fn note_change(&mut self, table: Table, key: &[u8], change: Change) {
        self.at(table, key).change = Some(change);
    }

    /// Returns those of some objects that the transaction has neither read nor changed.
    fn unseen<'a>(&self, keys: &[(Table, &'a [u8])]) -> Vec<(Table, &'a [u8])> {
        keys.iter().copied().filter(|(table, key)| self.seen(*table, key).is_none()).collect()
    }

    /// Takes the results of a [batch of reads](reads) of these objects, which were read at one
    /// moment if `at_once`.
    fn note_reads(
        &mut self,
        keys: &[(Table, &[u8])],
        (results, at_once): BatchResults,
    ) -> Result<(), Error> {
        let is_first = self.objects.is_empty();
        for ((table, key), result) in keys.iter().zip(results) {
            let BatchResult::Read(object) = result? else { unreachable!("a batch of reads") };
            self.note_read(*table, key, object);
        }
        if is_first && at_once {
            self.at_once = self.objects.len();
        }
        Ok(())
    }

    /// Returns the values of objects that the transaction has read or changed.
    fn values(&self, keys: &[(Table, &[u8])]) -> Vec<Option<Vec<u8>>> {
        keys.iter().map(|(table, key)| self.seen(*table, key).flatten()).collect()
    }

    /// Returns how the transaction is committed.
    pub(crate) fn commit(&self) -> Commit<'_> {
        let changes = self.objects.values().any(|touched| touched.change.is_some());
        if !changes && self.objects.len() <= self.at_once.max(1) {
            return Commit::Done;
        }
        // An absent object has no version, by which a second read would show that it did not exist
        // for a while in between.
        let lacks = self.objects.values().any(|touched| touched.read == Some(None));
        if changes || lacks {
            return Commit::Execute(self.objects.iter().map(operation).collect());
        }
        Commit::Validate(reads(self.objects.keys().map(|(table, key)| (Table(*table), &key[..]))))
    }

    /// Returns whether the objects that were read still have the versions that they had. `results`
    /// are those of the batch of [`Commit::Validate`], all of which was read after the last of the
    /// transaction's own reads. So at the time of the last read all objects were as they were read.
    pub(crate) fn is_unchanged(
        &self,
        results: Vec<Result<BatchResult, Error>>,
    ) -> Result<(), Error> {
        for (touched, result) in self.objects.values().zip(results) {
            let BatchResult::Read(now) = result? else { unreachable!("a batch of reads") };
            let before = touched.read.as_ref().and_then(Option::as_ref);
            if before.map(|object| object.version) != now.map(|object| object.version) {
                return Err(Error::TransactionConflict);
            }
        }
        Ok(())
    }
}

/// Returns a batch of reads.
fn reads<'a>(keys: impl IntoIterator<Item = (Table, &'a [u8])>) -> Batch<'a> {
    let mut batch = Batch::new();
    for (table, key) in keys {
        batch.get(table, key);
    }
    batch
}

fn operation<'a>(
    ((table, key), touched): (&'a (u32, Vec<u8>), &'a Touched),
) -> TransactionOperation<'a> {
    let condition = match &touched.read {
        None => Condition::None,
        Some(None) => Condition::Absent,
        Some(Some(object)) => Condition::Version(object.version),
    };
    let action = match &touched.change {
        None => TransactionAction::Check,
        Some(Change::Remove) => TransactionAction::Remove,
        Some(Change::Put(value, ttl)) => TransactionAction::Write(value, *ttl),
    };
    TransactionOperation { table: *table, key, condition, action }
}

/// A transaction of a [`Client`]: see [`Client::transact`].
pub struct Transaction<'c> {
    pub(crate) client: &'c mut Client,
    pub(crate) touches: Touches,
}

impl Transaction<'_> {
    /// Returns the value of an object as this transaction sees it; `None` when there is no object.
    /// An object is read from its server once.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if let Some(seen) = self.touches.seen(table, key) {
            return Ok(seen);
        }
        let object = self.client.get(table, key)?;
        let value = object.as_ref().map(|object| object.value.clone());
        self.touches.note_read(table, key, object);
        Ok(value)
    }

    /// Returns the values of several objects, in order, as [`get`](Self::get) does each. Reads them
    /// together, in one request to each server. A transaction that reads nothing else, and all from
    /// one server, then takes no more than this one request.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn get_many(&mut self, keys: &[(Table, &[u8])]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let unseen = self.touches.unseen(keys);
        let results = self.client.batch_at_once(&reads(unseen.iter().copied()));
        self.touches.note_reads(&unseen, results)?;
        Ok(self.touches.values(keys))
    }

    /// Stores an object when the transaction is committed, replacing the one of that key if there
    /// is one. The object never expires, even if the one it replaces would.
    pub fn put(&mut self, table: Table, key: &[u8], value: impl Into<Vec<u8>>) {
        self.touches.note_change(table, key, Change::Put(value.into(), None));
    }

    /// Stores an object like [`put`](Self::put), which expires after this time, counted from when
    /// its server writes it.
    pub fn put_for(&mut self, table: Table, key: &[u8], value: impl Into<Vec<u8>>, ttl: Ttl) {
        self.touches.note_change(table, key, Change::Put(value.into(), Some(ttl)));
    }

    /// Removes an object when the transaction is committed, if there is one.
    pub fn remove(&mut self, table: Table, key: &[u8]) {
        self.touches.note_change(table, key, Change::Remove);
    }
}

/// A transaction of an [`AsyncClient`]: see [`AsyncClient::transact`].
pub struct AsyncTransaction {
    pub(crate) client: AsyncClient,
    pub(crate) touches: Touches,
}

impl AsyncTransaction {
    /// Returns the value of an object: see [`Transaction::get`].
    ///
    /// # Errors
    /// As [`AsyncClient::get`].
    pub async fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if let Some(seen) = self.touches.seen(table, key) {
            return Ok(seen);
        }
        let object = self.client.get(table, key).await?;
        let value = object.as_ref().map(|object| object.value.clone());
        self.touches.note_read(table, key, object);
        Ok(value)
    }

    /// Returns the values of several objects: see [`Transaction::get_many`].
    ///
    /// # Errors
    /// As [`AsyncClient::batch`].
    pub async fn get_many(
        &mut self,
        keys: &[(Table, &[u8])],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let unseen = self.touches.unseen(keys);
        let results = self.client.batch_at_once(&reads(unseen.iter().copied())).await?;
        self.touches.note_reads(&unseen, results)?;
        Ok(self.touches.values(keys))
    }

    /// Stores an object when the transaction is committed: see [`Transaction::put`].
    pub fn put(&mut self, table: Table, key: &[u8], value: impl Into<Vec<u8>>) {
        self.touches.note_change(table, key, Change::Put(value.into(), None));
    }

    /// Stores an object that expires: see [`Transaction::put_for`].
    pub fn put_for(&mut self, table: Table, key: &[u8], value: impl Into<Vec<u8>>, ttl: Ttl) {
        self.touches.note_change(table, key, Change::Put(value.into(), Some(ttl)));
    }

    /// Removes an object when the transaction is committed: see [`Transaction::remove`].
    pub fn remove(&mut self, table: Table, key: &[u8]) {
        self.touches.note_change(table, key, Change::Remove);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sprat_wire::value::ValueType;

    /// A token that other clients move between two keys is never seen at neither of them: what was
    /// absent in both rounds of reads may have been there in between.
    #[test]
    fn an_absent_object_is_not_validated_by_a_second_read() {
        let object =
            || Object { version: 7, value: Vec::new(), value_type: ValueType::Bytes, ttl: None };
        let mut touches = Touches::default();
        touches.note_read(Table(1), b"a", None);
        assert!(matches!(touches.commit(), Commit::Done), "a single read is linearizable");
        touches.note_read(Table(1), b"b", Some(object()));
        let Commit::Execute(operations) = touches.commit() else { panic!("it is not locked") };
        assert!(operations.iter().all(|one| one.action == TransactionAction::Check));
        assert_eq!(operations[0].condition, Condition::Absent);
        assert_eq!(operations[1].condition, Condition::Version(7));
        let mut touches = Touches::default();
        touches.note_read(Table(1), b"a", Some(object()));
        touches.note_read(Table(1), b"b", Some(object()));
        assert!(matches!(touches.commit(), Commit::Validate(_)));
    }

    #[test]
    fn what_was_read_at_one_moment_is_not_read_again() {
        let keys: [(Table, &[u8]); 2] = [(Table(1), b"a"), (Table(2), b"b")];
        let results = || vec![Ok(BatchResult::Read(None)), Ok(BatchResult::Read(None))];
        let mut touches = Touches::default();
        touches.note_reads(&keys, (results(), true)).unwrap();
        assert!(matches!(touches.commit(), Commit::Done));
        // One more read, another time.
        touches.note_read(Table(3), b"c", None);
        assert!(matches!(touches.commit(), Commit::Execute(_)));
        let mut touches = Touches::default();
        touches.note_reads(&keys, (results(), false)).unwrap();
        assert!(matches!(touches.commit(), Commit::Execute(_)), "of two servers");
        let mut touches = Touches::default();
        touches.note_read(Table(3), b"c", None);
        touches.note_reads(&keys, (results(), true)).unwrap();
        assert!(matches!(touches.commit(), Commit::Execute(_)), "after another read");
    }
}
