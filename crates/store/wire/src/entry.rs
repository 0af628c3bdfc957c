//! An entry of the log: the same bytes in memory, on the network and on disk.
//!
//! ```text
//! 0        4       8          14        16     19
//! | crc32c | table | version  | key_len | kind | key ... | expires 6 | value ... |
//! ```
//! The CRC covers all bytes of the entry after the CRC. `kind` holds, from its lowest bit on, 21
//! bits of value length (or another [type](crate::value) than bytes), 2 of [`Kind`], and
//! [`Entry::successor`]. `expires` is there only if the object [expires](crate::expiry); then the
//! bits of the kind are zero. Programs that are older than expiry refuse such an entry. Entries are
//! not aligned: with objects of 130 B, each byte of padding would be 0.6 % of the memory.

use crate::expiry::{EXPIRY_BYTES, MAX_TIME, NEVER, Time};
use crate::value::ValueType;
use crate::{MAX_KEY, MAX_VALUE, MAX_VERSION};
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an entry's header.
pub const HEADER_BYTES: usize = 19;

/// The longest entry, in bytes: its header, and a key and a value at their limits.
pub const MAX_ENTRY: usize = HEADER_BYTES + MAX_KEY + EXPIRY_BYTES + MAX_VALUE;

/// In place of the [kind](Kind) of an object that expires.
const EXPIRING: u32 = 0;

/// Bits of the value's length in a header's `kind`. Above these bits are the entry's kind and the
/// successor bit.
const LENGTH_BITS: u32 = 21;
const SUCCESSOR_BIT: u32 = 23;
const _: () = assert!(MAX_VALUE + 3 < 1 << LENGTH_BITS);

/// The kind of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Kind {
    /// A key and its value.
    Object = 1,
    /// A key whose object was removed. The value is the `u64` id of a segment: see
    /// [`Entry::successor`].
    Tombstone = 2,
    /// The first entry of a segment, whose value is a [`SegmentHeader`]; or the mark of a
    /// [group](crate::group) in a segment.
    Segment = 3,
}

/// The fixed header of every entry.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Header {
    crc: U32,
    table: U32,
    version: [u8; 6],
    key_len: U16,
    kind: [u8; 3],
}

impl Header {
    /// Makes a header. `length` comes from [`ValueType::encode_length`].
    fn new(
        kind: u32,
        successor: bool,
        table: u32,
        version: u64,
        key_len: usize,
        length: u32,
    ) -> Self {
        assert!(version <= MAX_VERSION);
        let version = version.to_le_bytes();
        let kind = length | kind << LENGTH_BITS | u32::from(successor) << SUCCESSOR_BIT;
        let kind = kind.to_le_bytes();
        Self {
            crc: U32::new(0),
            table: U32::new(table),
            version: [version[0], version[1], version[2], version[3], version[4], version[5]],
            key_len: U16::new(u16::try_from(key_len).expect("key within limits")),
            kind: [kind[0], kind[1], kind[2]],
        }
    }
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// A parsed entry, borrowed from the bytes that contain it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry<'a> {
    /// The kind of the entry.
    pub kind: Kind,
    /// Whether older versions of the key may still lie in other segments.
    ///
    /// An object has this bit when it was written over an object that has the bit or lies in
    /// another segment. A tombstone has the bit when the object that it deletes has it, or lies in
    /// a survivor that no digest lists yet. If a tombstone's bit is clear, every older version lies
    /// in the very segment that the tombstone names; if it is set, older versions may lie in that
    /// segment and in any segment with a lower id. Once none of these segments is left, no old
    /// version can return and the tombstone is dead.
    pub successor: bool,
    /// Table of the object; zero for [`Kind::Segment`].
    pub table: u32,
    /// Version of the object, or of the object that a tombstone deletes.
    pub version: u64,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The value's type: [`ValueType::Bytes`] unless the entry is an object that is a counter.
    pub value_type: ValueType,
    /// When the object expires; [`NEVER`] for entries that are no objects.
    pub expires: Time,
}

/// Why bytes are not an entry.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Malformed {
    /// The bytes end before the entry does.
    #[error("entry of {needed} bytes, {present} present")]
    Truncated {
        /// Bytes that the entry needs; only the header's length if the header itself is cut.
        needed: usize,
        /// Bytes present.
        present: usize,
    },
    /// An object that expires at no time.
    #[error("the entry's time of expiry is zero")]
    Expiry,
    /// The value's length is over [`MAX_VALUE`], or is a counter's length in an entry that is no
    /// object.
    #[error("entry value of {0} bytes is over the limit")]
    Length(usize),
    /// The checksum does not match.
    #[error("entry checksum is {stored:#010x}, its bytes give {computed:#010x}")]
    Crc {
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
}

impl<'a> Entry<'a> {
    /// Returns the number of bytes that the entry takes in the log.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        entry_len(self.key.len(), self.value.len(), self.expires)
    }

    /// Writes the entry at the beginning of `out`; returns the bytes written.
    ///
    /// # Panics
    /// When a length, the version or the time is over its limit, an entry expires that is no
    /// object, or `out` is too short. Callers check what comes from outside.
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let len = self.encoded_len();
        let out = &mut out[..len];
        let (key_len, length) = (self.key.len(), self.value_type.encode_length(self.value.len()));
        let kind = match self.expires {
            NEVER => u32::from(self.kind as u8),
            expires => {
                assert!(self.kind == Kind::Object && expires <= MAX_TIME);
                EXPIRING
            }
        };
        let header = Header::new(kind, self.successor, self.table, self.version, key_len, length);
        out[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        out[HEADER_BYTES..][..key_len].copy_from_slice(self.key);
        let value_at = len - self.value.len();
        let expires = &self.expires.to_le_bytes()[..value_at - HEADER_BYTES - key_len];
        out[HEADER_BYTES + key_len..value_at].copy_from_slice(expires);
        out[value_at..].copy_from_slice(self.value);
        let crc = crc32c::crc32c(&out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        len
    }

    /// Parses the entry at the beginning of `bytes`, for memory that was checked when it was
    /// filled: the checksum is not verified.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes end before the entry does, or a length or the time of expiry is
    /// invalid.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Ok((header, rest)) = Header::ref_from_prefix(bytes) else {
            return Err(Malformed::Truncated { needed: HEADER_BYTES, present: bytes.len() });
        };
        let [a, b, c] = header.kind;
        let bits = u32::from_le_bytes([a, b, c, 0]);
        let (kind, expires) = match bits >> LENGTH_BITS & 3 {
            1 => (Kind::Object, false),
            2 => (Kind::Tombstone, false),
            3 => (Kind::Segment, false),
            _ => (Kind::Object, true),
        };
        let key_len = usize::from(header.key_len.get());
        let length = bits & ((1 << LENGTH_BITS) - 1);
        let (value_type, value_len) = ValueType::parse_length(length)
            .filter(|(value_type, _)| *value_type == ValueType::Bytes || kind == Kind::Object)
            .ok_or(Malformed::Length(length as usize))?;
        let expiry_len = if expires { EXPIRY_BYTES } else { 0 };
        if key_len + expiry_len + value_len > rest.len() {
            let needed = HEADER_BYTES + key_len + expiry_len + value_len;
            return Err(Malformed::Truncated { needed, present: bytes.len() });
        }
        let (key, mut rest) = rest.split_at(key_len);
        let mut expires = NEVER;
        if let Some((&[e0, e1, e2, e3, e4, e5], value)) =
            rest.split_first_chunk::<EXPIRY_BYTES>().filter(|_| expiry_len > 0)
        {
            expires = u64::from_le_bytes([e0, e1, e2, e3, e4, e5, 0, 0]);
            rest = value;
            if expires == NEVER {
                return Err(Malformed::Expiry);
            }
        }
        let [v0, v1, v2, v3, v4, v5] = header.version;
        Ok(Self {
            kind,
            successor: bits >> SUCCESSOR_BIT != 0,
            table: header.table.get(),
            version: u64::from_le_bytes([v0, v1, v2, v3, v4, v5, 0, 0]),
            key,
            value: &rest[..value_len],
            value_type,
            expires,
        })
    }

    /// Parses the entry at the beginning of `bytes` and checks its checksum: for bytes from disk or
    /// network.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes end before the entry does, a length or the time of expiry is
    /// invalid, or the checksum does not match.
    pub fn parse_checked(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let entry = Self::parse(bytes)?;
        let stored = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let computed = crc32c::crc32c(&bytes[4..entry.encoded_len()]);
        if stored != computed {
            return Err(Malformed::Crc { stored, computed });
        }
        Ok(entry)
    }
}

/// Returns the number of bytes of the log that an object takes, given the lengths of its key and
/// value and the time at which it expires.
#[must_use]
#[inline]
pub fn entry_len(key_len: usize, value_len: usize, expires: Time) -> usize {
    HEADER_BYTES + key_len + value_len + if expires == NEVER { 0 } else { EXPIRY_BYTES }
}

/// Marks bytes in memory that no longer hold live entries, so that a walk from entry to entry skips
/// them. These bytes get no checksum, because they never leave memory.
///
/// # Panics
/// When the gap is shorter than a header, but not empty. The space of one or more entries never is.
pub fn fill_gap(mut gap: &mut [u8]) {
    while !gap.is_empty() {
        assert!(gap.len() >= HEADER_BYTES);
        let mut len = gap.len().min(HEADER_BYTES + MAX_VALUE);
        if gap.len() - len > 0 && gap.len() - len < HEADER_BYTES {
            len -= HEADER_BYTES;
        }
        let length = ValueType::Bytes.encode_length(len - HEADER_BYTES);
        let header = Header::new(Kind::Segment as u32, false, 0, 0, 0, length);
        let (filler, rest) = gap.split_at_mut(len);
        filler[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        gap = rest;
    }
}

/// Role of a segment in the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// A segment to which the master appended. Its header lists every live segment.
    Head,
    /// A segment that the cleaner wrote. It is part of the log only once a later head lists it.
    Survivor,
}

/// Value of a [`Kind::Segment`] entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SegmentHeader {
    /// The segment's id. A segment opened later has a higher id.
    pub id: u64,
    /// Higher than the version of every object that was removed before this segment was opened.
    pub safe_version: u64,
    /// Head or survivor.
    pub role: Role,
    /// In a head, the log digest: the ids of all live segments, ascending, with its own. Empty in a
    /// survivor and in a copy of a head.
    pub digest: Vec<u64>,
}

impl SegmentHeader {
    /// Returns whether the segment is a copy of a head, which the master made later to replace lost
    /// replicas. A copy has no digest, whereas a head lists at least itself.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.role == Role::Head && self.digest.is_empty()
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let role = match self.role {
            Role::Head => 0u64,
            Role::Survivor => 1,
        };
        [self.id, self.safe_version, role]
            .iter()
            .chain(&self.digest)
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }

    /// Parses a header; `None` when the bytes are not one.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if !bytes.len().is_multiple_of(8) {
            return None;
        }
        let mut words =
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        let (id, safe_version) = (words.next()?, words.next()?);
        let role = match words.next()? {
            0 => Role::Head,
            1 => Role::Survivor,
            _ => return None,
        };
        let digest: Vec<u64> = words.collect();
        if safe_version > MAX_VERSION || !digest.is_sorted() {
            return None;
        }
        Some(Self { id, safe_version, role, digest })
    }
}
