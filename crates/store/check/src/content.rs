//! Values of objects, described in a few bytes instead of up to a megabyte.

use sprat_sim::Random;
use std::fmt;

/// The value of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Content {
    /// Pseudo-random bytes.
    Filled {
        /// The seed of the bytes.
        stamp: u64,
        /// The number of bytes.
        len: usize,
    },
    /// A 64-bit integer, as increments store it.
    Number(i64),
}

impl Content {
    /// Returns the value's bytes.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Self::Number(number) => number.to_le_bytes().to_vec(),
            Self::Filled { stamp, len } => {
                let mut random = Random::new(stamp);
                let mut bytes = Vec::with_capacity(len.next_multiple_of(size_of::<u64>()));
                while bytes.len() < len {
                    bytes.extend_from_slice(&random.draw().to_le_bytes());
                }
                bytes.truncate(len);
                bytes
            }
        }
    }

    /// Returns the number that an increment finds in the value; `None` if the value is no number.
    #[must_use]
    pub fn number(self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Filled { len, .. } if len != size_of::<i64>() => None,
            Self::Filled { .. } => self.bytes().try_into().ok().map(i64::from_le_bytes),
        }
    }

    /// Describes how `got` differs from the value's bytes; `None` if they are equal.
    pub(super) fn difference(self, got: &[u8]) -> Option<String> {
        let expected = self.bytes();
        if expected == got {
            return None;
        }
        let at = expected
            .iter()
            .zip(got)
            .position(|(expected, got)| expected != got)
            .unwrap_or(expected.len().min(got.len()));
        Some(format!("{} bytes that differ from byte {at} on", got.len()))
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filled { stamp, len } => write!(f, "{len} bytes (drawn from {stamp:#x})"),
            Self::Number(number) => write!(f, "the number {number}"),
        }
    }
}
