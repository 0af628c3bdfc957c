//! Entries of the log that count together or not at all.
//!
//! Before the first entry of a *group* stands a mark: an entry of the kind of a segment's header,
//! which cannot be one because it is not the first of its segment. Its value is the number of bytes
//! of the entries in the group. A group lies in one segment, a head. A log that ends within a group
//! ends before its mark: none of its entries was acknowledged. Programs from before there were
//! groups refuse a log with a mark.

use crate::entry::{Entry, HEADER_BYTES, Kind};
use crate::expiry::NEVER;
use crate::value::ValueType;

/// Bytes of a mark.
pub const MARK_BYTES: usize = HEADER_BYTES + size_of::<u32>();

/// Writes the mark of a group whose entries have `len` bytes.
///
/// # Panics
/// When `out` does not have [`MARK_BYTES`], or the group has 4 GiB.
pub fn encode_mark(len: usize, out: &mut [u8]) {
    assert_eq!(out.len(), MARK_BYTES);
    let len = u32::try_from(len).expect("less than a segment").to_le_bytes();
    Entry {
        kind: Kind::Segment,
        successor: false,
        table: 0,
        version: 0,
        key: &[],
        value: &len,
        value_type: ValueType::Bytes,
        expires: NEVER,
    }
    .encode(out);
}

/// The bytes of a group in its segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Group {
    /// Where its mark begins.
    pub begin: usize,
    /// Where its last entry ends.
    pub end: usize,
}

impl Group {
    /// Returns the group before whose entries `entry` stands, at `begin` in its segment; `None` if
    /// the entry is no mark.
    #[must_use]
    pub fn at(begin: usize, entry: &Entry<'_>) -> Option<Self> {
        let len = <[u8; 4]>::try_from(entry.value).ok().filter(|_| entry.kind == Kind::Segment)?;
        let end = begin + MARK_BYTES + u32::from_le_bytes(len) as usize;
        (entry.encoded_len() == MARK_BYTES).then_some(Self { begin, end })
    }
}
