//! Operations that take effect once, however often they are sent, and the completion records that
//! make this possible.
//!
//! A client has request *slots*. At any time at most one operation of a slot is in progress, so the
//! slot's next operation shows that the client has the answer to the previous one, or no longer
//! waits for it. A master therefore keeps only one [`Completion`] for each slot, that of the
//! highest sequence number. A completion is stored in the log as an object whose version is the
//! sequence number. The completions for a table form a table of their own, which moves with that
//! table.
//!
//! A client that sends an operation again, because no answer came in time, marks it as resent. If
//! the master then finds that the operation changes nothing (its condition does not hold), it keeps
//! that result too. Otherwise the first request, arriving late, might still be executed.
//!
//! In the log a completion stands directly before the entry that the operation wrote, and counts
//! only together with that entry: after a crash either both exist or neither.
//! [`Completion::joined`] marks this; a log that takes over a completion without the entry clears
//! the mark.

use crate::MAX_VERSION;
use crate::entry::{Entry, Kind, Role};
use crate::op::Status;
use std::time::Duration;
use zerocopy::byteorder::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The bit that distinguishes the id of a table's completions from the table's own id. The bit is
/// clear in every table's id.
pub const COMPLETIONS: u32 = 1 << 31;

/// Bytes of an operation's id in a request: client, slot, sequence number.
pub const OPERATION_ID_BYTES: usize = 16;

/// The largest number of request slots of a client.
pub const MAX_OPERATION_SLOTS: u16 = 1 << 15;

/// The bit of the slot field that marks an operation as sent before.
const RESENT: u16 = MAX_OPERATION_SLOTS;

/// Index of the byte, in the bytes of an operation's id, that contains [`RESENT`].
const RESENT_BYTE: usize = 9;

/// Bytes of a completion's key: client and slot.
pub const COMPLETION_KEY_BYTES: usize = 10;

/// The longest result of an operation in a completion, in bytes: that of a counter's sum. The
/// version does not count.
pub const MAX_RESULT: usize = 8;

/// How long a client repeats an operation that has an id, counted from the operation's beginning.
pub const RETRY_WINDOW: Duration = Duration::from_secs(30);

/// How long servers keep a session on which nothing arrives.
pub const SESSION_TTL: Duration = Duration::from_secs(60);

/// How long a server keeps a completion at least, counted from when it last heard from the client.
/// The time beyond [`RETRY_WINDOW`] covers clocks that run at different rates, and packets still on
/// their way. A packet that was delayed, in the network or in a stopped process, is accepted only
/// within a session, and servers forget a session on which nothing arrives for [`SESSION_TTL`].
pub const COMPLETION_RETENTION: Duration = Duration::from_secs(120);

const _: () =
    assert!(COMPLETION_RETENTION.as_secs() >= SESSION_TTL.as_secs() + 2 * RETRY_WINDOW.as_secs());

/// The longest completion, in bytes, encoded as an object's value.
pub const MAX_COMPLETION: usize = 7 + 8 + MAX_RESULT;

/// The id of a client's operation.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct OperationId {
    /// The client: a random number that no other client has.
    pub client: u64,
    /// The client's request slot; less than [`MAX_OPERATION_SLOTS`].
    pub slot: u16,
    /// Number of the operation in its slot, from 1 to [`MAX_VERSION`].
    pub sequence: u64,
    /// Whether the operation was sent before, so that it may have been executed.
    pub resent: bool,
}

/// The layout of an operation's id in a request.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct OperationIdBytes {
    client: U64,
    slot: U16,
    sequence: [u8; 6],
}

const _: () = assert!(size_of::<OperationIdBytes>() == OPERATION_ID_BYTES);

impl OperationId {
    /// Returns the id's bytes in a request.
    ///
    /// # Panics
    /// When the sequence number is over [`MAX_VERSION`] (a client with a million operations a
    /// second gets there after nine years), or the slot is not below [`MAX_OPERATION_SLOTS`].
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> [u8; OPERATION_ID_BYTES] {
        assert!(self.slot < MAX_OPERATION_SLOTS);
        let resent = if self.resent { RESENT } else { 0 };
        let (client, slot) = (U64::new(self.client), U16::new(self.slot | resent));
        let bytes = OperationIdBytes { client, slot, sequence: six_bytes(self.sequence) };
        zerocopy::transmute!(bytes)
    }

    /// Returns the id with these bytes.
    #[must_use]
    pub fn of_bytes(bytes: &[u8; OPERATION_ID_BYTES]) -> Self {
        Self::of(&zerocopy::transmute!(*bytes))
    }

    pub(crate) fn of(bytes: &OperationIdBytes) -> Self {
        let slot = bytes.slot.get();
        Self {
            client: bytes.client.get(),
            slot: slot & !RESENT,
            sequence: from_six_bytes(&bytes.sequence),
            resent: slot & RESENT != 0,
        }
    }

    /// Returns the id without the mark that the operation was sent before.
    #[must_use]
    pub fn unmarked(self) -> Self {
        Self { resent: false, ..self }
    }

    /// Marks an operation as sent before, in the bytes of its id.
    ///
    /// # Panics
    /// When `bytes` does not have [`OPERATION_ID_BYTES`].
    pub fn mark_resent(bytes: &mut [u8]) {
        assert_eq!(bytes.len(), OPERATION_ID_BYTES);
        bytes[RESENT_BYTE] |= RESENT.to_le_bytes()[1];
    }

    /// Returns the key of the operation's completion.
    #[must_use]
    #[inline]
    pub fn key(&self) -> [u8; COMPLETION_KEY_BYTES] {
        let mut key = [0; COMPLETION_KEY_BYTES];
        key[..8].copy_from_slice(&self.client.to_le_bytes());
        key[8..].copy_from_slice(&self.slot.to_le_bytes());
        key
    }

    /// Returns the client's id, the first 8 bytes of a completion's key.
    ///
    /// # Panics
    /// When the key is too short.
    #[must_use]
    pub fn client_of(key: &[u8]) -> u64 {
        u64::from_le_bytes(key[..8].try_into().expect("8 bytes"))
    }
}

/// Bit of a completion's first byte: a position follows in the encoded completion.
const PLACED: u8 = 1 << 7;

/// The result of an operation, as masters keep it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Completion<'a> {
    /// Whether the completion counts only together with the entry after it in its segment.
    pub joined: bool,
    /// The operation's status.
    pub status: Status,
    /// The version of the object that was written or removed; in other answers, their `number`.
    pub version: u64,
    /// In a completion that may turn out not to count: the position of its object in its table.
    /// Only the server that recovers this position, or to which it moves, receives the completion;
    /// others receive [`BEGUN`](Self::BEGUN). A joined completion has no position, as it stands
    /// directly before its object.
    pub position: Option<u64>,
    /// The body of the answer, up to [`MAX_RESULT`] bytes.
    pub result: &'a [u8],
}

impl<'a> Completion<'a> {
    /// Marks an operation that was begun and whose result is unknown. It shows that the earlier
    /// operations of its slot are over, since the client no longer waits for them.
    pub const BEGUN: Completion<'static> = Completion {
        joined: false,
        status: Status::Refused,
        version: 0,
        position: None,
        result: &[],
    };

    /// Returns whether this is [`BEGUN`](Self::BEGUN).
    #[must_use]
    pub fn is_begun(&self) -> bool {
        *self == Completion::BEGUN
    }

    /// Encodes the completion as an object's value; returns the number of bytes written.
    ///
    /// # Panics
    /// When the version or the result is over its limit, or `out` is too short.
    #[inline]
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let placed = if self.position.is_some() { 8 } else { 0 };
        let len = 7 + placed + self.result.len();
        assert!(len <= MAX_COMPLETION);
        out[0] =
            u8::from(self.joined) | (self.status as u8) << 1 | if placed > 0 { PLACED } else { 0 };
        out[1..7].copy_from_slice(&six_bytes(self.version));
        out[7..7 + placed].copy_from_slice(&self.position.unwrap_or(0).to_le_bytes()[..placed]);
        out[7 + placed..len].copy_from_slice(self.result);
        len
    }

    /// Parses an object's value; `None` when it is not a completion.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (&head, rest) = value.split_first()?;
        let (version, rest) = rest.split_first_chunk::<6>()?;
        let (position, result) = match head & PLACED {
            0 => (None, rest),
            _ => rest
                .split_first_chunk::<8>()
                .map(|(at, rest)| (Some(u64::from_le_bytes(*at)), rest))?,
        };
        let status =
            Status::try_from((head & !PLACED) >> 1).ok().filter(|_| result.len() <= MAX_RESULT)?;
        Some(Self {
            joined: head & 1 == 1,
            status,
            version: from_six_bytes(version),
            position,
            result,
        })
    }

    /// Returns the completion in an entry; `None` for other entries.
    #[must_use]
    #[inline]
    pub fn of(entry: &Entry<'a>) -> Option<Self> {
        if entry.table & COMPLETIONS == 0
            || entry.kind != Kind::Object
            || entry.key.len() != COMPLETION_KEY_BYTES
        {
            return None;
        }
        Self::parse(entry.value)
    }

    /// Returns whether `last`, the last entry of a segment, does not count because it is a
    /// completion without its object. False for every survivor: the cleaner copies only entries
    /// that count.
    #[must_use]
    pub fn is_cut(last: &Entry<'a>, role: Role) -> bool {
        role == Role::Head && Self::of(last).is_some_and(|completion| completion.joined)
    }
}

fn six_bytes(number: u64) -> [u8; 6] {
    assert!(number <= MAX_VERSION);
    let [a, b, c, d, e, f, _, _] = number.to_le_bytes();
    [a, b, c, d, e, f]
}

fn from_six_bytes(bytes: &[u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = *bytes;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}
