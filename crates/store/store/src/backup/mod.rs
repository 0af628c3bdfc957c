//! The backup: keeps segments in a file on a local disk, and returns them after a restart.
//!
//! A file has one of two kinds of owner. It can hold a node's own *log*, described below: each head
//! is written after its predecessor, and the digest of the newest head lists the segments that
//! belong to the log. Or it can hold *replicas* of other masters' segments, on behalf of
//! [`replicas`](crate::replicas): see [Replicas](#replicas).
//!
//! # How the master drives it
//! A [`Backup`] is a state machine on the node's thread. It blocks only while it is opened or
//! closed. Its owner drives it:
//! 1. `log.next_pending()` returns bytes that are in memory and not on disk, oldest segment first;
//!    [`Backup::append`] takes them. Before the log appends an entry, the master checks
//!    [`Backup::room`], and seals the head if the entry would not fit. This can happen before 8 MB
//!    of log are in a frame, because each commit pads its chunk, and many small commits use the
//!    frame up.
//! 2. [`Backup::submit`] starts a *group commit* of what was taken so far, if none is under way.
//!    What is appended meanwhile forms the next commit: the busier the disk, the larger the
//!    commits. A segment that begins while no frame is ready waits until the file has grown.
//! 3. [`Backup::poll`] reports, as [`Progress`], up to where each segment is durable. The master
//!    passes that to `log.mark_durable(segment, up_to, sealed)`, and sends the replies that waited
//!    for it.
//! 4. `log.take_reclaimable()` returns segments that a durable head no longer lists;
//!    [`Backup::free`] takes their frames back.
//!
//! When there is nothing to do, sleep on [`Backup::poll_fd`] until [`Backup::next_deadline`] at
//! most. [`Backup::open`] first replays what is on disk. [`Backup::close`] ends cleanly.
//!
//! # The order on disk
//! The writes of one commit, one chunk for each segment, are submitted together, at most 16 at a
//! time. There is one exception: the first chunk of a *head* is written only when everything taken
//! before is durable on the medium. Under [`Durability::Buffered`] this costs one sync for each
//! head. So when a head is on disk, every segment that its digest lists is on disk too, whole and
//! sealed, and only the newest head can be unfinished. Therefore the log must seal a head, and the
//! backup must have taken the seal, before the next head begins.
//!
//! Frames of freed segments are reused at once. Under `Buffered` they are reused only after the
//! next sync, because until then a power failure could bring back the head that still lists them.
//!
//! # When the disk fails
//! A disk without room for a longer file stops only the file's growth (`growth`): the existing
//! frames stay in use, and frames that are freed are reused. Any failed write or sync poisons the
//! backup: it keeps the [`Failed`], every later append or commit returns it, and nothing more is
//! reported durable until the log is opened again. A failed sync is not repeated: it could succeed
//! the next time although data was lost, since the kernel forgets which pages it could not write.
//! The replay at the next opening finds out what really is on the disk.
//!
//! # What replay cannot distinguish
//! See [`ReplayReport::cut`].
//!
//! # Replicas
//! [`Backup::open_replicas`] opens a file of replicas. Where a log has a segment's id, such a file
//! has the replica's id, packed into [one number](sprat_wire::op::ReplicaId::word). Up to
//! [`MAX_OPEN_REPLICAS`] replicas are open at once. The file does not keep replicas in any order on
//! disk: their masters ensure the order that is needed. A start looks for no digest, but reports
//! every replica in the file. Therefore a replica that is freed is marked as free on disk before
//! its frame is used again. A replica from before the last restart can be [read](Backup::read) and
//! freed, but not appended to.

mod commit;
mod config;
mod contents;
mod current;
mod failure;
mod frames;
mod growth;
mod header;
mod incarnation;
mod mark;
mod open;
mod open_error;
mod owner;
mod reading;
mod replay;
mod replica;
mod report;
mod retire;
mod stored;
mod survey;
mod tickets;
mod walk;

pub use config::{
    Durability, GROW_AGAIN, MAX_OPEN, MAX_OPEN_REPLICAS, MAX_REPLAY_THREADS, Options, SPARE_FRAMES,
    SYNC_INTERVAL,
};
pub use contents::Contents;
pub use failure::{AppendError, DiskOperation, Failed};
pub use frames::FrameCount;
pub use open_error::OpenError;
pub use reading::{FrameRead, MAX_READS};
pub(crate) use replica::is_head;
pub use report::{Corruption, Cut, Garbage, ReplayReport, ReplayedSegment};
pub use stored::{Damage, Stored, StoredReport, Torn};

use frames::Frames;
use growth::{DiskFull, Growth};
use incarnation::Incarnations;
use owner::Owner;
use reading::Reading;
use replica::{Geometry, Pool, Replica};
use retire::Retiring;
use sprat_disk::{Disk, Op};
use sprat_net::Nanos;
use sprat_wire::frame::{FREED, FileHeader};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Reports that bytes of a segment are as durable as the log's [`Durability`] asks: they are on the
/// disk, or the kernel has them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// The segment.
    pub segment: u64,
    /// Offset in the segment up to which its bytes are written.
    pub up_to: u32,
    /// Bytes that the segment's chunks take of its frame so far.
    pub framed: u32,
    /// The incarnation of the segment's chunks, by which they differ from chunks of an earlier use
    /// of the frame.
    pub incarnation: u32,
    /// Whether the segment's seal is written as well.
    pub sealed: bool,
}

/// A file of a log, or of replicas, that is open for appending. See the [module](self).
pub struct Backup<D: Disk> {
    disk: D,
    owner: Owner,
    header: FileHeader,
    incarnations: Incarnations,
    geometry: Geometry,
    durability: Durability,
    max_frames: u32,
    frames: Frames,
    /// Segments that are not yet both sealed and durable, in the order in which they were begun.
    open: Vec<Replica>,
    pool: Pool,
    /// Bytes of log that were taken and that no write carries yet.
    staged: usize,
    /// Segments of the current commit that are still to be written, the next one first.
    queue: VecDeque<u64>,
    /// Number of writes under way.
    writing: usize,
    growth: Option<Growth>,
    /// The largest number of frames that the next growth adds.
    grow_by: u32,
    /// Set while the disk has no room for a longer file.
    disk_full: Option<DiskFull>,
    /// The next operation of the growth, held until a commit's write has ended in between.
    growth_next: Option<Op>,
    /// Whether a commit's write has ended since the growth's last operation began.
    written_since_growth: bool,
    /// Whether the kernel may have bytes that are not on the medium, or a freed frame waits for a
    /// sync.
    dirty: bool,
    /// Whether a sync is under way.
    syncing: bool,
    /// When the last sync began.
    synced_at: Nanos,
    /// The newest head, and the number of its bytes of log.
    newest: Option<(u64, u32)>,
    /// Frames that are being marked as free.
    retiring: Retiring,
    reading: Reading,
    failure: Option<Failed>,
}

impl<D: Disk> Backup<D> {
    /// Takes `slices`, the bytes of `segment`'s log from `offset` on, for the next commit. `sealed`
    /// says whether they are the segment's last bytes. A call with offset zero begins the segment,
    /// and its bytes must include the whole header entry. A call without bytes only seals.
    ///
    /// # Errors
    /// [`AppendError`] when an earlier request to the disk failed, the frame has no room for the
    /// bytes, too many segments are not finished on disk, or no frame is free. Nothing is appended
    /// then.
    ///
    /// # Panics
    /// When the bytes do not follow those taken before, the segment is already sealed, a segment
    /// begins that has a frame already, or a head begins before its predecessor is sealed: all of
    /// them faults of the owner.
    pub fn append<'a, I>(
        &mut self,
        segment: u64,
        offset: u32,
        slices: I,
        sealed: bool,
    ) -> Result<(), AppendError>
    where
        I: IntoIterator<Item = &'a [u8]>,
        I::IntoIter: Clone,
    {
        self.check()?;
        let slices = slices.into_iter();
        let len: usize = slices.clone().map(<[u8]>::len).sum();
        let fits = match self.position(segment) {
            Some(index) => self.open[index].fits(&self.geometry, len) || len == 0,
            None => len <= self.room(segment),
        };
        if !fits {
            return Err(AppendError::NoRoom { segment, room: self.room(segment), asked: len });
        }
        if len == 0 && !sealed {
            return Ok(());
        }
        let index = match self.position(segment) {
            Some(index) => index,
            None => self.begin(segment, slices.clone().next().unwrap_or(&[]), sealed)?,
        };
        let replica = &mut self.open[index];
        assert!(
            replica.log_end == offset,
            "segment {segment} continues at {}, not {offset}",
            replica.log_end
        );
        assert!(!replica.sealed, "segment {segment} is sealed");
        replica.append(&self.geometry, &mut self.pool, slices, sealed);
        self.staged += len;
        Ok(())
    }

    /// Begins a segment; returns its index among the open ones.
    fn begin(&mut self, segment: u64, first: &[u8], sealed: bool) -> Result<usize, AppendError> {
        assert!(segment != FREED, "segment {segment} stands for marks");
        let unsealed = if self.owner == Owner::Replicas && !sealed { self.unsealed() } else { 0 };
        if self.open.len() >= self.owner.max_open() || unsealed >= MAX_OPEN_REPLICAS {
            return Err(AppendError::Behind);
        }
        assert!(self.frames.of(segment).is_none(), "segment {segment} is on disk already");
        let count = self.frame_count();
        if count.live >= count.max {
            return Err(AppendError::NoFrame(count.max));
        }
        let marked_head = replica::is_head(first);
        let head = self.owner == Owner::Log && marked_head;
        let unsealed = self.open.iter().find(|other| other.head && !other.sealed);
        assert!(
            !head || unsealed.is_none(),
            "head {segment} begins before the one before it is sealed"
        );
        self.open.push(Replica::new(segment, self.incarnations.first(), head, marked_head));
        Ok(self.open.len() - 1)
    }

    /// Sets whether the chunks of an open replica are marked as a head's, beginning with the chunk
    /// that is being staged. On disk a replica counts as a head if any of its chunks is so marked.
    pub fn claim(&mut self, segment: u64, head: bool) {
        if let Some(at) = self.position(segment) {
            self.open[at].marked_head = head;
        }
    }

    /// Returns the index of an open segment. A segment that was freed while it was being written
    /// does not count.
    fn position(&self, segment: u64) -> Option<usize> {
        self.open.iter().position(|replica| replica.segment == segment && !replica.freed)
    }

    /// Returns the number of bytes of log that `segment` can still take, if they come in at most
    /// two calls of [`append`](Self::append). For a segment that has not begun it is the length of
    /// a whole segment; for a sealed one it is zero.
    #[must_use]
    pub fn room(&self, segment: u64) -> usize {
        match self.position(segment) {
            Some(index) => self.open[index].room(&self.geometry),
            None => replica::room(&self.geometry, 0, 0),
        }
    }

    /// Returns the number of segments that may still be appended to.
    #[must_use]
    pub fn unsealed(&self) -> usize {
        self.open.iter().filter(|replica| !replica.sealed && !replica.freed).count()
    }

    /// Returns whether anything waits for a commit, a seal without bytes included.
    #[must_use]
    pub fn has_staged(&self) -> bool {
        self.open.iter().any(|replica| replica.is_staged() && !replica.freed)
    }

    /// Returns the number of bytes of log that no write carries yet, and that would be lost if the
    /// process ended now.
    #[must_use]
    pub fn staged_bytes(&self) -> usize {
        self.staged
    }

    /// Frees a segment: a durable head no longer lists it, it was never listed, or its master no
    /// longer needs the replica. Does nothing if the file does not have the segment.
    pub fn free(&mut self, segment: u64) {
        let slot = self.frames.take(segment);
        if let Some(index) = self.position(segment) {
            self.queue.retain(|queued| *queued != segment);
            let replica = &mut self.open[index];
            self.staged -= replica.staged_bytes();
            if replica.in_flight.is_some() {
                replica.freed = true;
                return;
            }
            self.open.remove(index);
        }
        if let Some(slot) = slot {
            self.release_frame(slot);
        }
    }

    /// Records a failure permanently.
    fn fail(&mut self, operation: DiskOperation, offset: u64, error: std::io::Error) -> Failed {
        let failed = Failed { operation, file: self.disk.name(), offset, source: Arc::new(error) };
        self.failure.get_or_insert(failed).clone()
    }

    fn check(&self) -> Result<(), Failed> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Returns the failure that ended writing, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<&Failed> {
        self.failure.as_ref()
    }

    /// Returns how many frames are in use.
    #[must_use]
    pub fn frame_count(&self) -> FrameCount {
        let waiting = self.open.iter().filter(|replica| replica.frame.is_none()).count();
        // On a full disk the file cannot grow.
        let max_frames = if self.disk_full.is_some() { 0 } else { self.max_frames };
        self.frames.count(max_frames, waiting)
    }

    /// Returns whether the disk had no room when the file last had to grow, or had no room for the
    /// operation that failed. A file that cannot grow continues with the frames that it has, and
    /// grows when the disk has room again.
    #[must_use]
    pub fn disk_is_full(&self) -> bool {
        self.disk_full.is_some()
            || self.failure.as_ref().is_some_and(|failed| growth::is_full(&failed.source))
    }

    /// Returns the number of segments of a node's own log that the disk can hold for now, if the
    /// disk is full; otherwise `None`.
    #[must_use]
    pub fn segments_on_full_disk(&self) -> Option<usize> {
        self.disk_full.as_ref()?;
        Some((self.frames.total as usize).saturating_sub(config::SETTLING_FRAMES))
    }

    /// Returns the offset in the file at which a segment's frame begins, if it has one.
    #[must_use]
    pub fn offset(&self, segment: u64) -> Option<u64> {
        self.frames.of(segment).map(|slot| self.header.frame_offset(slot.frame))
    }

    /// Returns the segments that have a frame, ascending.
    pub fn segments(&self) -> impl Iterator<Item = u64> + '_ {
        self.frames.live()
    }

    /// Returns the time at which [`poll`](Self::poll) must be called at the latest, even if the
    /// disk completes nothing.
    #[must_use]
    pub fn next_deadline(&self) -> Nanos {
        if self.failure.is_some() {
            return Nanos::NEVER;
        }
        let sync =
            if self.dirty && !self.syncing { self.synced_at + SYNC_INTERVAL } else { Nanos::NEVER };
        let again = self.disk_full.as_ref().and_then(|full| full.retry_at);
        again.map_or(sync, |again| again.min(sync))
    }

    /// Returns a descriptor that becomes readable when the disk may have completed something.
    #[must_use]
    pub fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.disk.poll_fd()
    }

    /// Returns the file's name, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.disk.name()
    }

    /// Returns the disk, to inspect.
    #[must_use]
    pub fn disk(&self) -> &D {
        &self.disk
    }
}
