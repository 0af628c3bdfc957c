//! What a master asks of the backups that keep its replicas, and what is asked of them when it is
//! gone.
//!
//! The header of these requests is that of all: `table` holds the master's server id, `argument`
//! the segment (40 bits) above an offset in it (24 bits), `condition` flags; bytes of the segment
//! follow.

use super::{Malformed, Records, RequestHeader, Selection};
use crate::{MAX_SEGMENT_ID, SEGMENT_BYTES};
use std::fmt;
use zerocopy::byteorder::little_endian::{U16, U32, U64};

/// Most bytes of a segment in one request or answer, 2 MB: more than the longest entry.
pub const REPLICA_BYTES: usize = 2 << 20;
const _: () = assert!(REPLICA_BYTES >= crate::entry::MAX_ENTRY);

/// A replica: a segment of a master's log, as a backup knows it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ReplicaId {
    /// Server id of the master, at most [`MAX_SERVER_ID`](crate::MAX_SERVER_ID).
    pub master: u32,
    /// The segment, at most [`MAX_SEGMENT_ID`].
    pub segment: u64,
}

/// Bits of a segment's id, below those of the server's.
const SEGMENT_BITS: u32 = 40;
const OFFSET_BITS: u32 = 24;
const _: () =
    assert!(MAX_SEGMENT_ID == (1 << SEGMENT_BITS) - 1 && SEGMENT_BYTES < 1 << OFFSET_BITS);
const _: () = assert!(crate::MAX_SERVER_ID as u64 == (1 << (u64::BITS - SEGMENT_BITS)) - 1);

impl ReplicaId {
    /// Both ids in one word, by which frames on disk name it.
    ///
    /// # Panics
    /// When an id is over its limit.
    #[must_use]
    pub fn word(self) -> u64 {
        assert!(self.master <= crate::MAX_SERVER_ID && self.segment <= MAX_SEGMENT_ID, "{self}");
        u64::from(self.master) << SEGMENT_BITS | self.segment
    }

    /// The ids of such a word.
    #[must_use]
    pub fn of_word(word: u64) -> Self {
        Self {
            master: u32::try_from(word >> SEGMENT_BITS).expect("24 bits"),
            segment: word & MAX_SEGMENT_ID,
        }
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {} of server {}", self.segment, self.master)
    }
}

/// A request to a backup, parsed; borrowed from the bytes it came in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BackupRequest<'a> {
    /// These bytes of the segment's log belong at `offset`; at offset zero the replica begins. What
    /// the backup has already it takes for the same. `number` of the answer: bytes that it can
    /// still take, in at most two more writes.
    Write {
        /// Which.
        replica: ReplicaId,
        /// Where in the segment's log, bytes.
        offset: u32,
        /// Nothing follows behind these bytes.
        sealed: bool,
        /// The replica is made in place of one that was given up, and acknowledged bytes are
        /// missing behind these: until a write without this it counts for nothing.
        anew: bool,
        /// Which telling of the segment these bytes are of, at most [`MAX_EDITION`]: 0 is the log
        /// as it was written. A later one says the same in other bytes, and replaces all
        /// of an earlier one.
        edition: u8,
        /// The bytes, at most [`REPLICA_BYTES`]; none only when the segment is sealed by this.
        bytes: &'a [u8],
    },
    /// The replica is needed no longer; to free what is not there does no harm.
    Free {
        /// Which.
        replica: ReplicaId,
    },
    /// Tell all replicas of a master, and take nothing more from it: somebody recovers it. Body of
    /// the answer: [`ReplicaRecord`]s.
    Fence {
        /// Server id of the master.
        master: u32,
    },
    /// Bytes of the segment's log from `offset` on, as many as [`REPLICA_BYTES`] at most. Body of
    /// the answer: the bytes; `more`: others follow.
    Read {
        /// Which.
        replica: ReplicaId,
        /// Where in the segment's log, bytes.
        offset: u32,
    },
    /// As [`Read`](Self::Read), of what some tablets have in the segment: its header entry, then
    /// their entries in any order, all completions of their tables among them, without a last
    /// one of a head that [does not count](crate::once::Completion::is_cut). `number` of the
    /// answer: bytes of all that.
    Select {
        /// Which.
        replica: ReplicaId,
        /// Where in what is selected, bytes.
        offset: u32,
        /// The tablets.
        selection: Selection<'a>,
    },
}

/// Most editions of a segment beside the first: so often its lost replicas are made anew.
pub const MAX_EDITION: u8 = 63;

/// Operation codes of [`BackupRequest`]s.
pub(super) const FIRST: u8 = 64;
const WRITE: u8 = FIRST;
const FREE: u8 = FIRST + 1;
const FENCE: u8 = FIRST + 2;
const READ: u8 = FIRST + 3;
const SELECT: u8 = FIRST + 4;
pub(super) const LAST: u8 = SELECT;

/// Flags in `condition` of a write: the segment ends with it; the replica is made anew. The edition
/// is above them.
const SEALED: u8 = 1;
const ANEW: u8 = 2;
const EDITION_SHIFT: u32 = 2;
const _: () = assert!(MAX_EDITION == u8::MAX >> EDITION_SHIFT);

impl<'a> BackupRequest<'a> {
    /// Whether these are the bytes of a request to a backup, if they are of a request at all.
    #[inline]
    #[must_use]
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|op| (FIRST..=LAST).contains(op))
    }

    pub(super) fn parts(self) -> (RequestHeader, &'a [u8]) {
        let (op, condition, replica, offset, bytes) = match self {
            Self::Write { replica, offset, sealed, anew, edition, bytes } => {
                assert!(edition <= MAX_EDITION, "edition {edition}");
                let flags = if sealed { SEALED } else { 0 }
                    | if anew { ANEW } else { 0 }
                    | edition << EDITION_SHIFT;
                (WRITE, flags, replica, offset, bytes)
            }
            Self::Free { replica } => (FREE, 0, replica, 0, &[][..]),
            Self::Fence { master } => (FENCE, 0, ReplicaId { master, segment: 0 }, 0, &[][..]),
            Self::Read { replica, offset } => (READ, 0, replica, offset, &[][..]),
            Self::Select { replica, offset, selection } => {
                (SELECT, 0, replica, offset, selection.bytes())
            }
        };
        let ReplicaId { master, segment } = replica;
        assert!(
            segment <= MAX_SEGMENT_ID && offset as usize <= SEGMENT_BYTES,
            "{replica} at {offset}"
        );
        let argument = U64::new(segment << OFFSET_BITS | u64::from(offset));
        (
            RequestHeader {
                op,
                condition,
                key_len: U16::new(0),
                table: U32::new(master),
                argument,
            },
            bytes,
        )
    }

    pub(super) fn parse(header: &RequestHeader, bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (master, argument) = (header.table.get(), header.argument.get());
        if master > crate::MAX_SERVER_ID {
            return Err(Malformed::Server(master));
        }
        let replica = ReplicaId { master, segment: argument >> OFFSET_BITS };
        let offset = u32::try_from(argument & ((1 << OFFSET_BITS) - 1)).expect("24 bits");
        let written = if header.op == SELECT { 0 } else { bytes.len().min(REPLICA_BYTES) };
        if offset as usize + written > SEGMENT_BYTES {
            return Err(Malformed::Offset(offset));
        }
        match (header.op, header.condition) {
            (WRITE, _) if bytes.len() > REPLICA_BYTES => {
                Err(Malformed::Trailing(bytes.len() - REPLICA_BYTES))
            }
            (WRITE, flags) => {
                let (sealed, anew) = (flags & SEALED != 0, flags & ANEW != 0);
                Ok(Self::Write {
                    replica,
                    offset,
                    sealed,
                    anew,
                    edition: flags >> EDITION_SHIFT,
                    bytes,
                })
            }
            (FREE | FENCE | READ, 0) if !bytes.is_empty() => Err(Malformed::Trailing(bytes.len())),
            (FREE, 0) if offset == 0 => Ok(Self::Free { replica }),
            (FENCE, 0) if argument == 0 => Ok(Self::Fence { master }),
            (READ, 0) => Ok(Self::Read { replica, offset }),
            (SELECT, 0) => match Selection::parse(bytes) {
                Some(selection) => Ok(Self::Select { replica, offset, selection }),
                None => Err(Malformed::Selection),
            },
            (FREE | FENCE, 0) => Err(Malformed::Offset(offset)),
            (_, other) => Err(Malformed::Condition(other)),
        }
    }
}

/// What a backup has of a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReplicaRecord {
    /// The segment.
    pub segment: u64,
    /// Bytes of its log that are here.
    pub len: u32,
    /// Whether it counts as a head: not a survivor, nor one that is being made anew.
    pub head: bool,
    /// Whether those are all.
    pub sealed: bool,
    /// Whether acknowledged bytes may be missing here: the backup has lost its memory since.
    pub unsure: bool,
}

/// Flags of a replica's record.
const RECORD_SEALED: u32 = 1;
const RECORD_UNSURE: u32 = 2;
const RECORD_HEAD: u32 = 4;

/// Appends a replica to a body.
pub fn push_replica(out: &mut Vec<u8>, replica: &ReplicaRecord) {
    let flags = [
        (replica.sealed, RECORD_SEALED),
        (replica.unsure, RECORD_UNSURE),
        (replica.head, RECORD_HEAD),
    ];
    let flags = flags.into_iter().filter(|(is, _)| *is).fold(0, |all, (_, flag)| all | flag);
    out.extend_from_slice(&replica.segment.to_le_bytes());
    out.extend_from_slice(&replica.len.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
}

impl Records<'_> {
    /// The next record as a replica.
    pub fn replica(&mut self) -> Option<ReplicaRecord> {
        let (segment, len, flags) = (self.u64()?, self.u32()?, self.u32()?);
        let is = |flag| flags & flag != 0;
        let sensible =
            segment <= MAX_SEGMENT_ID && flags <= (RECORD_SEALED | RECORD_UNSURE | RECORD_HEAD);
        let (sealed, unsure, head) = (is(RECORD_SEALED), is(RECORD_UNSURE), is(RECORD_HEAD));
        sensible.then_some(ReplicaRecord { segment, len, head, sealed, unsure })
    }
}
