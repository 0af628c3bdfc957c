//! Ordered tables and indexes: ranges of keys, and the pages in which a server returns the objects
//! of one.
//!
//! The keys are the objects' own, or those of an [index](crate::index). The objects are in tablets
//! by their positions, as those of any table, so each server of the table has objects from
//! everywhere in a range. A page from one server has those objects of the range that are in the
//! tablets which the page names. A client requests pages until they cover all positions, and merges
//! them.

use crate::MAX_KEY;
use crate::index::{MAX_INDEX_KEY, OWN_KEYS};
use crate::op::{Answer, Item, Items};
use crate::tablet::{MAX_TABLETS, Range};
use std::borrow::Cow;
use std::ops::{Bound, RangeBounds as _};

/// A range of keys, in the order of their bytes, and the direction of a scan through it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KeyRange<'a> {
    /// The lowest key.
    pub from: Bound<&'a [u8]>,
    /// The highest key.
    pub to: Bound<&'a [u8]>,
    /// Whether the highest key comes first.
    pub descending: bool,
}

impl<'a> KeyRange<'a> {
    /// All keys, from the lowest.
    pub const ALL: Self = Self { from: Bound::Unbounded, to: Bound::Unbounded, descending: false };

    /// Returns whether a key is in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        (self.from, self.to).contains(key)
    }

    /// Returns whether no key can be in the range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match (self.from, self.to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (
                Bound::Included(from) | Bound::Excluded(from),
                Bound::Included(to) | Bound::Excluded(to),
            ) => from >= to,
            _ => false,
        }
    }

    /// Returns the part of the range that a scan reaches after this key.
    #[must_use]
    pub fn after(self, key: &'a [u8]) -> Self {
        match self.descending {
            false => Self { from: Bound::Excluded(key), ..self },
            true => Self { to: Bound::Excluded(key), ..self },
        }
    }

    /// Returns whether a scan reaches key `one` before key `other`.
    #[must_use]
    pub fn comes_before(&self, one: &[u8], other: &[u8]) -> bool {
        if self.descending { one > other } else { one < other }
    }
}

/// A range of keys of an index, or of the objects' own keys, and the largest number of objects to
/// return, as bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RangeQuery<'a> {
    bytes: &'a [u8],
    index: u32,
    range: KeyRange<'a>,
    limit: u32,
}

/// Bytes of a query in front of its keys: the kinds of the bounds and the direction, the index, the
/// limit, and the length of the first key.
const QUERY_BYTES: usize = 1 + 4 + 4 + 4;

/// The bit of the first byte that says that the highest key comes first.
const DESCENDING: u8 = 1 << 4;

impl<'a> RangeQuery<'a> {
    /// Writes a query to `out`, and returns it. A limit of zero counts as one. The caller checks
    /// the lengths of the keys before it sends the query.
    ///
    /// # Panics
    /// When a key has 4 GB.
    pub fn write(out: &'a mut Vec<u8>, index: u32, range: &KeyRange<'_>, limit: u32) -> Self {
        let parts = |bound| match bound {
            Bound::Unbounded => (0, &[][..]),
            Bound::Included(key) => (1, key),
            Bound::Excluded(key) => (2, key),
        };
        let ((from_kind, from), (to_kind, to)) = (parts(range.from), parts(range.to));
        let direction = if range.descending { DESCENDING } else { 0 };
        out.clear();
        out.push(from_kind | to_kind << 2 | direction);
        out.extend_from_slice(&index.to_le_bytes());
        out.extend_from_slice(&limit.max(1).to_le_bytes());
        out.extend_from_slice(&u32::try_from(from.len()).expect("a key").to_le_bytes());
        out.extend_from_slice(from);
        out.extend_from_slice(to);
        Self::split(out).expect("its parts are valid")
    }

    /// Parses a query; `None` if it is malformed or a key is over its limit.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        Self::split(bytes).filter(|query| query.longest_key() <= query.max_key())
    }

    fn split(bytes: &'a [u8]) -> Option<Self> {
        let (head, keys) = bytes.split_first_chunk::<QUERY_BYTES>()?;
        let code = head[0];
        let (numbers, _) = head[1..].as_chunks();
        let [index, limit, from_len] = [0, 1, 2].map(|at| u32::from_le_bytes(numbers[at]));
        let (from, to) = keys.split_at_checked(from_len.try_into().ok()?)?;
        if code >= DESCENDING << 1 {
            return None;
        }
        let bound = |kind: u8, key: &'a [u8]| match kind & 3 {
            0 if key.is_empty() => Some(Bound::Unbounded),
            1 => Some(Bound::Included(key)),
            2 => Some(Bound::Excluded(key)),
            _ => None,
        };
        let (from, to, descending) =
            (bound(code, from)?, bound(code >> 2, to)?, code & DESCENDING != 0);
        let range = KeyRange { from, to, descending };
        (limit > 0).then_some(Self { bytes, index, range, limit })
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the length of the longer key.
    #[must_use]
    pub fn longest_key(&self) -> usize {
        let len = |bound| match bound {
            Bound::Unbounded => 0,
            Bound::Included(key) | Bound::Excluded(key) => <[u8]>::len(key),
        };
        len(self.range.from).max(len(self.range.to))
    }

    /// Returns the largest length that a key may have.
    #[must_use]
    pub fn max_key(&self) -> usize {
        if self.index == OWN_KEYS { MAX_KEY } else { MAX_INDEX_KEY }
    }

    /// Returns the number of the index, or [`OWN_KEYS`].
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the keys.
    #[must_use]
    pub fn range(&self) -> KeyRange<'a> {
        self.range
    }

    /// Returns the largest number of objects to return; never zero.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }
}

/// A part of the objects of a range of keys.
///
/// On the wire the objects come first ([`Items`]), and the `number` of the answer is the length of
/// their bytes. If there are `more`, the last key follows, after its length. If the keys are those
/// of an index, the encoded field of each object follows, after its length. The covered positions
/// are the rest.
#[derive(Clone, Debug)]
pub struct RangePage<'a> {
    /// The objects, in the order of the scan.
    pub items: Items<'a>,
    /// The encoded field of each object; none if the keys are the objects' own.
    fields: Vec<&'a [u8]>,
    /// The last key that the page covers; `None` if it covers the range to its end.
    pub last: Option<&'a [u8]>,
    /// The positions that the page covers: the objects of the range up to `last` that are at these
    /// positions are in the page.
    pub covered: Vec<Range>,
}

impl<'a> RangePage<'a> {
    /// Appends what follows the objects in the body of an answer. The `fields` are those of the
    /// objects, encoded, or none if the keys are the objects' own.
    ///
    /// # Panics
    /// When a field or a key is longer than it may be.
    pub fn write_end<'f>(
        out: &mut Vec<u8>,
        last: Option<&[u8]>,
        fields: impl IntoIterator<Item = &'f [u8]>,
        covered: &[Range],
    ) {
        if let Some(last) = last {
            let len = u32::try_from(last.len()).expect("key within limits");
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(last);
        }
        for field in fields {
            let len = u16::try_from(field.len()).expect("field within limits");
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(field);
        }
        for range in covered {
            out.extend_from_slice(&range.first.to_le_bytes());
            out.extend_from_slice(&range.last.to_le_bytes());
        }
    }

    /// Parses the answer to a scan of a range of keys of this index; `None` if it is malformed.
    #[must_use]
    pub fn parse(answer: &Answer<'a>, index: u32) -> Option<Self> {
        let (items, mut rest) = answer.body.split_at_checked(answer.number.try_into().ok()?)?;
        let mut last = None;
        if answer.more {
            let (len, behind) = rest.split_first_chunk()?;
            let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
            let (key, behind) = behind.split_at_checked(len)?;
            (last, rest) = (Some(key), behind);
        }
        let mut fields = Vec::new();
        for _ in 0..if index == OWN_KEYS { 0 } else { answer.count } {
            let (len, behind) = rest.split_first_chunk()?;
            let (field, behind) = behind.split_at_checked(u16::from_le_bytes(*len).into())?;
            fields.push(field);
            rest = behind;
        }
        if rest.len() > MAX_TABLETS * 2 * size_of::<u64>() {
            return None;
        }
        let (ranges, rest) = rest.as_chunks::<{ 2 * size_of::<u64>() }>();
        let range = |bytes: &[u8; 2 * size_of::<u64>()]| {
            let (halves, _) = bytes.as_chunks();
            let [first, last] = [halves[0], halves[1]].map(u64::from_le_bytes);
            (first <= last).then_some(Range { first, last })
        };
        let covered = ranges.iter().map(range).collect::<Option<Vec<_>>>()?;
        let items = Items::new(items, answer.count);
        rest.is_empty().then_some(Self { items, fields, last, covered })
    }

    /// Returns the objects, each with its key in the order; `None` if one is malformed.
    #[must_use]
    pub fn rows(&self) -> Option<Vec<(Cow<'a, [u8]>, Item<'a>)>> {
        let mut fields = self.fields.iter();
        let row = |item: Option<Item<'a>>| {
            let item = item?;
            let key = match fields.next() {
                None => Cow::Borrowed(item.key),
                Some(field) => Cow::Owned([field, item.key].concat()),
            };
            Some((key, item))
        };
        self.items.clone().map(row).collect()
    }
}
