//! An open segment, and the progress of each of its replicas.

use sprat_log::OpenSegment;
use std::ops::Range;

/// A replica of an open segment.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    /// The backup that keeps the replica.
    pub(super) server: u32,
    /// Bytes that the backup has acknowledged.
    pub(super) acked: usize,
    /// Whether the backup has acknowledged the seal.
    pub(super) sealed: bool,
    /// While a write is under way: the number of bytes that the replica will have once the write
    /// succeeds, and whether it will have the seal.
    pub(super) under_way: Option<(usize, bool)>,
    /// Bytes that the backup can take after `acked`.
    pub(super) room: usize,
}

impl Replica {
    pub(super) fn new(server: u32, room: usize) -> Self {
        Self { server, acked: 0, sealed: false, under_way: None, room }
    }
}

/// The part of a segment that may be sent to backups now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Sendable {
    /// The number of bytes that may be sent, from the segment's beginning.
    pub(super) up_to: usize,
    /// Whether the segment's seal may follow these bytes.
    pub(super) seal: bool,
}

/// The progress of a segment that has been reported to the log.
#[derive(Clone, Copy, Default)]
pub(super) struct Reported {
    /// Bytes sent to at least one backup.
    pub(super) submitted: usize,
    /// Whether the seal was sent to at least one backup.
    pub(super) seal_submitted: bool,
    /// Bytes that are durable.
    pub(super) durable: usize,
    /// Whether the seal is durable.
    pub(super) sealed: bool,
}

/// The replicas of an open segment.
#[derive(Default)]
pub(super) struct OpenReplicas {
    /// The segment's replicas that were not given up; at most the configured number.
    pub(super) replicas: Vec<Replica>,
    /// Backups that may have a part of a replica; such a part does not count.
    pub(super) given_up: Vec<u32>,
    /// Whether this is a head of which a replica was given up. Recovery must not use its open
    /// replicas, so its bytes count as durable only once the head is sealed and the coordinator has
    /// confirmed the next head.
    pub(super) tainted: bool,
    /// The progress that has been reported to the log.
    pub(super) reported: Reported,
}

impl OpenReplicas {
    /// Returns the number of bytes that all of `copies` replicas have acknowledged; zero if there
    /// are fewer replicas.
    pub(super) fn acked(&self, copies: usize) -> usize {
        if self.replicas.len() < copies {
            return 0;
        }
        self.replicas.iter().map(|replica| replica.acked).min().unwrap_or(0)
    }

    /// Returns whether all of `copies` replicas are sealed.
    pub(super) fn is_sealed(&self, copies: usize) -> bool {
        self.replicas.len() == copies && self.replicas.iter().all(|replica| replica.sealed)
    }

    /// Returns the largest length of the segment, in bytes, for which every replica has room;
    /// `None` if there is no replica.
    pub(super) fn limit(&self) -> Option<usize> {
        self.replicas.iter().map(|replica| replica.acked + replica.room).min()
    }

    /// Returns the next range of bytes to send to a replica, if any, and whether the seal is sent
    /// with the range.
    pub(super) fn next(&self, at: usize, may: Sendable) -> Option<(Range<usize>, bool)> {
        let replica = &self.replicas[at];
        if replica.under_way.is_some() {
            return None;
        }
        let seal = may.seal && !replica.sealed;
        (may.up_to > replica.acked || seal).then(|| (replica.acked.min(may.up_to)..may.up_to, seal))
    }
}

/// Returns the part of an open segment that may be sent. `head` is its index among the open heads,
/// oldest first; `None` for a survivor. `header_everywhere` says whether the header of the second
/// head is on all its backups.
///
/// All bytes of the oldest head may be sent, and of the next head only its header. The oldest head
/// is sealed only once that header is on all backups, so that the log always has an open head.
/// Other bytes of the next head follow once the oldest one is durable and sealed.
pub(super) fn sendable(
    open: &OpenSegment,
    head: Option<usize>,
    header_everywhere: bool,
) -> Sendable {
    match head {
        None => Sendable { up_to: open.appended, seal: open.sealed },
        Some(0) => Sendable { up_to: open.appended, seal: open.sealed && header_everywhere },
        Some(1) => Sendable { up_to: open.header, seal: false },
        Some(_) => Sendable { up_to: 0, seal: false },
    }
}
