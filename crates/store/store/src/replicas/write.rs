//! Taking bytes, and giving replicas up.

use super::fence::FENCE_FRAMES;
use super::kept::Kept;
use super::{BUSY_MICROS, FLUSH, Replicas};
use crate::answers::answer;
use crate::backup::{AppendError, Durability, Failed, MAX_OPEN_REPLICAS};
use sprat_disk::Disk;
use sprat_net::Nanos;
use sprat_rpc::{Outcome, Repeat, RequestId};
use sprat_wire::op::{ReplicaId, Status};
use std::collections::BTreeMap;

/// Most writes that wait for the disk. Beyond, they are turned away until it has caught up.
pub const MAX_WAITING: usize = 4096;

/// Most bytes that wait for the disk, as far as they have no write under way. Beyond, writes are
/// turned away.
pub const MAX_STAGED: usize = 64 << 20;

/// What a master writes: see [`BackupRequest::Write`](sprat_wire::op::BackupRequest).
pub(super) struct Piece<'a> {
    pub(super) replica: ReplicaId,
    pub(super) offset: u32,
    pub(super) sealed: bool,
    pub(super) anew: bool,
    pub(super) edition: u8,
    pub(super) bytes: &'a [u8],
}

/// A write to be answered when the disk has it.
struct Waiter {
    id: RequestId,
    up_to: u32,
    sealed: bool,
}

/// Writes that wait for the disk, by the words of their replicas.
#[derive(Default)]
pub(super) struct Waiting {
    by_replica: BTreeMap<u64, Vec<Waiter>>,
    count: usize,
}

impl Waiting {
    fn push(&mut self, word: u64, waiter: Waiter) {
        self.count += 1;
        self.by_replica.entry(word).or_default().push(waiter);
    }

    /// Takes those of a replica that `is_due`.
    fn take(&mut self, word: u64, is_due: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let Some(waiters) = self.by_replica.get_mut(&word) else { return Vec::new() };
        let (due, rest): (Vec<_>, Vec<_>) = std::mem::take(waiters).into_iter().partition(is_due);
        self.count -= due.len();
        if rest.is_empty() {
            self.by_replica.remove(&word);
        } else {
            *waiters = rest;
        }
        due
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }
}

impl<D: Disk> Replicas<D> {
    pub(super) fn write(&mut self, now: Nanos, id: RequestId, piece: &Piece<'_>) -> Outcome<u32> {
        let Piece { replica, offset, sealed, anew, edition, bytes } = *piece;
        if self.fences.contains(replica.master) {
            self.counts.fenced_writes += 1;
            return Outcome::Reply(answer(Status::Fenced, false, 0, 0, Repeat::Retain));
        }
        if bytes.is_empty() && (offset == 0 || !sealed) {
            return self.malformed("a write without bytes can only seal what is there");
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
        if self.kept.get(&word).is_some_and(|kept| kept.edition < edition && kept.is_whole()) {
            // Of a life before, of which the master knows nothing. To give it up for what may never
            // be whole could lose the last one.
            return Outcome::Reply(answer(Status::Ok, true, 0, 0, Repeat::Retain));
        }
        let there = self.kept.get(&word).filter(|kept| kept.is_present());
        if there.is_some_and(|kept| edition < kept.edition) {
            // Late: bytes of one telling do not fit into another.
            return self.not_found();
        }
        let there = there.filter(|kept| edition == kept.edition);
        let (len, ended) = there.map_or((0, false), |kept| (kept.len, kept.sealed));
        let begins = there.is_none();
        let end = offset + u32::try_from(bytes.len()).expect("no more than a replica has");
        if begins && offset > 0 || offset > len || ended && end > len {
            return self.not_found();
        }
        if sealed && end < len {
            return self
                .refuse(&format!("{replica} cannot end at byte {end}: {len} B of it are here"));
        }
        let fresh = bytes.get((len - offset) as usize..).unwrap_or(&[]);
        if !fresh.is_empty() || sealed && !ended {
            if begins && let Some(why) = self.make_way(word, sealed) {
                return self.refuse(&why);
            }
            if let Err(error) = self.backup.append(word, len, [fresh], sealed) {
                return self.not_taken(replica, error);
            }
            let kept = self
                .kept
                .entry(word)
                .or_insert_with(|| Kept::begun(crate::backup::is_head(fresh), edition));
            if kept.head && kept.counts == anew {
                kept.counts = !anew;
                self.backup.claim(word, kept.counts);
            }
            (kept.len, kept.sealed) = (len.max(end), sealed);
            self.counts.written_bytes += fresh.len() as u64;
            let patience =
                if self.durability == Durability::Sync { std::time::Duration::ZERO } else { FLUSH };
            self.flush_by(now + patience);
        }
        let kept = &self.kept[&word];
        let on_disk = kept.written >= end && (!sealed || kept.seal_written);
        if self.durability == Durability::Sync && !on_disk {
            self.waiting.push(word, Waiter { id, up_to: end, sealed });
            return Outcome::Pending;
        }
        self.taken(word)
    }

    /// Sees to it that a replica can begin: what there is of it is freed. Else says why it cannot.
    fn make_way(&mut self, word: u64, sealed: bool) -> Option<String> {
        let outdated = self.kept.contains_key(&word);
        let count = self.backup.frame_count();
        let most = count.max.saturating_sub(FENCE_FRAMES);
        if count.live - u32::from(outdated) >= most {
            let most = format!("all {most} frames for replicas are in use");
            return Some(match self.backup.disk_is_full() {
                true => format!("its disk is full, and {most}: make space on it, or add servers"),
                false => format!("{most}: give this server more --disk, or add servers"),
            });
        }
        if !sealed && self.backup.unsealed() >= MAX_OPEN_REPLICAS {
            return Some(format!(
                "{MAX_OPEN_REPLICAS} replicas are open here: choose another backup"
            ));
        }
        if outdated {
            self.give_up(word);
        }
        None
    }

    fn not_taken(&mut self, replica: ReplicaId, error: AppendError) -> Outcome<u32> {
        match error {
            // Those that are sealed are about to leave.
            AppendError::Behind => {
                self.counts.turned_away += 1;
                Outcome::Retry(BUSY_MICROS)
            }
            AppendError::NoRoom { room, asked, .. } => self.refuse(&format!(
                "{replica} has room for {room} B more here, not for {asked}: seal it"
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

    /// The answer to a write that was taken.
    fn taken(&mut self, word: u64) -> Outcome<u32> {
        self.counts.writes += 1;
        let sealed = self.kept.get(&word).is_none_or(|kept| kept.sealed);
        let room = if sealed { 0 } else { self.backup.room(word) as u64 };
        Outcome::Reply(answer(Status::Ok, false, 0, room, Repeat::Retain))
    }

    /// Answers the writes of a replica that the disk has by now.
    pub(super) fn acknowledge(&mut self, word: u64) {
        let Some(kept) = self.kept.get(&word) else { return };
        let (written, seal_written) = (kept.written, kept.seal_written);
        for waiter in self
            .waiting
            .take(word, |waiter| waiter.up_to <= written && (!waiter.sealed || seal_written))
        {
            let taken = self.taken(word);
            self.ready.push_back((waiter.id, taken));
        }
    }

    /// Answers the writes that will never be on disk; returns whether there were any.
    pub(super) fn abandon(&mut self, failed: &Failed) -> bool {
        let why = failed.to_string();
        let words: Vec<u64> = self.waiting.by_replica.keys().copied().collect();
        for &word in &words {
            for waiter in self.waiting.take(word, |_| true) {
                let refused = self.refuse(&why);
                self.ready.push_back((waiter.id, refused));
            }
        }
        if !std::mem::replace(&mut self.counts.stopped, true) {
            tracing::error!("no more replicas are taken: {why}");
        }
        !words.is_empty()
    }

    /// A replica is not needed any more.
    pub(super) fn free(&mut self, replica: ReplicaId) -> Outcome<u32> {
        if self.kept.contains_key(&replica.word()) {
            self.give_up(replica.word());
            self.counts.freed += 1;
            if self.of_master(replica.master).next().is_none() {
                self.end_fence(replica.master);
            }
        }
        Outcome::Reply(answer(Status::Ok, false, 0, 0, Repeat::Retain))
    }

    /// Forgets a replica, and takes its frame back.
    fn give_up(&mut self, word: u64) {
        self.kept.remove(&word);
        self.backup.free(word);
        if let Some(contents) = self.reads.forget(word) {
            self.backup.give_back(contents);
        }
        for waiter in self.waiting.take(word, |_| true) {
            let gone = self.not_found();
            self.ready.push_back((waiter.id, gone));
        }
    }
}
