//! Many operations at once.

use crate::operations::{double_sum, integer_sum, number, object, version_if_any};
use crate::types::{Object, Table};
use sprat_wire::expiry::Ttl;
use sprat_wire::op::{Answer, Condition, Request};
use sprat_wire::value::{Number, ValueType};

/// Number of operations that a client sends at a time, of a larger batch.
pub const BATCH_WINDOW: usize = 4096;

const _: () = assert!(BATCH_WINDOW <= crate::MAX_PENDING);

/// Operations on single objects, of any tables, that travel together: one request carries all
/// operations for one server, within the limits of a message.
///
/// Each operation takes effect by itself, once or not at all, as if it were called alone, and has a
/// result of its own. The operations may be executed in any order, also those on one object: an
/// operation that must be sent again is sent by itself. A batch is no transaction.
///
/// ```no_run
/// # fn main() -> Result<(), sprat_client::Error> {
/// # use sprat_client::{Batch, BatchResult, Client, Options};
/// # let mut client = Client::connect(&Options::default())?;
/// # let users = client.create_table("users")?;
/// let mut batch = Batch::new();
/// batch.put(users, b"bob", b"likes coffee").get(users, b"alice");
/// for result in client.batch(&batch) {
///     match result? {
///         BatchResult::Written { version } => println!("version {version}"),
///         BatchResult::Read(Some(object)) => println!("{} bytes", object.value.len()),
///         _ => println!("no such object"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch<'a> {
    pub(crate) requests: Vec<Request<'a>>,
}

impl<'a> Batch<'a> {
    /// Makes a batch of no operations.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether there are no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Adds a read. Its result is [`BatchResult::Read`].
    pub fn get(&mut self, table: Table, key: &'a [u8]) -> &mut Self {
        self.add(Request::Read { table: table.0, key })
    }

    /// Adds a write. Its result is [`BatchResult::Written`].
    pub fn put(&mut self, table: Table, key: &'a [u8], value: &'a [u8]) -> &mut Self {
        self.put_if(table, key, value, Condition::None)
    }

    /// Adds a write on a condition. Its result is [`BatchResult::Written`], or
    /// [`Error::Conflict`](crate::Error::Conflict) when the condition does not hold.
    pub fn put_if(
        &mut self,
        table: Table,
        key: &'a [u8],
        value: &'a [u8],
        condition: Condition,
    ) -> &mut Self {
        self.add(Request::Write { table: table.0, key, value, condition, ttl: None })
    }

    /// Adds a write, on a condition, of an object that expires. Its result is as for
    /// [`put_if`](Self::put_if).
    pub fn put_for(
        &mut self,
        table: Table,
        key: &'a [u8],
        value: &'a [u8],
        ttl: Ttl,
        condition: Condition,
    ) -> &mut Self {
        self.add(Request::Write { table: table.0, key, value, condition, ttl: Some(ttl) })
    }

    /// Adds a change of when an object expires; `None`: never. Its result is
    /// [`BatchResult::TtlSet`].
    pub fn set_ttl(&mut self, table: Table, key: &'a [u8], ttl: Option<Ttl>) -> &mut Self {
        self.add(Request::SetTtl { table: table.0, key, condition: Condition::None, ttl })
    }

    /// Adds a removal. Its result is [`BatchResult::Removed`].
    pub fn remove(&mut self, table: Table, key: &'a [u8]) -> &mut Self {
        self.remove_if(table, key, Condition::None)
    }

    /// Adds a removal on a condition. Its result is [`BatchResult::Removed`], or
    /// [`Error::Conflict`](crate::Error::Conflict) when the condition does not hold.
    pub fn remove_if(&mut self, table: Table, key: &'a [u8], condition: Condition) -> &mut Self {
        self.add(Request::Remove { table: table.0, key, condition })
    }

    /// Adds an addition to a 64-bit integer. Its result is [`BatchResult::Sum`].
    pub fn increment_i64(&mut self, table: Table, key: &'a [u8], delta: i64) -> &mut Self {
        self.add(Request::IncrementI64 { table: table.0, key, delta })
    }

    /// Adds an addition to a double. Its result is [`BatchResult::Sum`].
    pub fn increment_f64(&mut self, table: Table, key: &'a [u8], delta: f64) -> &mut Self {
        self.add(Request::IncrementF64 { table: table.0, key, delta })
    }

    /// Adds an object of a backup, which is stored with its version unless the table has that
    /// version of it or a later one. Its result is [`BatchResult::Written`], with the version that
    /// the object has then. Only an administrator may do this.
    pub fn restore(
        &mut self,
        table: Table,
        key: &'a [u8],
        (value, value_type): (&'a [u8], ValueType),
        version: u64,
        ttl: Option<Ttl>,
    ) -> &mut Self {
        let value_type = Some(value_type);
        self.add(Request::Restore { table: table.0, key, value, value_type, version, ttl })
    }

    /// Adds an element of a collection of a backup, or the record of its owner, whose key has the
    /// id that the collection has in the table, like [`restore`](Self::restore).
    pub fn restore_element(
        &mut self,
        table: Table,
        key: &'a [u8],
        value: &'a [u8],
        version: u64,
    ) -> &mut Self {
        let (table, value_type, ttl) = (table.0, None, None);
        self.add(Request::Restore { table, key, value, value_type, version, ttl })
    }

    fn add(&mut self, request: Request<'a>) -> &mut Self {
        self.requests.push(request);
        self
    }
}

/// The result of an operation of a [`Batch`].
#[derive(Clone, Debug, PartialEq)]
pub enum BatchResult {
    /// The object that was read; `None` when there was none.
    Read(Option<Object>),
    /// The object was written.
    Written {
        /// Its version.
        version: u64,
    },
    /// The version of the object that was removed; `None` when there was none.
    Removed(Option<u64>),
    /// The version that the object got when its time to live was set; `None` when there was none.
    TtlSet(Option<u64>),
    /// The counter was changed.
    Sum {
        /// The new sum.
        sum: Number,
        /// The version of the object.
        version: u64,
    },
}

/// The kind of an operation, which decides how its answer is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BatchKind {
    Read,
    Write,
    SetTtl,
    Remove,
    Integer,
    Double,
}

impl BatchKind {
    /// Returns the kind of a request in a batch.
    ///
    /// # Panics
    /// When a batch cannot have such a request.
    pub(crate) fn of(request: &Request<'_>) -> Self {
        match request {
            Request::Read { .. } => Self::Read,
            Request::Write { .. } | Request::Restore { .. } => Self::Write,
            Request::SetTtl { .. } => Self::SetTtl,
            Request::Remove { .. } => Self::Remove,
            Request::IncrementI64 { .. } => Self::Integer,
            Request::IncrementF64 { .. } => Self::Double,
            _ => unreachable!("`Batch` has no method for it"),
        }
    }

    /// Makes the result from an answer; `None` for a malformed answer.
    pub(crate) fn result(self, answer: &Answer<'_>) -> Option<BatchResult> {
        let sum = |(sum, version)| BatchResult::Sum { sum, version };
        Some(match self {
            Self::Read => BatchResult::Read(object(answer)?),
            Self::Write => BatchResult::Written { version: number(answer)? },
            Self::SetTtl => BatchResult::TtlSet(version_if_any(answer)?),
            Self::Remove => BatchResult::Removed(version_if_any(answer)?),
            Self::Integer => {
                sum(integer_sum(answer).map(|(sum, version)| (Number::Integer(sum), version))?)
            }
            Self::Double => {
                sum(double_sum(answer).map(|(sum, version)| (Number::Double(sum), version))?)
            }
        })
    }
}
