//! The state of one replica.

use crate::backup::{Damage, Progress, Stored};
use sprat_wire::op::{ReplicaId, ReplicaRecord};

/// Whether a replica can be read and appended to.
#[derive(Clone, Debug, Eq, PartialEq)]
enum State {
    /// Begun since this process started: it can be appended to.
    Present,
    /// Begun before this process started: it cannot be appended to.
    Earlier,
    /// The replica's bytes are not those that were written, with a description of the damage.
    Damaged(String),
}

/// A replica of a segment of another master's log, as the backup keeps it.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    state: State,
    /// Whether the replica's segment is a head, and not a survivor.
    pub(super) head: bool,
    /// Whether the replica counts as a head in recovery. It does not while it is being
    /// re-replicated, because it still lacks bytes that are durable elsewhere.
    pub(super) counts: bool,
    /// The edition of the segment; zero for a replica from before this process started.
    pub(super) edition: u8,
    /// Bytes of log received.
    pub(super) len: u32,
    /// Whether no more bytes will follow.
    pub(super) sealed: bool,
    /// Bytes of log on disk.
    pub(super) written: u32,
    /// Whether the seal is on disk.
    pub(super) seal_written: bool,
    /// Whether acknowledged bytes may be missing.
    unsure: bool,
    framed: u32,
    incarnation: u32,
}

impl Replica {
    /// Makes a new replica, still empty.
    pub(super) fn new(head: bool, edition: u8) -> Self {
        Self {
            state: State::Present,
            head,
            counts: true,
            edition,
            len: 0,
            sealed: false,
            written: 0,
            seal_written: false,
            unsure: false,
            framed: 0,
            incarnation: 0,
        }
    }

    /// Makes a replica that was found on disk.
    pub(super) fn found(stored: &Stored) -> Self {
        let Stored { len, head, sealed, unsure, framed, incarnation, .. } = *stored;
        Self {
            state: State::Earlier,
            head,
            counts: true,
            edition: 0,
            len,
            sealed,
            written: len,
            seal_written: sealed,
            unsure,
            framed,
            incarnation,
        }
    }

    /// Makes a replica that was found damaged.
    pub(super) fn damaged(damage: &Damage) -> Self {
        Self { state: State::Damaged(damage.to_string()), ..Self::new(false, 0) }
    }

    /// Returns whether the replica was begun after this process started. It can be appended to
    /// unless it is sealed.
    pub(super) fn is_present(&self) -> bool {
        self.state == State::Present
    }

    /// Returns the description of the replica's damage, if it is damaged.
    pub(super) fn damage(&self) -> Option<&str> {
        match &self.state {
            State::Damaged(why) => Some(why),
            State::Present | State::Earlier => None,
        }
    }

    /// Marks the replica as damaged.
    pub(super) fn mark_damaged(&mut self, damage: &str) {
        self.state = State::Damaged(damage.to_owned());
    }

    /// Notes how much of the replica is on disk.
    pub(super) fn progress(&mut self, progress: &Progress) {
        (self.written, self.framed, self.incarnation) =
            (progress.up_to, progress.framed, progress.incarnation);
        self.seal_written |= progress.sealed;
    }

    /// Returns whether everything that was received is on disk.
    pub(super) fn is_written(&self) -> bool {
        self.written == self.len && self.seal_written == self.sealed
    }

    /// Returns whether all of the replica's segment is on disk, and the replica counts in recovery.
    pub(super) fn is_whole(&self) -> bool {
        self.damage().is_none()
            && self.seal_written
            && self.is_written()
            && !self.unsure
            && (self.counts || !self.head)
    }

    /// Returns the number of bytes that the replica takes in its frame.
    pub(super) fn framed(&self) -> u64 {
        self.framed.into()
    }

    /// Describes how the replica lies on disk, for the backup to read it.
    pub(super) fn stored(&self, replica: ReplicaId) -> Stored {
        let Self { incarnation, framed, sealed, unsure, .. } = *self;
        let head = self.head && self.counts;
        Stored { replica, incarnation, len: self.written, head, framed, sealed, unsure }
    }

    /// Describes the replica's state in words, for the simulator's trace.
    pub(super) fn describe(&self) -> String {
        let Self { len, written, edition, .. } = self;
        let sealed = if self.sealed { ", sealed" } else { "" };
        let unsure = if self.unsure { ", unsure" } else { "" };
        let damage = self.damage().map(|why| format!(", damaged: {why}")).unwrap_or_default();
        let anew = if self.counts { "" } else { ", being rewritten" };
        format!("{written} B of {len} written, edition {edition}{sealed}{unsure}{anew}{damage}")
    }

    /// Makes the replica's record for a server that recovers the master; `None` if the replica is
    /// damaged.
    pub(super) fn record(&self, segment: u64) -> Option<ReplicaRecord> {
        let Self { len, sealed, unsure, .. } = *self;
        let head = self.head && self.counts;
        self.damage().is_none().then_some(ReplicaRecord { segment, len, head, sealed, unsure })
    }
}
