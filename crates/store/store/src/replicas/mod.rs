//! Keeps replicas of other masters' segments on one disk, and serves them to servers that recover a
//! master.
//!
//! [`Replicas`] answers [`BackupRequest`]s over a [`Backup`] of replicas.
//!
//! # When a write is acknowledged
//! Under [`Sync`](Durability::Sync) a write is acknowledged when it is on the disk. Under
//! [`Buffered`](Durability::Buffered) it is acknowledged at once: a commit hands it to the kernel
//! within [`FLUSH`], and a sync follows within [`SYNC_INTERVAL`](crate::backup::SYNC_INTERVAL).
//! Acknowledged bytes can be read as long as the disk works: a read waits for the commit that
//! writes the bytes.
//!
//! A failed write or sync ends writing for good, as in every [`Backup`]. Bytes that are on the disk
//! can still be read.
//!
//! # After a restart
//! Replicas from before the restart can be read and freed, but not appended to: the backup may have
//! lost bytes that it had acknowledged. The master gets [`NotFound`](Status::NotFound) and makes
//! another replica. Under `Buffered`, an unsealed replica from before the restart is *unsure*,
//! which means that it may lack acknowledged bytes, unless the file was closed cleanly.
//!
//! # Why a fence is on disk
//! A server that recovers a master [fences](BackupRequest::Fence) it first: from then on the
//! master's writes are refused. Suppose that a restart forgot the fence while the master is still
//! alive. The master could still not get a write acknowledged: its open replicas here are from
//! before the restart, and without them it needs a new head confirmed by the coordinator, which
//! knows that the master is dead ([decision
//! 15](../../../../../docs/decisions/0015-replicas-and-leases.md)). But the master could *begin*
//! the same segment again, which would free the replica that is about to be used for the recovery.
//! So a fence is made durable before it is acknowledged: as a sealed replica of the master's
//! segment [`FENCE`], which no log has, in a frame of its own. The fence is freed with the last
//! replica of that master, because no replica is left to guard then. The running process still
//! refuses the master's writes.

mod fence;
mod kept;
mod leases;
mod read;
mod report;
mod sorted;
mod write;

pub use crate::backup::{Damage, Durability, OpenError, Options, Torn};
pub use fence::FENCE_FRAMES;
pub use leases::BACKUP_LEASE;
pub use read::{HOLD, MAX_ANSWERS, MAX_CACHED, MAX_READERS};
pub use report::OpenReport;
pub use write::{MAX_STAGED, MAX_WAITING};

use crate::answers::{answer, answer_text};
use crate::backup::{Backup, Failed, Progress};
use crate::bodies::ResponseBuffers;
use crate::master::KnownServers;
use crate::member::ReplicaStore;
use crate::node::Service;
use fence::Fences;
use kept::Replica;
use leases::Leases;
use read::Reads;
use report::Counts;
use sprat_disk::Disk;
use sprat_net::{Figure, Nanos, Sources};
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, Repeat, RequestId, Response};
use sprat_wire::op::{BackupRequest, ReplicaId, Request, Status};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};
use write::{PendingWrites, Piece};

/// The longest time for which bytes are only in this process's memory under
/// [`Durability::Buffered`], if the disk is fast enough.
pub const FLUSH: Duration = Duration::from_millis(50);

/// When this number of bytes is staged, a commit begins even before [`FLUSH`] is over.
const BULK_BYTES: usize = 1 << 20;

/// The segment number of a fence's record. Segments of logs are numbered from 1.
pub const FENCE: u64 = 0;

/// The largest number of frames in a file of replicas (4.7 TB): the records of all of them fit into
/// one reply. A larger configured limit is lowered to this.
pub const MAX_FRAMES: u32 = 500_000;
const _: () = assert!(MAX_FRAMES as usize * 16 + 16 <= sprat_wire::MAX_MESSAGE);

/// Retry delay, in microseconds, in replies while a limit is reached.
const BUSY_MICROS: u32 = 1_000;

/// The replicas that a node keeps for other masters: the service that answers [`BackupRequest`]s.
///
/// The node's loop drives it, as part of a [`member`](crate::member): requests come in through
/// [`Handler::request`], [`poll`](Service::poll) writes, reads and completes pending requests, and
/// the loop sleeps until [`next_deadline`](Service::next_deadline) or an event on
/// [`sources`](Service::sources). It never blocks, except in [`open`](Self::open) and
/// [`close`](Self::close). Its memory is bounded: staged writes by [`MAX_STAGED`], replicas that
/// are read by [`MAX_CACHED`], replies by [`MAX_ANSWERS`]. A request beyond a limit waits, is
/// answered with a retry, or is refused.
pub struct Replicas<D: Disk> {
    backup: Backup<D>,
    durability: Durability,
    /// The replicas by [`ReplicaId::word`], the id as one number, so that replicas of one master
    /// are adjacent. There is at most one replica for each frame.
    kept: BTreeMap<u64, Replica>,
    fences: Fences,
    leases: Leases,
    waiting: PendingWrites,
    reads: Reads,
    /// Replies to requests that were pending, still to be sent.
    ready: VecDeque<(RequestId, Outcome<u32>)>,
    bodies: ResponseBuffers,
    /// When a commit of the staged bytes begins at the latest.
    flush_at: Option<Nanos>,
    /// Whether the last commit could not take all staged bytes.
    left_over: bool,
    /// What has become durable in this call of `poll`; empty between calls.
    progressed: Vec<Progress>,
    counts: Counts,
}

impl<D: Disk> Replicas<D> {
    /// Opens the file of replicas on `disk`, or creates it: see [`Backup::open_replicas`]. At most
    /// [`MAX_FRAMES`] of [`Options::max_frames`] are used, of which [`FENCE_FRAMES`] are reserved
    /// for fences. Blocks while it reads the whole file once, for about a second per GB.
    ///
    /// # Errors
    /// [`OpenError`] when the file's header is damaged; when the file is cut short, of a newer
    /// format, of another cluster or server, or has segments of another size; or when it cannot be
    /// read or written.
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
            leases: Leases::default(),
            waiting: PendingWrites::default(),
            reads: Reads::default(),
            ready: VecDeque::new(),
            bodies: ResponseBuffers::default(),
            flush_at: None,
            left_over: false,
            progressed: Vec::new(),
            counts: Counts::default(),
        };
        for stored in &found.stored {
            replicas.add_found(stored.replica, Replica::found(stored));
        }
        for damage in &found.damaged {
            tracing::error!("{damage}");
            replicas.counts.damaged += 1;
            if let Some(replica) = damage.replica {
                replicas.add_found(replica, Replica::damaged(damage));
            }
        }
        if let Some(first) = found.torn.first() {
            let count = found.torn.len();
            tracing::warn!(
                "{count} replicas are incomplete because a write was not finished; the first: \
                 {first}"
            );
        }
        replicas.drop_idle_fences();
        let report = OpenReport::new(found, &replicas);
        Ok((replicas, report))
    }

    /// Counts leases by a clock that started at `begun`, when the node's clock started.
    #[must_use]
    pub fn clocked(mut self, begun: Instant) -> Self {
        self.leases.use_clock(begun);
        self
    }

    /// Adds a replica or fence that was found on disk.
    fn add_found(&mut self, replica: ReplicaId, kept: Replica) {
        if replica.segment == FENCE {
            self.fences.found(replica.master);
        } else {
            self.kept.insert(replica.word(), kept);
        }
    }

    /// Writes everything to the disk and marks the file as closed cleanly, so that its open
    /// replicas are not unsure at the next start. Blocks.
    ///
    /// # Errors
    /// [`Failed`] when a request to the disk fails or has failed before. The file is not marked as
    /// closed then.
    pub fn close(self, now: Nanos) -> Result<(), Failed> {
        self.backup.close(now, |_| {})
    }

    /// Returns the failure that ended writing; `None` while writes are accepted.
    #[must_use]
    pub fn failure(&self) -> Option<&Failed> {
        self.backup.failure()
    }

    /// Returns the replicas that are whole on disk, and the range of the file in which each lies.
    pub fn whole(&self) -> impl Iterator<Item = (ReplicaId, Range<u64>)> + '_ {
        let whole = self.kept.iter().filter(|(_, kept)| kept.is_whole());
        whole.filter_map(|(&word, kept)| {
            let begin = self.backup.offset(word)?;
            Some((ReplicaId::of_word(word), begin..begin + kept.framed()))
        })
    }

    /// Carries out a request.
    fn dispatch(&mut self, now: Nanos, id: RequestId, request: &BackupRequest<'_>) -> Outcome<u32> {
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
            BackupRequest::Fence { master: 0 } | BackupRequest::Lease { master: 0 } => {
                self.malformed("servers are numbered from 1")
            }
            BackupRequest::Fence { master } => self.fence(now, id, master),
            BackupRequest::Lease { master } => self.grant_lease(now, master),
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

    /// Makes sure that a commit takes the staged bytes at `at` or earlier.
    fn flush_by(&mut self, at: Nanos) {
        self.flush_at = Some(self.flush_at.map_or(at, |other| other.min(at)));
    }

    /// Begins a commit if one is due and none is under way.
    fn commit(&mut self, now: Nanos) -> Result<(), Failed> {
        let due = self.left_over
            || self.flush_at.is_some_and(|at| at <= now)
            || self.backup.staged_bytes() >= BULK_BYTES;
        if due && !self.backup.is_committing() {
            self.backup.submit(now)?;
            self.flush_at = None;
            // Segments that got no frame yet are written when the file has grown.
            self.left_over = self.backup.has_staged();
        }
        Ok(())
    }

    /// Handles what the disk has completed, and begins the next commit.
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

    /// Notes that more of a replica, or a fence, is on disk.
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
            Ok(Request::Backup(request)) => self.dispatch(now, id, &request),
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
        worked |= self.answer_fences(now);
        worked |= self.serve(now);
        worked
    }

    fn take_ready(&mut self) -> Option<(RequestId, Outcome<u32>)> {
        self.ready.pop_front()
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let mut next = self.backup.next_deadline();
        // A commit that is under way wakes the node when it ends.
        if let Some(flush) = self.flush_at
            && !self.backup.is_committing()
            && self.failure().is_none()
        {
            next = next.min(flush);
        }
        next = next.min(self.reads.next_deadline());
        Some(self.fences_deadline().map_or(next, |end| next.min(end)))
    }

    fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        sources.extend(self.backup.poll_fd());
    }
}

impl<D: Disk> ReplicaStore for Replicas<D> {
    fn set_servers(&mut self, servers: KnownServers) {
        let KnownServers { members, masters, below } = servers;
        self.leases.set_members(members);
        let is_needed = |master: u32| master >= below || masters.binary_search(&master).is_ok();
        let mut gone: Vec<ReplicaId> =
            self.kept.keys().map(|&word| ReplicaId::of_word(word)).collect();
        gone.retain(|replica| !is_needed(replica.master));
        for replica in gone {
            self.free(replica);
        }
    }

    fn report_figures(&self) -> Vec<Figure> {
        self.figures()
    }
}
