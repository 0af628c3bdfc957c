//! What is known of one replica.

use crate::backup::{Damage, Progress, Stored};
use sprat_wire::op::{ReplicaId, ReplicaRecord};

/// What may become of a replica.
#[derive(Clone, Debug, Eq, PartialEq)]
enum State {
    /// Begun in this life.
    Present,
    /// Begun in an earlier one: nothing is appended any more.
    Earlier,
    /// Not what was written; why.
    Damaged(String),
}

/// A replica.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    state: State,
    /// Whether it is a head (else a survivor).
    pub(super) head: bool,
    /// Whether it counts as one: not while it is being made anew.
    pub(super) counts: bool,
    /// Which telling of the segment it is, as far as known in this life.
    pub(super) edition: u8,
    /// Bytes of log taken.
    pub(super) len: u32,
    /// Whether they are all there will be.
    pub(super) sealed: bool,
    /// Bytes of log, and the seal, that the disk has.
    pub(super) written: u32,
    pub(super) seal_written: bool,
    /// Whether acknowledged bytes may be missing.
    unsure: bool,
    framed: u32,
    incarnation: u32,
}

impl Kept {
    /// One that begins.
    pub(super) fn begun(head: bool, edition: u8) -> Self {
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

    /// One that was found on disk.
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

    /// One that was found damaged.
    pub(super) fn damaged(damage: &Damage) -> Self {
        Self { state: State::Damaged(damage.to_string()), ..Self::begun(false, 0) }
    }

    /// Whether it was begun in this life: then it may be appended to unless it is sealed.
    pub(super) fn is_present(&self) -> bool {
        self.state == State::Present
    }

    /// What is wrong with it.
    pub(super) fn damage(&self) -> Option<&str> {
        match &self.state {
            State::Damaged(why) => Some(why),
            State::Present | State::Earlier => None,
        }
    }

    /// It has turned out to be damaged.
    pub(super) fn spoil(&mut self, damage: &str) {
        self.state = State::Damaged(damage.to_owned());
    }

    /// The disk has got so far.
    pub(super) fn progress(&mut self, progress: &Progress) {
        (self.written, self.framed, self.incarnation) =
            (progress.up_to, progress.framed, progress.incarnation);
        self.seal_written |= progress.sealed;
    }

    /// Whether the disk has all that was taken.
    pub(super) fn is_written(&self) -> bool {
        self.written == self.len && self.seal_written == self.sealed
    }

    /// Whether it is all of its segment, on disk, and counts.
    pub(super) fn is_whole(&self) -> bool {
        self.damage().is_none()
            && self.seal_written
            && self.is_written()
            && !self.unsure
            && (self.counts || !self.head)
    }

    /// Bytes that it takes of its frame.
    pub(super) fn framed(&self) -> u64 {
        self.framed.into()
    }

    /// How it lies on disk.
    pub(super) fn stored(&self, replica: ReplicaId) -> Stored {
        let Self { incarnation, framed, sealed, unsure, .. } = *self;
        let head = self.head && self.counts;
        Stored { replica, incarnation, len: self.written, head, framed, sealed, unsure }
    }

    /// How it stands, in words.
    pub(super) fn describe(&self) -> String {
        let Self { len, written, edition, .. } = self;
        let sealed = if self.sealed { ", sealed" } else { "" };
        let unsure = if self.unsure { ", unsure" } else { "" };
        let damage = self.damage().map(|why| format!(", damaged: {why}")).unwrap_or_default();
        let anew = if self.counts { "" } else { ", being made anew" };
        format!("{written} B of {len} written, edition {edition}{sealed}{unsure}{anew}{damage}")
    }

    /// What is told of it; `None` when it is damaged.
    pub(super) fn record(&self, segment: u64) -> Option<ReplicaRecord> {
        let Self { len, sealed, unsure, .. } = *self;
        let head = self.head && self.counts;
        self.damage().is_none().then_some(ReplicaRecord { segment, len, head, sealed, unsure })
    }
}
