//! The content of objects in a bridged table, and the pure functions that decide what to do with
//! it.

use crate::error::Error;

/// Limit on the length of a value, in bytes: the store's limit less one byte for the state.
pub const MAX_BRIDGED_VALUE: usize = (1 << 20) - 1;

const LOADING: u8 = 0;
const DIRTY: u8 = 1;
const CLEAN: u8 = 2;
const GONE: u8 = 3;

/// An object of a bridged table: a state, and a value if it has one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cell<'a> {
    /// A bridge is reading the key from the home. The home has every write that was acknowledged
    /// before this cell was stored.
    Loading,
    /// A value that is acknowledged, and possibly not in the home yet.
    Dirty(&'a [u8]),
    /// A value that is also in the home.
    Clean(&'a [u8]),
    /// A deletion that is acknowledged, and possibly not in the home yet.
    Gone,
}

impl<'a> Cell<'a> {
    /// Parses an object's value.
    ///
    /// # Errors
    /// [`Error::NotACell`] if `bytes` is empty, has an unknown state, or has a value in a state
    /// that allows none. In each case another program has written to this table.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        match bytes.split_first() {
            Some((&LOADING, [])) => Ok(Self::Loading),
            Some((&GONE, [])) => Ok(Self::Gone),
            Some((&DIRTY, value)) => Ok(Self::Dirty(value)),
            Some((&CLEAN, value)) => Ok(Self::Clean(value)),
            _ => Err(Error::NotACell),
        }
    }

    /// Encodes the cell as an object's value.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let (kind, value): (u8, &[u8]) = match self {
            Self::Loading => (LOADING, &[]),
            Self::Dirty(value) => (DIRTY, value),
            Self::Clean(value) => (CLEAN, value),
            Self::Gone => (GONE, &[]),
        };
        let mut bytes = Vec::with_capacity(1 + value.len());
        bytes.push(kind);
        bytes.extend_from_slice(value);
        bytes
    }

    /// Returns the write that must be delivered to the home. Returns `None` for clean and loading
    /// cells, because the home has every write that was acknowledged before them.
    #[must_use]
    pub fn delivery(self, version: u64, stamps: Stamps) -> Option<Delivery<'a>> {
        let stamp = stamps.of(version);
        match self {
            Self::Dirty(value) => Some(Delivery { stamp, value: Some(value) }),
            Self::Gone => Some(Delivery { stamp, value: None }),
            Self::Clean(_) | Self::Loading => None,
        }
    }

    /// Returns whether the object may be evicted from memory. An eviction must have the condition
    /// that the object's version is unchanged.
    #[must_use]
    pub fn may_be_evicted(self) -> bool {
        matches!(self, Self::Clean(_) | Self::Loading)
    }
}

/// Returns the cell that replaces a delivered object if the object's version is unchanged. `None`
/// means that the object is removed instead.
#[must_use]
pub fn after_delivery<'a>(delivery: &Delivery<'a>) -> Option<Cell<'a>> {
    delivery.value.map(Cell::Clean)
}

/// A write to the home.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Delivery<'a> {
    /// The write timestamp, in microseconds since 1970, as Cassandra's clients write it.
    pub stamp: i64,
    /// The value, or `None` for a deletion.
    pub value: Option<&'a [u8]>,
}

/// Maps versions of objects to write timestamps, by adding a base: the time at which the first
/// bridge opened the table. Timestamps grow with versions, so the home keeps the newest write even
/// if deliveries arrive in another order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamps {
    base: i64,
}

impl Stamps {
    /// Creates the mapping of a table that was first opened at `base`, in microseconds since 1970.
    /// The mapping's timestamps are above those of all writes before that time.
    ///
    /// # Errors
    /// [`Error::Base`] if too few timestamps are left above `base`.
    pub fn new(base: u64) -> Result<Self, Error> {
        // A version has 48 bits.
        match i64::try_from(base) {
            Ok(base) if base < i64::MAX >> 1 => Ok(Self { base }),
            _ => Err(Error::Base(base)),
        }
    }

    /// Returns the timestamp of a version.
    #[must_use]
    pub fn of(self, version: u64) -> i64 {
        self.base.saturating_add_unsigned(version)
    }
}
