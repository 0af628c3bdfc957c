//! Batches: many operations on objects in one request, and their answers in one response.
//!
//! Request and response carry a list of items, each after its length in bytes (4, little-endian).
//! An item of a request is the bytes of a request for one object, with the operation's id if it
//! changes the object. An item of the response is the answer to the request at the same place, or
//! [`Status::Busy`](super::Status::Busy) if the server did not execute that request.

use super::Malformed;
use zerocopy::FromBytes;
use zerocopy::byteorder::little_endian::U32;

/// The largest number of operations in a batch.
pub const MAX_BATCH: usize = 1024;

/// Limit on the bytes of the items in a batch, lengths included. Any two operations fit.
pub const MAX_BATCH_BYTES: usize = 3 << 20;

/// Bytes of answers at which the response to a batch ends: the operations behind this point are not
/// executed. The answer that reaches the limit is sent whole.
pub const BATCH_ANSWER_BYTES: usize = 1 << 20;

/// Bytes of an item's length.
pub const ITEM_LENGTH_BYTES: usize = size_of::<U32>();

const _: () = assert!(2 * (crate::MAX_VALUE + crate::MAX_KEY + 1024) <= MAX_BATCH_BYTES);
const _: () = assert!(BATCH_ANSWER_BYTES + crate::MAX_VALUE + 1024 <= crate::MAX_MESSAGE);

/// The items of a batch or of its response, borrowed from the bytes that contain them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BatchItems<'a> {
    rest: &'a [u8],
    count: usize,
}

impl<'a> BatchItems<'a> {
    /// Returns the items in `bytes`.
    ///
    /// # Errors
    /// [`Malformed::Batch`] when there are none, or more than [`MAX_BATCH`], and
    /// [`Malformed::Short`] when the last is cut short.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut items = Self { rest: bytes, count: 0 };
        while !items.rest.is_empty() {
            items.cut().ok_or(Malformed::Short(bytes.len()))?;
            items.count += 1;
            if items.count > MAX_BATCH {
                return Err(Malformed::Batch(items.count));
            }
        }
        match items.count {
            0 => Err(Malformed::Batch(0)),
            count => Ok(Self { rest: bytes, count }),
        }
    }

    fn cut(&mut self) -> Option<&'a [u8]> {
        let (len, rest) = U32::read_from_prefix(self.rest).ok()?;
        let (item, rest) = rest.split_at_checked(len.get() as usize)?;
        self.rest = rest;
        Some(item)
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for BatchItems<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let item = self.cut()?;
        self.count -= 1;
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for BatchItems<'_> {}

/// Appends an item that consists of these parts.
///
/// # Panics
/// When the item is longer than a message.
pub fn push_item(out: &mut Vec<u8>, parts: &[&[u8]]) {
    out.extend_from_slice(&item_length(parts));
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Returns the bytes that precede an item of these parts.
///
/// # Panics
/// When the item is longer than a message.
#[must_use]
pub fn item_length(parts: &[&[u8]]) -> [u8; ITEM_LENGTH_BYTES] {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    assert!(len <= crate::MAX_MESSAGE, "an item is part of a message");
    u32::try_from(len).expect("8 MiB").to_le_bytes()
}
