//! Keeps replicas of other masters' segments on one disk, and gives them to those who recover a
//! master.
//!
//! [`Replicas`] answers [`BackupRequest`]s over a [`Backup`] of replicas.
//!
//! # When a write is answered
//! Under [`Sync`](Durability::Sync) when the disk has it. Under [`Buffered`](Durability::Buffered)
//! at once: a commit hands it to the kernel within [`FLUSH`], and a sync follows within
//! [`SYNC_INTERVAL`](crate::backup::SYNC_INTERVAL). What was acknowledged can be read as long as
//! the disk can be: a read waits for the commit that it needs.
//!
//! A disk that refuses ends writing for good, as the backup says. Reads go on, of what the disk
//! has.
//!
//! # What a restart leaves
//! Replicas of an earlier life can be read and freed. None can be appended to: the backup may have
//! lost bytes that it had acknowledged, and the master, which hears [`NotFound`](Status::NotFound),
//! makes another replica. Under `Buffered` one that is not sealed is *unsure*, unless the file was
//! closed in order.
//!
//! # Why a fence is on disk
//! Who recovers a master [fences](BackupRequest::Fence) it first: its writes are refused from then
//! on. Were that forgotten in a restart, the master, if it lives after all, could still acknowledge
//! nothing: its open replicas here are of an earlier life, and without them it must have a roll
//! confirmed by the coordinator, which knows that it is dead ([decision
//! 15](../../../../../docs/decisions/0015-replicas-and-leases.md)). But it could *begin* the same
//! segment again, and thereby have the replica freed that somebody is about to recover from. So a
//! fence is written down before it is answered: as a sealed replica of the master's segment
//! [`FENCE`], which no log has, in a frame of its own. It goes when the last replica of that master
//! is freed, for there is nothing left to guard then; the process goes on refusing.

mod fence;
mod kept;
mod read;
mod report;
mod sorted;
mod write;

pub use crate::backup::{Damage, Durability, OpenError, Options, Torn};
pub use fence::FENCE_FRAMES;
pub use read::{HOLD, MAX_ANSWERS, MAX_CACHED, MAX_READERS};
pub use report::OpenReport;
pub use write::{MAX_STAGED, MAX_WAITING};

use crate::answers::{answer, answer_text};
use crate::backup::{Backup, Failed, Progress};
use crate::bodies::Bodies;
use crate::master::Needed;
use crate::member::Keeper;
use crate::node::Service;
use fence::Fences;
use kept::Kept;
use read::Reads;
use report::Counts;
use sprat_disk::Disk;
use sprat_net::{Figure, Nanos};
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, Repeat, RequestId, Response};
use sprat_wire::op::{BackupRequest, ReplicaId, Request, Status};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use write::{Piece, Waiting};

/// Longest time that [`Durability::Buffered`] leaves bytes to this process alone, while the disk
/// keeps up.
pub const FLUSH: Duration = Duration::from_millis(50);

/// Bytes that are handed to the disk sooner than [`FLUSH`] says: they are worth a write.
const BULK_BYTES: usize = 1 << 20;

/// The segment by which a fence is written down. Those of logs are numbered from 1.
pub const FENCE: u64 = 0;

/// Most frames of a file of replicas: all replicas of one master can be told in one answer. 4.7 TB.
pub const MAX_FRAMES: u32 = 500_000;
const _: () = assert!(MAX_FRAMES as usize * 16 + 16 <= sprat_wire::MAX_MESSAGE);

/// What to ask of those who come when a limit is reached, microseconds.
const BUSY_MICROS: u32 = 1_000;

/// The replicas that a node keeps.
pub struct Replicas<D: Disk> {
    backup: Backup<D>,
    durability: Durability,
    /// By their words, so that those of a master lie together. At most as many as there are
    /// frames.
    kept: BTreeMap<u64, Kept>,
    fences: Fences,
    waiting: Waiting,
    reads: Reads,
    /// Answers that were pending. Each belongs to a request that was counted among those that
    /// wait.
    ready: VecDeque<(RequestId, Outcome<u32>)>,
    bodies: Bodies,
    /// When what was taken goes to the disk at the latest.
    flush_at: Option<Nanos>,
    /// Something was left over by the last commit.
    left_over: bool,
    /// What has become durable in this turn; empty between turns.
    progressed: Vec<Progress>,
    counts: Counts,
}

impl<D: Disk> Replicas<D> {
    /// Opens the file of replicas on `disk`, or makes it: see [`Backup::open_replicas`]. At most
    /// [`MAX_FRAMES`] of [`Options::max_frames`] are used, of which [`FENCE_FRAMES`] are left
    /// to fences. Blocks: what is there is read once, a second for each GB or so.
    ///
    /// # Errors
    /// [`OpenError`].
    ///
    /// # Panics
    /// When `options` are out of range.
    pub fn open(disk: D, options: &Options) -> Result<(Self, OpenReport), OpenError> {
        let options = Options { max_frames: options.max_frames.min(MAX_FRAMES), ..options.clone() };
        let (backup, found) = Backup::open_replicas(disk, &options)?;
        let mut replicas = Self {
            backup,
            durability: options.durability,
            kept: BTreeMap::new(),
            fences: Fences::default(),
            waiting: Waiting::default(),
            reads: Reads::default(),
            ready: VecDeque::new(),
            bodies: Bodies::default(),
            flush_at: None,
            left_over: false,
            progressed: Vec::new(),
            counts: Counts::default(),
        };
        for stored in &found.stored {
            replicas.put_back(stored.replica, Kept::found(stored));
        }
        for damage in &found.damaged {
            tracing::error!("{damage}");
            replicas.counts.damaged += 1;
            if let Some(replica) = damage.replica {
                replicas.put_back(replica, Kept::damaged(damage));
            }
        }
        if let Some(first) = found.torn.first() {
            let count = found.torn.len();
            tracing::warn!(
                "{count} replicas end, or never began, where a write was not finished; the first: {first}"
            );
        }
        replicas.drop_idle_fences();
        let report = OpenReport::new(found, &replicas);
        Ok((replicas, report))
    }

    /// Takes up again what was on disk.
    fn put_back(&mut self, replica: ReplicaId, kept: Kept) {
        if replica.segment == FENCE {
            self.fences.found(replica.master);
        } else {
            self.kept.insert(replica.word(), kept);
        }
    }

    /// Hands everything to the disk, and notes in the file that it was closed in order: what is
    /// open in it is not unsure then. Blocks.
    ///
    /// # Errors
    /// [`Failed`]: then the next start finds a file that was not closed in order.
    pub fn close(self, now: Nanos) -> Result<(), Failed> {
        self.backup.close(now, |_| {})
    }

    /// Why no more writes are taken; `None` while they are.
    #[must_use]
    pub fn failure(&self) -> Option<&Failed> {
        self.backup.failure()
    }

    /// The replicas that are whole on disk, and where in the file the bytes of each lie.
    pub fn whole(&self) -> impl Iterator<Item = (ReplicaId, Range<u64>)> + '_ {
        let whole = self.kept.iter().filter(|(_, kept)| kept.is_whole());
        whole.filter_map(|(&word, kept)| {
            let begin = self.backup.offset(word)?;
            Some((ReplicaId::of_word(word), begin..begin + kept.framed()))
        })
    }

    /// Does what a request says.
    fn ask(&mut self, now: Nanos, id: RequestId, request: &BackupRequest<'_>) -> Outcome<u32> {
        match *request {
            BackupRequest::Write { replica, .. }
            | BackupRequest::Free { replica }
            | BackupRequest::Read { replica, .. }
            | BackupRequest::Select { replica, .. }
                if replica.master == 0 || replica.segment == FENCE =>
            {
                self.malformed(&format!("there is no {replica}: both are numbered from 1"))
            }
            BackupRequest::Write { replica, offset, sealed, replacement: anew, edition, bytes } => {
                self.write(now, id, &Piece { replica, offset, sealed, anew, edition, bytes })
            }
            BackupRequest::Free { replica } => self.free(replica),
            BackupRequest::Fence { master: 0 } => self.malformed("servers are numbered from 1"),
            BackupRequest::Fence { master } => self.fence(now, id, master),
            BackupRequest::Read { replica, offset } => self.read(now, id, replica, offset, None),
            BackupRequest::Select { replica, offset, selection } => {
                self.read(now, id, replica, offset, Some(selection))
            }
        }
    }

    fn malformed(&mut self, why: &str) -> Outcome<u32> {
        self.counts.malformed += 1;
        answer_text(&mut self.bodies, Status::Malformed, why)
    }

    fn refuse(&mut self, why: &str) -> Outcome<u32> {
        self.counts.refused += 1;
        answer_text(&mut self.bodies, Status::Refused, why)
    }

    /// What is staged goes to the disk at this time, if not before.
    fn flush_by(&mut self, at: Nanos) {
        self.flush_at = Some(self.flush_at.map_or(at, |other| other.min(at)));
    }

    /// Begins a commit, if one is due and none under way.
    fn commit(&mut self, now: Nanos) -> Result<(), Failed> {
        let due = self.left_over
            || self.flush_at.is_some_and(|at| at <= now)
            || self.backup.staged_bytes() >= BULK_BYTES;
        if due && !self.backup.is_committing() {
            self.backup.submit(now)?;
            self.flush_at = None;
            // What found no frame follows when the file has grown.
            self.left_over = self.backup.has_staged();
        }
        Ok(())
    }

    /// Takes note of what the disk has done, and gives it more to do.
    fn work(&mut self, now: Nanos) -> Result<bool, Failed> {
        let Self { backup, progressed, .. } = self;
        let polled = backup.poll(now, |progress| progressed.push(progress));
        let worked = !self.progressed.is_empty();
        for progress in std::mem::take(&mut self.progressed) {
            self.progress(progress);
        }
        polled?;
        self.write_fences(now);
        self.commit(now)?;
        Ok(worked)
    }

    /// A replica, or a fence, has got so far on disk.
    fn progress(&mut self, progress: Progress) {
        let replica = ReplicaId::of_word(progress.segment);
        if replica.segment == FENCE {
            self.fences.written(replica.master);
            return;
        }
        if let Some(kept) = self.kept.get_mut(&progress.segment) {
            kept.progress(&progress);
            self.acknowledge(progress.segment);
        }
    }
}

impl<D: Disk> Handler for Replicas<D> {
    type Body = u32;

    fn request(&mut self, now: Nanos, id: RequestId, payload: &[u8]) -> Outcome<u32> {
        match Request::parse(payload) {
            Ok(Request::Backup(request)) => self.ask(now, id, &request),
            Ok(_) => Outcome::Reply(answer(Status::WrongRole, false, 0, 0, Repeat::Reexecute)),
            Err(malformed) => self.malformed(&malformed.to_string()),
        }
    }

    fn gather(&self, body: u32) -> &[u8] {
        self.bodies.bytes(body)
    }

    fn release(&mut self, body: u32) {
        self.reads.released(body);
        self.bodies.release(body);
    }

    fn completed(&mut self, _: Nanos, _: CallId, _: Result<Response<'_>, CallFailure>) {
        unreachable!("a backup makes no calls");
    }
}

impl<D: Disk> Service for Replicas<D> {
    fn poll(&mut self, now: Nanos) -> bool {
        let mut worked = match self.work(now) {
            Ok(worked) => worked,
            Err(failed) => self.abandon(&failed),
        };
        worked |= self.answer_fences();
        worked |= self.serve(now);
        worked
    }

    fn take_ready(&mut self) -> Option<(RequestId, Outcome<u32>)> {
        self.ready.pop_front()
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let mut next = self.backup.next_deadline();
        // While a commit is under way its end is what is waited for.
        if let Some(flush) = self.flush_at
            && !self.backup.is_committing()
            && self.failure().is_none()
        {
            next = next.min(flush);
        }
        Some(next.min(self.reads.next_deadline()))
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.backup.poll_fd()
    }
}

impl<D: Disk> Keeper for Replicas<D> {
    fn keep(&mut self, needed: &Needed) {
        let is_needed =
            |master: u32| master >= needed.below || needed.masters.binary_search(&master).is_ok();
        let mut gone: Vec<ReplicaId> =
            self.kept.keys().map(|&word| ReplicaId::of_word(word)).collect();
        gone.retain(|replica| !is_needed(replica.master));
        for replica in gone {
            self.free(replica);
        }
    }

    fn counted(&self) -> Vec<Figure> {
        self.figures()
    }
}
