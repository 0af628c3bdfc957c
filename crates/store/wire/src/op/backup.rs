//! Requests of masters to the backups that keep their replicas, and of recovery masters after a
//! master has failed.
//!
//! These requests have the header of all requests. `table` is the master's server id, `argument` is
//! the segment (upper 40 bits) and an offset in it (lower 24 bits), `condition` holds flags; bytes
//! of the segment follow.

use super::{Malformed, Records, RequestHeader, Selection};
use crate::{MAX_SEGMENT_ID, SEGMENT_BYTES};
use std::fmt;
use zerocopy::byteorder::little_endian::{U16, U32, U64};

/// The largest number of a segment's bytes in one request or answer (2 MB); no entry is longer.
pub const REPLICA_BYTES: usize = 2 << 20;
const _: () = assert!(REPLICA_BYTES >= crate::entry::MAX_ENTRY);

/// Names a replica of a segment of a master's log on a backup.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ReplicaId {
    /// Server id of the master, at most [`MAX_SERVER_ID`](crate::MAX_SERVER_ID).
    pub master: u32,
    /// The segment, at most [`MAX_SEGMENT_ID`].
    pub segment: u64,
}

/// Bits of a segment's id. The bits above them hold the server's id.
const SEGMENT_BITS: u32 = 40;
const OFFSET_BITS: u32 = 24;
const _: () =
    assert!(MAX_SEGMENT_ID == (1 << SEGMENT_BITS) - 1 && SEGMENT_BYTES < 1 << OFFSET_BITS);
const _: () = assert!(crate::MAX_SERVER_ID as u64 == (1 << (u64::BITS - SEGMENT_BITS)) - 1);

impl ReplicaId {
    /// Returns both ids in one word, which names the replica in frames on disk.
    ///
    /// # Panics
    /// When an id is over its limit.
    #[must_use]
    pub fn word(self) -> u64 {
        assert!(self.master <= crate::MAX_SERVER_ID && self.segment <= MAX_SEGMENT_ID, "{self}");
        u64::from(self.master) << SEGMENT_BITS | self.segment
    }

    /// Returns the ids in a word that [`word`](Self::word) made.
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

/// A parsed request to a backup, borrowed from the bytes that contain it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BackupRequest<'a> {
    /// Write bytes of the segment's log at `offset`; at offset zero the replica begins. The backup
    /// does not compare bytes that it already has with those sent again. `number` of the answer:
    /// how many more bytes the replica can take, in at most two more writes. `more` is set if the
    /// backup has a whole replica of the segment from before it restarted, and keeps that one.
    Write {
        /// The replica.
        replica: ReplicaId,
        /// Offset in the segment's log, bytes.
        offset: u32,
        /// Whether the segment ends with these bytes.
        sealed: bool,
        /// Whether the replica replaces a lost one and still lacks acknowledged bytes after
        /// `bytes`. The replica does not count until a write without this flag arrives.
        replacement: bool,
        /// The edition of the segment that these bytes belong to, at most [`MAX_EDITION`]. Edition
        /// 0 is the log as it was written. A later edition has the same content in other bytes, and
        /// replaces all bytes of an earlier edition.
        edition: u8,
        /// The bytes, at most [`REPLICA_BYTES`]; empty only when this write seals the segment.
        bytes: &'a [u8],
    },
    /// Free the replica, which is no longer needed. Has no effect if the replica does not exist.
    Free {
        /// The replica.
        replica: ReplicaId,
    },
    /// List all replicas of a master that is being recovered, and accept nothing more from that
    /// master. Body of the answer: [`ReplicaRecord`]s.
    Fence {
        /// Server id of the master.
        master: u32,
    },
    /// Grant the master a lease, which it needs while its coordinator is silent: `number` of the
    /// answer says for how long, in microseconds from when the master sent the request. The backup
    /// answers no [`Fence`](Self::Fence) of this master before the lease has ended.
    Lease {
        /// Server id of the master.
        master: u32,
    },
    /// Read bytes of the segment's log from `offset` on, at most [`REPLICA_BYTES`]. Body of the
    /// answer: the bytes; `more` is set if other bytes follow.
    Read {
        /// The replica.
        replica: ReplicaId,
        /// Offset in the segment's log, bytes.
        offset: u32,
    },
    /// Read only the entries of some tablets in the segment: the segment's header entry, then the
    /// tablets' entries in any order, with all completions of the tablets' tables. If the last
    /// entry of a head is a completion that [does not count](crate::once::Completion::is_cut), the
    /// answer omits it. `number` of the answer: bytes of the whole selection. Otherwise like
    /// [`Read`](Self::Read).
    Select {
        /// The replica.
        replica: ReplicaId,
        /// Offset in the selected bytes.
        offset: u32,
        /// The tablets.
        selection: Selection<'a>,
    },
}

/// The largest edition of a segment. The first edition is 0, and each replacement of the segment's
/// lost replicas adds one.
pub const MAX_EDITION: u8 = 63;

/// Operation codes of [`BackupRequest`]s, the first and those after it.
pub(super) const FIRST: u8 = 64;
const WRITE: u8 = FIRST;
const FREE: u8 = FIRST + 1;
const FENCE: u8 = FIRST + 2;
const READ: u8 = FIRST + 3;
const SELECT: u8 = FIRST + 4;
const LEASE: u8 = FIRST + 5;
pub(super) const LAST: u8 = LEASE;

/// Flags in `condition` of a write: the segment ends with it; the replica is a replacement. The
/// bits above the flags are the edition.
const SEALED: u8 = 1;
const REPLACEMENT: u8 = 2;
const EDITION_SHIFT: u32 = 2;
const _: () = assert!(MAX_EDITION == u8::MAX >> EDITION_SHIFT);

impl<'a> BackupRequest<'a> {
    /// Returns whether the bytes begin with the operation code of a request to a backup.
    #[inline]
    #[must_use]
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|op| (FIRST..=LAST).contains(op))
    }

    pub(super) fn parts(self) -> (RequestHeader, &'a [u8]) {
        let (op, condition, replica, offset, bytes) = match self {
            Self::Write { replica, offset, sealed, replacement, edition, bytes } => {
                assert!(edition <= MAX_EDITION, "edition {edition}");
                let flags = if sealed { SEALED } else { 0 }
                    | if replacement { REPLACEMENT } else { 0 }
                    | edition << EDITION_SHIFT;
                (WRITE, flags, replica, offset, bytes)
            }
            Self::Free { replica } => (FREE, 0, replica, 0, &[][..]),
            Self::Fence { master } => (FENCE, 0, ReplicaId { master, segment: 0 }, 0, &[][..]),
            Self::Lease { master } => (LEASE, 0, ReplicaId { master, segment: 0 }, 0, &[][..]),
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
                let (sealed, replacement) = (flags & SEALED != 0, flags & REPLACEMENT != 0);
                Ok(Self::Write {
                    replica,
                    offset,
                    sealed,
                    replacement,
                    edition: flags >> EDITION_SHIFT,
                    bytes,
                })
            }
            (FREE | FENCE | READ | LEASE, 0) if !bytes.is_empty() => {
                Err(Malformed::Trailing(bytes.len()))
            }
            (FREE, 0) if offset == 0 => Ok(Self::Free { replica }),
            (FENCE, 0) if argument == 0 => Ok(Self::Fence { master }),
            (LEASE, 0) if argument == 0 => Ok(Self::Lease { master }),
            (READ, 0) => Ok(Self::Read { replica, offset }),
            (SELECT, 0) => match Selection::parse(bytes) {
                Some(selection) => Ok(Self::Select { replica, offset, selection }),
                None => Err(Malformed::Selection),
            },
            (FREE | FENCE | LEASE, 0) => Err(Malformed::Offset(offset)),
            (_, other) => Err(Malformed::Condition(other)),
        }
    }
}

/// A backup's record of a replica.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReplicaRecord {
    /// The segment.
    pub segment: u64,
    /// Bytes of the segment's log that the backup has.
    pub len: u32,
    /// Whether this is a replica of a head; false for a survivor, and for an incomplete
    /// replacement.
    pub head: bool,
    /// Whether the backup has all bytes of the segment.
    pub sealed: bool,
    /// Whether acknowledged bytes may be missing because the backup lost them from memory before
    /// they were on disk.
    pub unsure: bool,
}

/// Flags of a replica's record.
const RECORD_SEALED: u32 = 1;
const RECORD_UNSURE: u32 = 2;
const RECORD_HEAD: u32 = 4;

/// Appends a replica's record to a body.
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
    /// Returns the next record as a replica.
    pub fn replica(&mut self) -> Option<ReplicaRecord> {
        let (segment, len, flags) = (self.u64()?, self.u32()?, self.u32()?);
        let is = |flag| flags & flag != 0;
        let sensible =
            segment <= MAX_SEGMENT_ID && flags <= (RECORD_SEALED | RECORD_UNSURE | RECORD_HEAD);
        let (sealed, unsure, head) = (is(RECORD_SEALED), is(RECORD_UNSURE), is(RECORD_HEAD));
        sensible.then_some(ReplicaRecord { segment, len, head, sealed, unsure })
    }
}
