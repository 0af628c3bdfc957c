//! Operations that take effect once, however often they are sent, and what is kept of those that
//! did.
//!
//! A client numbers its operations by *lanes*: at any time at most one of a lane is under way, and
//! the next of the lane says that the answer to the one before has come, or is not awaited any
//! more. So whoever executes them need keep one [`Completion`] for each lane: that of the highest
//! sequence number. It is an object of the log as any other, in the table of completions that
//! belongs to each table, with the sequence number for a version, and goes wherever its table goes.
//!
//! An operation that is sent again, as no answer came in time, says so. If it is then found that it
//! changes nothing (a condition that does not hold), that is kept too: else what was sent first,
//! should it arrive late, might be executed after all.
//!
//! In the log a completion stands right before what the operation wrote, and counts only with it:
//! neither is there without the other after a crash. [`Completion::joined`] says so; a log that
//! adopts completions alone clears it.

use crate::MAX_VERSION;
use crate::entry::{Entry, Kind, Role};
use crate::op::Status;
use std::time::Duration;
use zerocopy::byteorder::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The bit that tells the id of a table's completions from the table's own. No table of a cluster
/// has it.
pub const COMPLETIONS: u32 = 1 << 31;

/// Bytes of an operation's id in a request: client, lane, sequence number.
pub const OPERATION_ID_BYTES: usize = 16;

/// Most lanes of a client.
pub const MAX_LANES: u16 = 1 << 15;

/// Bit beside the lane of an operation that was sent before.
const AGAIN: u16 = MAX_LANES;

/// Where in an operation's id the byte with that bit is.
const AGAIN_AT: usize = 9;

/// Bytes of a completion's key: client and lane.
pub const COMPLETION_KEY_BYTES: usize = 10;

/// Longest result of an operation, bytes, beside its version: a sum.
pub const MAX_RESULT: usize = 8;

/// How long after its beginning an operation is sent anew at most.
pub const RETRIED_FOR: Duration = Duration::from_secs(30);

/// How long servers keep a session of which nothing is heard.
pub const SESSION_TTL: Duration = Duration::from_secs(60);

/// How long a completion is kept at least, counted from when its client was last heard of. The rest
/// covers clocks that run apart, and what may be under way: a packet in the network, or in a
/// process that stood still, is taken only within a session, and servers forget sessions that are
/// silent for [`SESSION_TTL`].
pub const KEPT_FOR: Duration = Duration::from_secs(120);

const _: () = assert!(KEPT_FOR.as_secs() >= SESSION_TTL.as_secs() + 2 * RETRIED_FOR.as_secs());

/// Longest completion as an object's value, bytes.
pub const MAX_COMPLETION: usize = 7 + 8 + MAX_RESULT;

/// An operation of a client.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct OperationId {
    /// The client: a number that nobody else has drawn.
    pub client: u64,
    /// Which of its operations under way; less than [`MAX_LANES`].
    pub lane: u16,
    /// The lane's operations are numbered from 1 on, up to [`MAX_VERSION`].
    pub sequence: u64,
    /// It was sent before, and may have been executed.
    pub again: bool,
}

/// An operation's id as it stands in a request.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct OperationIdBytes {
    client: U64,
    lane: U16,
    sequence: [u8; 6],
}

const _: () = assert!(size_of::<OperationIdBytes>() == OPERATION_ID_BYTES);

impl OperationId {
    /// As it stands in a request.
    ///
    /// # Panics
    /// When the sequence number is over its limit: at a million operations a second, after nine
    /// years.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> [u8; OPERATION_ID_BYTES] {
        assert!(self.lane < MAX_LANES);
        let again = if self.again { AGAIN } else { 0 };
        let (client, lane) = (U64::new(self.client), U16::new(self.lane | again));
        let bytes = OperationIdBytes { client, lane, sequence: six(self.sequence) };
        zerocopy::transmute!(bytes)
    }

    pub(crate) fn of(bytes: &OperationIdBytes) -> Self {
        let lane = bytes.lane.get();
        Self {
            client: bytes.client.get(),
            lane: lane & !AGAIN,
            sequence: of_six(&bytes.sequence),
            again: lane & AGAIN != 0,
        }
    }

    /// Marks an operation, by its id's bytes, as sent before.
    ///
    /// # Panics
    /// When these are no [`OPERATION_ID_BYTES`].
    pub fn mark_again(bytes: &mut [u8]) {
        assert_eq!(bytes.len(), OPERATION_ID_BYTES);
        bytes[AGAIN_AT] |= AGAIN.to_le_bytes()[1];
    }

    /// The key of its completion.
    #[must_use]
    #[inline]
    pub fn key(&self) -> [u8; COMPLETION_KEY_BYTES] {
        let mut key = [0; COMPLETION_KEY_BYTES];
        key[..8].copy_from_slice(&self.client.to_le_bytes());
        key[8..].copy_from_slice(&self.lane.to_le_bytes());
        key
    }

    /// The client whose completion has this key.
    ///
    /// # Panics
    /// When it is shorter than a completion's.
    #[must_use]
    pub fn client_of(key: &[u8]) -> u64 {
        u64::from_le_bytes(key[..8].try_into().expect("8 bytes"))
    }
}

/// Bit of a completion's first byte: it tells where its object is.
const PLACED: u8 = 1 << 7;

/// What came of an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Completion<'a> {
    /// It counts only with the entry behind it in its segment.
    pub joined: bool,
    /// How it ended.
    pub status: Status,
    /// Version of the object that was written or removed, or what else the answer's number is.
    pub version: u64,
    /// Of one that may yet turn out not to count: where its object is in its table, or would be.
    /// Only who has that part of the table is told more than [`BEGUN`](Self::BEGUN). One that
    /// is joined stands right before its object.
    pub position: Option<u64>,
    /// What else was answered, up to [`MAX_RESULT`] bytes.
    pub result: &'a [u8],
}

impl<'a> Completion<'a> {
    /// Of an operation of which nothing is known but that it was begun: those of its lane before it
    /// are over, as nobody awaits them any more.
    pub const BEGUN: Completion<'static> = Completion {
        joined: false,
        status: Status::Refused,
        version: 0,
        position: None,
        result: &[],
    };

    /// Whether it is one of those.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        *self == Completion::BEGUN
    }

    /// Writes it as an object's value; returns the bytes written.
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
        out[1..7].copy_from_slice(&six(self.version));
        out[7..7 + placed].copy_from_slice(&self.position.unwrap_or(0).to_le_bytes()[..placed]);
        out[7 + placed..len].copy_from_slice(self.result);
        len
    }

    /// Parses an object's value; `None` when it is no completion.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (&how, rest) = value.split_first()?;
        let (version, rest) = rest.split_first_chunk::<6>()?;
        let (position, result) = match how & PLACED {
            0 => (None, rest),
            _ => rest
                .split_first_chunk::<8>()
                .map(|(at, rest)| (Some(u64::from_le_bytes(*at)), rest))?,
        };
        let status =
            Status::try_from((how & !PLACED) >> 1).ok().filter(|_| result.len() <= MAX_RESULT)?;
        Some(Self { joined: how & 1 == 1, status, version: of_six(version), position, result })
    }

    /// The completion that an entry is; `None` for other entries.
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

    /// Whether an entry does not count, when it is the last of its segment. A survivor has only
    /// what counts.
    #[must_use]
    pub fn is_cut(last: &Entry<'a>, role: Role) -> bool {
        role == Role::Head && Self::of(last).is_some_and(|completion| completion.joined)
    }
}

fn six(number: u64) -> [u8; 6] {
    assert!(number <= MAX_VERSION);
    let [a, b, c, d, e, f, _, _] = number.to_le_bytes();
    [a, b, c, d, e, f]
}

fn of_six(bytes: &[u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = *bytes;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}
