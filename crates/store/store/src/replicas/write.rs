//! Writes to replicas, and frees them.

use super::fence::FENCE_FRAMES;
use super::kept::Replica;
use super::{BUSY_MICROS, FLUSH, Replicas};
use crate::answers::answer;
use crate::backup::{AppendError, Durability, Failed, MAX_OPEN_REPLICAS};
use sprat_disk::Disk;
use sprat_net::Nanos;
use sprat_rpc::{Outcome, Repeat, RequestId};
use sprat_wire::op::{ReplicaId, Status};
use std::collections::BTreeMap;

/// The largest number of writes that wait for the disk. Further writes are answered with `Retry`.
pub const MAX_WAITING: usize = 4096;

/// Limit on the bytes that wait for the next commit. While this many or more wait, writes are
/// answered with `Retry`.
pub const MAX_STAGED: usize = 64 << 20;

/// A write of a master: see [`BackupRequest::Write`](sprat_wire::op::BackupRequest).
pub(super) struct Piece<'a> {
    pub(super) replica: ReplicaId,
    pub(super) offset: u32,
    pub(super) sealed: bool,
    pub(super) anew: bool,
    pub(super) edition: u8,
    pub(super) bytes: &'a [u8],
}

/// A write that is acknowledged once it is on disk.
struct PendingWrite {
    id: RequestId,
    up_to: u32,
    sealed: bool,
}

/// Writes that wait for the disk, by [`ReplicaId::word`], the replica's id as one number.
#[derive(Default)]
pub(super) struct PendingWrites {
    by_replica: BTreeMap<u64, Vec<PendingWrite>>,
    count: usize,
}

impl PendingWrites {
    fn push(&mut self, word: u64, write: PendingWrite) {
        self.count += 1;
        self.by_replica.entry(word).or_default().push(write);
    }

    /// Takes the writes to a replica for which `is_due` holds.
    fn take(&mut self, word: u64, is_due: impl Fn(&PendingWrite) -> bool) -> Vec<PendingWrite> {
        let Some(writes) = self.by_replica.get_mut(&word) else { return Vec::new() };
        let (due, rest): (Vec<_>, Vec<_>) = std::mem::take(writes).into_iter().partition(is_due);
        self.count -= due.len();
        if rest.is_empty() {
            self.by_replica.remove(&word);
        } else {
            *writes = rest;
        }
        due
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }
}

impl<D: Disk> Replicas<D> {
    /// Appends to a replica, or begins one. The reply states the number of bytes that the replica
    /// can still take; under [`Durability::Sync`] the reply waits until the disk has the write.
    pub(super) fn write(&mut self, now: Nanos, id: RequestId, piece: &Piece<'_>) -> Outcome<u32> {
        let Piece { replica, offset, sealed, anew, edition, bytes } = *piece;
        if self.fences.contains(replica.master) {
            self.counts.fenced_writes += 1;
            return Outcome::Reply(answer(Status::Fenced, false, 0, 0, Repeat::Retain));
        }
        if bytes.is_empty() && (offset == 0 || !sealed) {
            return self.malformed("an empty write can only seal an existing replica");
        }
        if let Some(failed) = self.failure() {
            let why = failed.to_string();
            return self.refuse(&why);
        }
        if self.waiting.count >= MAX_WAITING || self.backup.staged_bytes() >= MAX_STAGED {
            self.counts.turned_away += 1;
            return Outcome::Retry(BUSY_MICROS);
        }
        let word = replica.word();
        let is_other = |kept: &Replica| !kept.is_present() || kept.edition < edition;
        if self.kept.get(&word).is_some_and(|kept| kept.is_whole() && is_other(kept)) {
            // There is a whole replica from before a restart, of which the master may not know.
            // Freeing it for a copy that may never be completed could lose the last whole replica.
            // The master may count it, too: in the simulator, a write that began the segment
            // arrived late, sent to the server that this one had been before it was declared dead.
            return Outcome::Reply(answer(Status::Ok, true, 0, 0, Repeat::Retain));
        }
        let there = self.kept.get(&word).filter(|kept| kept.is_present());
        if there.is_some_and(|kept| edition < kept.edition) {
            // This is a delayed write. Bytes of an older edition must not get into this edition.
            return self.not_found();
        }
        let there = there.filter(|kept| edition == kept.edition);
        let (len, is_sealed) = there.map_or((0, false), |kept| (kept.len, kept.sealed));
        let begins = there.is_none();
        let end = offset + u32::try_from(bytes.len()).expect("no more than a replica has");
        if begins && offset > 0 || offset > len || is_sealed && end > len {
            return self.not_found();
        }
        if sealed && end < len {
            return self
                .refuse(&format!("{replica} cannot end at byte {end}: {len} B of it are here"));
        }
        let fresh = bytes.get((len - offset) as usize..).unwrap_or(&[]);
        if !fresh.is_empty() || sealed && !is_sealed {
            if begins && let Err(why) = self.prepare_new(word, sealed) {
                return self.refuse(&why);
            }
            if let Err(error) = self.backup.append(word, len, [fresh], sealed) {
                return self.refuse_append(replica, error);
            }
            let kept = self
                .kept
                .entry(word)
                .or_insert_with(|| Replica::new(crate::backup::is_head(fresh), edition));
            if kept.head && kept.counts == anew {
                kept.counts = !anew;
                self.backup.claim(word, kept.counts);
            }
            (kept.len, kept.sealed) = (len.max(end), sealed);
            self.counts.written_bytes += fresh.len() as u64;
            let delay =
                if self.durability == Durability::Sync { std::time::Duration::ZERO } else { FLUSH };
            self.flush_by(now + delay);
        }
        let kept = &self.kept[&word];
        let on_disk = kept.written >= end && (!sealed || kept.seal_written);
        if self.durability == Durability::Sync && !on_disk {
            self.waiting.push(word, PendingWrite { id, up_to: end, sealed });
            return Outcome::Pending;
        }
        self.acknowledge_one(word)
    }

    /// Makes sure that a replica can begin, and frees the replica that it replaces, if any.
    ///
    /// # Errors
    /// The reason for which the replica cannot be begun.
    fn prepare_new(&mut self, word: u64, sealed: bool) -> Result<(), String> {
        let outdated = self.kept.contains_key(&word);
        let count = self.backup.frame_count();
        let most = count.max.saturating_sub(FENCE_FRAMES);
        if count.live - u32::from(outdated) >= most {
            let most = format!("all {most} frames for replicas are in use");
            return Err(match self.backup.disk_is_full() {
                true => format!("its disk is full, and {most}: free space on it, or add servers"),
                false => format!("{most}: give this server more --disk, or add servers"),
            });
        }
        if !sealed && self.backup.unsealed() >= MAX_OPEN_REPLICAS {
            return Err(format!(
                "{MAX_OPEN_REPLICAS} replicas are open here: choose another backup"
            ));
        }
        if outdated {
            self.remove(word);
        }
        Ok(())
    }

    fn refuse_append(&mut self, replica: ReplicaId, error: AppendError) -> Outcome<u32> {
        match error {
            // Sealed replicas are about to be completed, which makes room for another.
            AppendError::Behind => {
                self.counts.turned_away += 1;
                Outcome::Retry(BUSY_MICROS)
            }
            AppendError::NoRoom { room, asked, .. } => self.refuse(&format!(
                "{replica} has {room} B left here, too few for {asked} B: seal it"
            )),
            error @ (AppendError::NoFrame(_) | AppendError::Failed(_)) => {
                self.refuse(&error.to_string())
            }
        }
    }

    fn not_found(&mut self) -> Outcome<u32> {
        self.counts.not_found += 1;
        Outcome::Reply(answer(Status::NotFound, false, 0, 0, Repeat::Retain))
    }

    /// Returns the reply to a write that was made.
    fn acknowledge_one(&mut self, word: u64) -> Outcome<u32> {
        self.counts.writes += 1;
        let sealed = self.kept.get(&word).is_none_or(|kept| kept.sealed);
        let room = if sealed { 0 } else { self.backup.room(word) as u64 };
        Outcome::Reply(answer(Status::Ok, false, 0, room, Repeat::Retain))
    }

    /// Acknowledges the writes to a replica that are on disk by now.
    pub(super) fn acknowledge(&mut self, word: u64) {
        let Some(kept) = self.kept.get(&word) else { return };
        let (written, seal_written) = (kept.written, kept.seal_written);
        let is_due =
            |write: &PendingWrite| write.up_to <= written && (!write.sealed || seal_written);
        for write in self.waiting.take(word, is_due) {
            let outcome = self.acknowledge_one(word);
            self.ready.push_back((write.id, outcome));
        }
    }

    /// Refuses all pending writes after the disk has failed. Returns whether there were any.
    pub(super) fn abandon(&mut self, failed: &Failed) -> bool {
        let why = failed.to_string();
        let words: Vec<u64> = self.waiting.by_replica.keys().copied().collect();
        for &word in &words {
            for write in self.waiting.take(word, |_| true) {
                let refused = self.refuse(&why);
                self.ready.push_back((write.id, refused));
            }
        }
        if !std::mem::replace(&mut self.counts.stopped, true) {
            tracing::error!("no longer accepts replicas: {why}");
        }
        !words.is_empty()
    }

    /// Frees a replica that its master no longer needs.
    pub(super) fn free(&mut self, replica: ReplicaId) -> Outcome<u32> {
        if self.kept.contains_key(&replica.word()) {
            self.remove(replica.word());
            self.counts.freed += 1;
            if self.of_master(replica.master).next().is_none() {
                self.end_fence(replica.master);
            }
        }
        Outcome::Reply(answer(Status::Ok, false, 0, 0, Repeat::Retain))
    }

    /// Removes a replica and frees its frame.
    fn remove(&mut self, word: u64) {
        self.kept.remove(&word);
        self.backup.free(word);
        if let Some(contents) = self.reads.forget(word) {
            self.backup.give_back(contents);
        }
        for write in self.waiting.take(word, |_| true) {
            let gone = self.not_found();
            self.ready.push_back((write.id, gone));
        }
    }
}
