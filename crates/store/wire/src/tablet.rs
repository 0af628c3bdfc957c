//! Tablets: parts of tables, each served by one server.
//!
//! All objects of a table are in one order: that of their keys' [`position`]s, which is also the
//! order of scans. A tablet is a range of positions. The hash is seeded with the cluster's id, so
//! that outsiders cannot choose keys that all fall into one tablet.

use crate::elements::{self, ELEMENTS};
use crate::once::COMPLETIONS;
use crate::transaction::{PREPARED, parse_prepared_key};
use std::fmt;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The largest number of tablets of one table.
pub const MAX_TABLETS: usize = 1024;

/// Returns the table to which entries of the table `id` belong: `id` itself, unless it is that of
/// the table's [completions](COMPLETIONS), of its [prepared entries](PREPARED) or of the
/// [elements](ELEMENTS) of its collections.
#[inline]
#[must_use]
pub fn table_of(id: u32) -> u32 {
    id & !(COMPLETIONS | PREPARED | ELEMENTS)
}

/// Returns the hash of a table's key under a seed. A prepared entry has the hash of the object that
/// it locks.
#[inline]
#[must_use]
pub fn hash(seed: u64, table: u32, key: &[u8]) -> u64 {
    let (table, key) = match table & PREPARED {
        0 => (table, key),
        _ => (table & !PREPARED, parse_prepared_key(key).map_or(key, |(key, _)| key)),
    };
    // The table's id, times an odd constant, is added to the seed: so neighbouring ids differ in
    // high bits too.
    xxh3_64_with_seed(key, seed.wrapping_add(u64::from(table).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

/// Returns a key's position in its table's order: the key's hash with the bits reversed. An element
/// of a collection has a [position](elements::position) near that of the collection's head.
#[inline]
#[must_use]
pub fn position(seed: u64, table: u32, key: &[u8]) -> u64 {
    match table & ELEMENTS {
        0 => hash(seed, table, key).reverse_bits(),
        _ => elements::position(key),
    }
}

/// The bits of a position below its place.
const REST: u64 = u64::MAX >> elements::PLACE_BITS;

/// A range of positions, both ends included.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Range {
    /// The first position.
    pub first: u64,
    /// The last position; never below the first.
    pub last: u64,
}

impl Range {
    /// All positions.
    pub const ALL: Self = Self { first: 0, last: u64::MAX };

    /// Returns whether this is the range of all positions.
    #[inline]
    #[must_use]
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// Returns whether a position is in the range.
    #[inline]
    #[must_use]
    pub fn contains(self, position: u64) -> bool {
        (self.first..=self.last).contains(&position)
    }

    /// Returns whether the range begins and ends between two [places](elements::place).
    #[must_use]
    pub fn has_whole_places(self) -> bool {
        self.first & REST == 0 && self.last & REST == REST
    }

    /// Returns the positions that are in both ranges; `None` if there are none.
    #[must_use]
    pub fn overlap(self, other: Self) -> Option<Self> {
        let both = Self { first: self.first.max(other.first), last: self.last.min(other.last) };
        (both.first <= both.last).then_some(both)
    }

    /// Returns the positions of this range that are in none of `others`, as ascending ranges.
    #[must_use]
    pub fn without(self, others: impl IntoIterator<Item = Self>) -> Vec<Self> {
        others.into_iter().fold(vec![self], |left, other| {
            let rest = |range: Self| {
                let Some(gone) = range.overlap(other) else { return vec![range] };
                let before = gone.first.checked_sub(1).map(|last| Self { last, ..range });
                let behind = gone.last.checked_add(1).map(|first| Self { first, ..range });
                before.into_iter().chain(behind).filter(|part| part.first <= part.last).collect()
            };
            left.into_iter().flat_map(rest).collect()
        })
    }

    /// Splits the range into `count` parts that are as equal as possible, or into as many parts as
    /// it has positions if these are fewer. Large parts begin at a [place](elements::place), so
    /// that the elements of a collection are in one of them.
    ///
    /// # Panics
    /// When `count` is zero.
    #[must_use]
    pub fn parts(self, count: u64) -> Vec<Self> {
        assert!(count > 0, "a range in no parts");
        let positions = u128::from(self.last - self.first) + 1;
        let count = u128::from(count).min(positions);
        let edge = |part: u128| {
            let ahead = u64::try_from(positions * part / count).unwrap_or(u64::MAX);
            let edge = self.first.saturating_add(ahead);
            let is_large = part > 0 && positions / count > u128::from(REST);
            if is_large { edge & !REST } else { edge }
        };
        let last = |part: u128| if part + 1 == count { self.last } else { edge(part + 1) - 1 };
        (0..count).map(|part| Self { first: edge(part), last: last(part) }).collect()
    }
}

impl fmt::Display for Range {
    /// Shows the leading 16 bits of both ends in hexadecimal, such as `0000..3fff` or `c000..ffff`;
    /// all 64 bits if 16 do not determine the range.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_whole_places() {
            write!(f, "{:04x}..{:04x}", self.first >> 48, self.last >> 48)
        } else {
            write!(f, "{:016x}..{:016x}", self.first, self.last)
        }
    }
}

/// A tablet: a range of a table's positions.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Tablet {
    /// Id of the table.
    pub table: u32,
    /// The tablet's part of the table's positions.
    pub range: Range,
}

impl Tablet {
    /// Returns the tablet that is a whole table.
    #[must_use]
    pub fn whole(table: u32) -> Self {
        Self { table, range: Range::ALL }
    }
}

impl fmt::Display for Tablet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.range {
            Range::ALL => write!(f, "table {}", self.table),
            range => write!(f, "table {} {range}", self.table),
        }
    }
}
