//! One segment that is open, and how far each of its replicas has come.

use sprat_log::OpenSegment;
use std::ops::Range;

/// A replica of an open segment.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    /// Who keeps it.
    pub(super) server: u32,
    /// Bytes that are there.
    pub(super) acked: usize,
    /// The seal is there.
    pub(super) sealed: bool,
    /// Where it will be when the call under way has ended well.
    pub(super) under_way: Option<(usize, bool)>,
    /// Bytes that the backup can take behind `acked`.
    pub(super) room: usize,
}

impl Replica {
    pub(super) fn new(server: u32, room: usize) -> Self {
        Self { server, acked: 0, sealed: false, under_way: None, room }
    }
}

/// What may leave of a segment now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Sendable {
    /// Bytes from its beginning.
    pub(super) up_to: usize,
    /// And then its seal.
    pub(super) seal: bool,
}

/// An open segment.
#[derive(Default)]
pub(super) struct Open {
    /// At most as many as there are to be.
    pub(super) replicas: Vec<Replica>,
    /// Who may have a part of one, for nothing.
    pub(super) given_up: Vec<u32>,
    /// A head of which a replica was given up: what has come of it is told only when it is sealed,
    /// and open replicas of it are void.
    pub(super) tainted: bool,
    /// What the log was told: bytes handed out, bytes durable, seal.
    pub(super) told: (usize, usize, bool),
}

impl Open {
    /// Bytes that all of `copies` replicas have.
    pub(super) fn acked(&self, copies: usize) -> usize {
        if self.replicas.len() < copies {
            return 0;
        }
        self.replicas.iter().map(|replica| replica.acked).min().unwrap_or(0)
    }

    /// Whether all of `copies` replicas are sealed.
    pub(super) fn is_sealed(&self, copies: usize) -> bool {
        self.replicas.len() == copies && self.replicas.iter().all(|replica| replica.sealed)
    }

    /// Bytes that every replica can still take behind `appended`.
    pub(super) fn room(&self, appended: usize) -> Option<usize> {
        self.replicas
            .iter()
            .map(|replica| (replica.acked + replica.room).saturating_sub(appended))
            .min()
    }

    /// What a replica is to be sent next, if anything: a range of bytes, and whether the seal goes
    /// with its end.
    pub(super) fn next(&self, at: usize, may: Sendable) -> Option<(Range<usize>, bool)> {
        let replica = &self.replicas[at];
        if replica.under_way.is_some() {
            return None;
        }
        let seal = may.seal && !replica.sealed;
        (may.up_to > replica.acked || seal).then(|| (replica.acked.min(may.up_to)..may.up_to, seal))
    }
}

/// What may leave of each open segment: heads, oldest first, then survivors. `header_everywhere`
/// says whether the second head's header is on all its backups.
///
/// The oldest head's bytes may leave at any time, and of the next its header; the oldest one's seal
/// only when that header is everywhere, so that a log always has an open head; and other bytes of
/// the next only when the oldest is done with.
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
