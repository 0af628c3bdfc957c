//! What an object in memory says of its key, and what follows from that. Pure.

use crate::error::Error;

/// Bytes of the longest value: the store's, without the byte that says what it is.
pub const MAX_BRIDGED_VALUE: usize = (1 << 20) - 1;

const LOADING: u8 = 0;
const DIRTY: u8 = 1;
const CLEAN: u8 = 2;
const GONE: u8 = 3;

/// An object of a bridged table, as its value says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cell<'a> {
    /// Somebody asks the home for it. Whatever was acknowledged before it is at home.
    Loading,
    /// Acknowledged, and perhaps not at home yet.
    Dirty(&'a [u8]),
    /// As it is at home.
    Clean(&'a [u8]),
    /// Deleted, and perhaps not at home yet.
    Gone,
}

impl<'a> Cell<'a> {
    /// What the bytes say.
    ///
    /// # Errors
    /// [`Error::NotACell`]: somebody else writes to this table.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        match bytes.split_first() {
            Some((&LOADING, [])) => Ok(Self::Loading),
            Some((&GONE, [])) => Ok(Self::Gone),
            Some((&DIRTY, value)) => Ok(Self::Dirty(value)),
            Some((&CLEAN, value)) => Ok(Self::Clean(value)),
            _ => Err(Error::NotACell),
        }
    }

    /// The bytes that say this.
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

    /// What must reach the home; none where that has it.
    #[must_use]
    pub fn delivery(self, version: u64, stamps: Stamps) -> Option<Delivery<'a>> {
        let stamp = stamps.of(version);
        match self {
            Self::Dirty(value) => Some(Delivery { stamp, value: Some(value) }),
            Self::Gone => Some(Delivery { stamp, value: None }),
            Self::Clean(_) | Self::Loading => None,
        }
    }

    /// Whether it may be removed from memory, by its version, with nothing lost.
    #[must_use]
    pub fn may_leave(self) -> bool {
        matches!(self, Self::Clean(_) | Self::Loading)
    }
}

/// What stands in the object's place, if it is as it was, once the home has acknowledged the
/// delivery; none: nothing.
#[must_use]
pub fn after_delivery<'a>(delivery: &Delivery<'a>) -> Option<Cell<'a>> {
    delivery.value.map(Cell::Clean)
}

/// What is sent home.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Delivery<'a> {
    /// Its write timestamp, microseconds since 1970 by Cassandra's custom.
    pub stamp: i64,
    /// The value; none: a deletion.
    pub value: Option<&'a [u8]>,
}

/// How write timestamps follow from versions: by adding what was fixed when the table was made.
/// Both grow together, so that the home keeps the newest, in whatever order it hears of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamps {
    base: i64,
}

impl Stamps {
    /// Those of a table made at this time, microseconds since 1970: above all timestamps that
    /// clocks gave before.
    ///
    /// # Errors
    /// [`Error::Base`]: no timestamps are left above it.
    pub fn new(base: u64) -> Result<Self, Error> {
        // Versions have 48 bits.
        match i64::try_from(base) {
            Ok(base) if base < i64::MAX >> 1 => Ok(Self { base }),
            _ => Err(Error::Base(base)),
        }
    }

    /// The timestamp of a version.
    #[must_use]
    pub fn of(self, version: u64) -> i64 {
        self.base.saturating_add_unsigned(version)
    }
}
