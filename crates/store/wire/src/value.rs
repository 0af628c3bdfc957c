//! The type of an object's value: bytes as a client wrote them, the sum of increments, or the head
//! of a collection.
//!
//! Increments make counters: integers (`i64`) or doubles (`f64`), 8 bytes little-endian each. The
//! head of a [collection](crate::elements) has 8 bytes, too. Log entries and scan records encode
//! the type in the field of the value's length: there such a value has a length above
//! [`MAX_VALUE`], which no value has. So a type takes no additional byte. Programs that are older
//! than these types refuse an entry with such a length. If they accepted it, they could add to the
//! counter as to one of another type.

use crate::MAX_VALUE;
use std::fmt;
use thiserror::Error;

/// Bytes of a number, and of the head of a collection.
pub const NUMBER_BYTES: usize = 8;

/// The length fields of an integer counter, of a double counter, and of the head of a collection.
const INTEGER_LENGTH: u32 = (1 << 20) + 1;
const DOUBLE_LENGTH: u32 = (1 << 20) + 2;
const COLLECTION_LENGTH: u32 = (1 << 20) + 3;
const _: () = assert!(INTEGER_LENGTH as usize > MAX_VALUE);

/// The type of an object's value.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum ValueType {
    /// Bytes that a client wrote. If there are eight of them, the first increment sets their type.
    #[default]
    Bytes = 0,
    /// The sum of integer increments, a little-endian `i64`.
    Integer = 1,
    /// The sum of double increments, a finite little-endian `f64`.
    Double = 2,
    /// The head of a collection: its [id](crate::elements::CollectionId).
    Collection = 3,
}

impl ValueType {
    /// Returns the code of the type in the answer to a read.
    #[must_use]
    #[inline]
    pub fn code(self) -> u32 {
        self as u32
    }

    /// Returns the type of a code. The codes of newer programs give [`Bytes`](Self::Bytes), as
    /// every value can be read as bytes.
    #[must_use]
    #[inline]
    pub fn of_code(code: u32) -> Self {
        match code {
            1 => Self::Integer,
            2 => Self::Double,
            3 => Self::Collection,
            _ => Self::Bytes,
        }
    }

    /// Returns the length field for a value of this type.
    ///
    /// # Panics
    /// When the value is over its limit, or one of another type does not have [`NUMBER_BYTES`].
    #[inline]
    pub(crate) fn encode_length(self, len: usize) -> u32 {
        assert!(len <= MAX_VALUE && (self == Self::Bytes || len == NUMBER_BYTES));
        match self {
            Self::Bytes => u32::try_from(len).expect("within the limit"),
            Self::Integer => INTEGER_LENGTH,
            Self::Double => DOUBLE_LENGTH,
            Self::Collection => COLLECTION_LENGTH,
        }
    }

    /// Returns the type and length that a length field encodes; `None` when it is invalid.
    #[inline]
    pub(crate) fn parse_length(length: u32) -> Option<(Self, usize)> {
        match length {
            INTEGER_LENGTH => Some((Self::Integer, NUMBER_BYTES)),
            DOUBLE_LENGTH => Some((Self::Double, NUMBER_BYTES)),
            COLLECTION_LENGTH => Some((Self::Collection, NUMBER_BYTES)),
            _ => usize::try_from(length)
                .ok()
                .filter(|&len| len <= MAX_VALUE)
                .map(|len| (Self::Bytes, len)),
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::Integer => "integer",
            Self::Double => "double",
            Self::Collection => "collection",
        })
    }
}

/// A number that a counter holds, or that an increment adds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer, as integer counters hold it.
    Integer(i64),
    /// A double, as double counters hold it.
    Double(f64),
}

impl Number {
    /// Returns the number in a value of this type; `None` when the type or the length is not a
    /// counter's.
    #[must_use]
    pub fn of(value_type: ValueType, value: &[u8]) -> Option<Self> {
        let bytes = value.try_into().ok()?;
        match value_type {
            ValueType::Bytes | ValueType::Collection => None,
            ValueType::Integer => Some(Self::Integer(i64::from_le_bytes(bytes))),
            ValueType::Double => Some(Self::Double(f64::from_le_bytes(bytes))),
        }
    }

    /// Returns the value of a counter with this number.
    #[must_use]
    pub fn bytes(self) -> [u8; NUMBER_BYTES] {
        match self {
            Self::Integer(number) => number.to_le_bytes(),
            Self::Double(number) => number.to_le_bytes(),
        }
    }

    /// Returns the type of a counter with this number.
    #[must_use]
    pub fn value_type(self) -> ValueType {
        match self {
            Self::Integer(_) => ValueType::Integer,
            Self::Double(_) => ValueType::Double,
        }
    }

    /// Adds this number to the present object. An absent object counts as zero, and eight bytes
    /// without a type count as a number of this number's type.
    ///
    /// # Errors
    /// [`IncrementError`] when the object cannot be incremented in this way; then it must not be
    /// changed.
    pub fn added_to(self, present: Option<(ValueType, &[u8])>) -> Result<Self, IncrementError> {
        let (value_type, value) = present.unwrap_or((ValueType::Bytes, &[0; NUMBER_BYTES]));
        let bytes: [u8; NUMBER_BYTES] = value.try_into().map_err(|_| IncrementError::Length)?;
        match (self, value_type) {
            (_, ValueType::Collection) => Err(IncrementError::IsCollection),
            (Self::Integer(_), ValueType::Double) => Err(IncrementError::IsDouble),
            (Self::Double(_), ValueType::Integer) => Err(IncrementError::IsInteger),
            (Self::Integer(delta), _) => {
                let sum = i64::from_le_bytes(bytes).checked_add(delta);
                sum.map(Self::Integer).ok_or(IncrementError::Overflow)
            }
            (Self::Double(delta), value_type) => {
                let present = f64::from_le_bytes(bytes);
                // Integers below 2^52 are subnormal doubles. So bytes that an old program wrote as
                // an integer counter must not be taken for a double.
                if value_type == ValueType::Bytes && present != 0.0 && !present.is_normal() {
                    return Err(IncrementError::NoDouble);
                }
                let sum = present + delta;
                if sum.is_finite() { Ok(Self::Double(sum)) } else { Err(IncrementError::NotFinite) }
            }
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Double(number) => number.fmt(f),
        }
    }
}

/// Why an increment is refused. Its code is the `number` of an answer whose status is
/// [`NotANumber`](crate::op::Status::NotANumber).
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[repr(u8)]
pub enum IncrementError {
    /// No reason: the server is older than these codes.
    #[error("the value is not a number of 8 bytes, or the sum overflows")]
    Unknown = 0,
    /// The value is not 8 bytes long.
    #[error("the value is not a number: numbers have 8 bytes")]
    Length = 1,
    /// A double cannot be added to an integer counter.
    #[error("the object is an integer counter, and takes no double")]
    IsInteger = 2,
    /// An integer cannot be added to a double counter.
    #[error("the object is a double counter, and takes no integer; add a double to it")]
    IsDouble = 3,
    /// The sum does not fit an `i64`.
    #[error("the sum of the integers overflows 64 bits")]
    Overflow = 4,
    /// The sum is infinite or not a number.
    #[error("the sum of the doubles is not finite")]
    NotFinite = 5,
    /// A double cannot be added to eight untyped bytes that look like an integer.
    #[error(
        "the value's 8 bytes are not a double (they were not written by an increment, \
         and look like an integer)"
    )]
    NoDouble = 6,
    /// The head of a collection is no number.
    #[error("the object is a collection of a Redis client, which is no number")]
    IsCollection = 7,
}

impl IncrementError {
    /// Returns the reason with this code.
    #[must_use]
    pub fn of_code(code: u64) -> Self {
        match code {
            1 => Self::Length,
            2 => Self::IsInteger,
            3 => Self::IsDouble,
            4 => Self::Overflow,
            5 => Self::NotFinite,
            6 => Self::NoDouble,
            7 => Self::IsCollection,
            _ => Self::Unknown,
        }
    }
}
