//! Group commits: submits what was appended, and handles what the disk has completed.

use super::config::GROW_AGAIN;
use super::frames::FrameSlot;
use super::growth::{DiskFull, GROW_FRAMES, Growth, Next, Purpose, is_full};
use super::owner::Owner;
use super::reading::MAX_READS;
use super::retire::MAX_RETIRING_WRITES;
use super::tickets::{
    TICKET_GROW, TICKET_HEADER, TICKET_RAISE, TICKET_READ, TICKET_RETIRE, TICKET_SYNC,
    TICKET_WRITE, of_frame,
};
use super::{Backup, DiskOperation, Durability, Failed, Progress, Replica, SYNC_INTERVAL};
use sprat_disk::{Completion, Disk, Op};
use sprat_net::Nanos;

/// The largest number of writes that one commit has in flight at a time.
const MAX_COMMIT_WRITES: usize = 16;
/// In addition to a commit's writes, marks and reads there can be one sync, one step of growth, and
/// one write of a file header.
const _: () =
    assert!(MAX_COMMIT_WRITES + MAX_RETIRING_WRITES + MAX_READS + 3 <= sprat_disk::MAX_IN_FLIGHT);

impl<D: Disk> Backup<D> {
    /// Starts a commit of what was appended, unless one is under way; returns whether it did.
    /// Segments that begin, and for which no frame is ready, wait for a later commit.
    ///
    /// # Errors
    /// [`Failed`] when a request to the disk fails or has failed before.
    pub fn submit(&mut self, now: Nanos) -> Result<bool, Failed> {
        self.check()?;
        if self.is_committing() {
            return Ok(false);
        }
        let mut ready = self.frames.ready();
        // The queue gets the segments that have a frame first, then the survivors that begin, then
        // the heads that begin, because a head may list the others.
        for pass in 0..3 {
            for replica in self.open.iter().filter(|replica| replica.is_staged() && !replica.freed)
            {
                let begins = replica.frame.is_none();
                if pass != usize::from(begins) + usize::from(begins && replica.head) {
                    continue;
                }
                if begins {
                    // A segment without a frame waits until the file has grown; segments that have
                    // frames proceed.
                    let Some(left) = ready.checked_sub(1) else { break };
                    ready = left;
                }
                self.queue.push_back(replica.segment);
            }
        }
        let any = !self.queue.is_empty();
        self.advance(now);
        self.grow();
        Ok(any)
    }

    /// Returns whether a commit is under way.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        !self.queue.is_empty() || self.writing > 0
    }

    /// Returns whether nothing is under way and nothing is waiting.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.is_busy() && !self.open.iter().any(Replica::is_staged)
    }

    /// Returns whether an operation is under way, or will begin without a further
    /// [`submit`](Self::submit).
    fn is_busy(&self) -> bool {
        self.is_committing()
            || self.syncing
            || self.dirty
            || self.growth.is_some()
            || self.incarnations.raising()
            || !self.retiring.is_empty()
            || !self.reading.is_idle()
    }

    /// Returns whether nothing can happen before a full disk has room again: all that waits are
    /// segments without a frame, and no frame is ready.
    pub(super) fn lacks_only_room(&self) -> bool {
        let mut staged = self.open.iter().filter(|replica| replica.is_staged());
        self.disk_full.is_some()
            && !self.is_busy()
            && self.frames.ready() == 0
            && staged.all(|replica| replica.frame.is_none())
    }

    /// Starts as many of the commit's writes as may be under way together, or the sync for which
    /// the next head waits.
    fn advance(&mut self, now: Nanos) {
        while self.writing < MAX_COMMIT_WRITES {
            let Some(&segment) = self.queue.front() else { return };
            let index = self.index(segment);
            let replica = &self.open[index];
            if replica.head && replica.frame.is_none() {
                if self.writing > 0 {
                    return;
                }
                if self.dirty || self.syncing {
                    self.sync(now);
                    return;
                }
            }
            let frame = match self.open[index].frame {
                Some(frame) => frame,
                None => {
                    let Some(incarnation) = self.take_incarnation() else { return };
                    let frame = self
                        .frames
                        .assign(segment, incarnation)
                        .expect("counted when the commit began");
                    self.open[index].settle(&self.geometry, frame, incarnation);
                    frame
                }
            };
            let replica = &mut self.open[index];
            if replica.head {
                self.newest = Some((segment, replica.log_end));
            }
            self.staged -= replica.staged_bytes();
            let outgoing = replica.dispatch(&self.geometry);
            let offset = self.header.frame_offset(frame) + outgoing.offset as u64;
            let durable = self.durability == Durability::Sync;
            let op = Op::Write { buffer: outgoing.buffer, len: outgoing.len, offset, durable };
            self.disk.submit(TICKET_WRITE + u64::from(frame), op);
            self.queue.pop_front();
            self.writing += 1;
        }
    }

    /// Takes the incarnation of a segment that gets a frame; `None` when the file's header must be
    /// written first. A segment takes its incarnation only then, so that successive users of a
    /// frame have ascending incarnations.
    fn take_incarnation(&mut self) -> Option<u32> {
        match self.owner {
            Owner::Log => Some(self.incarnations.first()),
            Owner::Replicas => self.incarnations.take(),
        }
    }

    /// Returns the index of an open segment.
    fn index(&self, segment: u64) -> usize {
        self.position(segment).expect("an open segment")
    }

    /// Begins a sync, unless one is under way.
    pub(super) fn sync(&mut self, now: Nanos) {
        if self.syncing {
            return;
        }
        (self.syncing, self.dirty, self.synced_at) = (true, false, now);
        self.frames.sync_begun();
        for replica in &mut self.open {
            replica.syncing = replica.reported;
        }
        self.disk.submit(TICKET_SYNC, Op::Sync);
    }

    /// Begins to grow the file when few frames are ready.
    pub(super) fn grow(&mut self) {
        let left = self.max_frames.saturating_sub(self.frames.total);
        if self.growth.is_some() || self.frames.ready() >= self.owner.spare_frames() || left == 0 {
            return;
        }
        if self.disk_full.as_ref().is_some_and(|full| full.retry_at.is_some()) {
            return;
        }
        let first = self.frames.total;
        let frames = first..first + left.min(self.grow_by);
        let bytes = self.header.frame_offset(frames.start)..self.header.frame_offset(frames.end);
        let (growth, op) = Growth::begin(frames, bytes);
        self.growth = Some(growth);
        self.disk.submit(TICKET_GROW, op);
    }

    /// Handles what the disk has completed, passes what has become durable to `report`, and starts
    /// what is due. Makes no system call when there is nothing to do.
    ///
    /// # Errors
    /// [`Failed`] when a request to the disk fails or has failed before. Reads continue
    /// nevertheless.
    pub fn poll(&mut self, now: Nanos, mut report: impl FnMut(Progress)) -> Result<(), Failed> {
        while let Some(completion) = self.disk.poll() {
            let (kind, frame) = of_frame(completion.ticket);
            if kind == TICKET_READ {
                self.read_completed(frame, completion);
            } else if self.failure.is_none()
                && let Some(progress) = self.complete(completion)?
            {
                report(progress);
            }
        }
        self.check()?;
        let starved = self.frames.ready() == 0 && self.frames.has_freed();
        if self.dirty && !self.syncing && (now >= self.synced_at + SYNC_INTERVAL || starved) {
            self.sync(now);
        }
        self.advance(now);
        self.retire();
        self.retry_growth(now);
        self.grow();
        self.continue_growth();
        self.raise();
        Ok(())
    }

    /// Retries the growth of a file for which the disk had no room, and ends the state of a full
    /// disk once enough frames are ready.
    fn retry_growth(&mut self, now: Nanos) {
        let Some(full) = &mut self.disk_full else { return };
        if self.frames.ready() >= self.owner.spare_frames() {
            tracing::info!("{} has frames again", self.disk.name());
            self.disk_full = None;
        } else if self.growth.is_none() && *full.retry_at.get_or_insert(now + GROW_AGAIN) <= now {
            full.retry_at = None;
        }
    }

    /// Handles that the disk has no room for the frames that the file was to grow by.
    fn handle_full_disk(&mut self, offset: u64, source: std::io::Error) {
        let release = self.growth.as_mut().expect("growing").abandon();
        self.growth_next = Some(release);
        if self.disk_full.is_none() && self.grow_by == 1 {
            let (file, total) = (self.disk.name(), self.frames.total);
            tracing::error!(
                "the disk is full: {file} stays at {total} segment frames until there is space \
                 ({source})"
            );
        }
        if self.grow_by == 1 {
            self.disk_full = Some(DiskFull { offset, source, retry_at: None });
        }
    }

    /// Continues the growth, alternating with commits. A write behind a file's end locks the file.
    /// Growth that wrote piece after piece would lock commits out for the 4 ms after which the
    /// kernel hands the lock over.
    fn continue_growth(&mut self) {
        // Two headers under way at once could both be torn.
        if (!self.is_committing() || self.written_since_growth)
            && !self.incarnations.raising()
            && let Some(op) = self.growth_next.take()
        {
            self.written_since_growth = false;
            self.disk.submit(TICKET_GROW, op);
        }
    }

    /// Handles a completed operation.
    pub(super) fn complete(&mut self, completion: Completion) -> Result<Option<Progress>, Failed> {
        let Completion { ticket, result, buffer } = completion;
        match ticket {
            TICKET_SYNC => {
                result.map_err(|error| self.fail(DiskOperation::Sync, 0, error))?;
                self.syncing = false;
                self.frames.sync_done();
                for replica in &mut self.open {
                    replica.durable = replica.durable.max(replica.syncing);
                }
                Ok(None)
            }
            TICKET_GROW => {
                let growth = self.growth.as_mut().expect("growing");
                if let Err(error) = result {
                    let offset = growth.offset();
                    match growth.purpose() {
                        Purpose::Reserve if is_full(&error) => {
                            self.handle_full_disk(offset, error);
                            return Ok(None);
                        }
                        // Blocks that cannot be released are lost to other users of the disk, but
                        // harm nothing here.
                        Purpose::Release => {
                            tracing::warn!("cannot shorten {}: {error}", self.disk.name())
                        }
                        Purpose::Reserve | Purpose::Finish => {
                            return Err(self.fail(DiskOperation::Grow, offset, error));
                        }
                    }
                }
                let growth = self.growth.as_mut().expect("growing");
                match growth.advance(buffer) {
                    Next::Do(op) => self.growth_next = Some(op),
                    Next::Header(frames) => {
                        self.header.frames = frames;
                        self.header.incarnation += 1;
                        self.growth_next = Some(self.header_write());
                    }
                    Next::Ready(frames) => {
                        self.frames.add(frames);
                        self.growth = None;
                        (self.disk_full, self.grow_by) = (None, GROW_FRAMES);
                    }
                    Next::GivenUp => {
                        self.growth = None;
                        self.grow_by = 1;
                    }
                }
                Ok(None)
            }
            TICKET_HEADER => {
                result.map_err(|error| self.fail(DiskOperation::Header, 0, error))?;
                Ok(None)
            }
            TICKET_RAISE => {
                result.map_err(|error| self.fail(DiskOperation::Header, 0, error))?;
                self.incarnations.raise_completed();
                Ok(None)
            }
            _ => {
                let (kind, frame) = of_frame(ticket);
                if let Err(error) = result {
                    return Err(self.fail(
                        DiskOperation::Write,
                        self.header.frame_offset(frame),
                        error,
                    ));
                }
                let buffer = buffer.expect("a write returns its buffer");
                if kind == TICKET_RETIRE {
                    self.mark_completed(frame, buffer);
                    return Ok(None);
                }
                self.pool.give(buffer);
                self.writing -= 1;
                self.written_since_growth = true;
                Ok(self.write_completed(frame))
            }
        }
    }

    /// Handles the completed write of an open segment.
    fn write_completed(&mut self, frame: u32) -> Option<Progress> {
        let settled = self.durability == Durability::Sync;
        self.dirty |= !settled;
        let index = self
            .open
            .iter()
            .position(|replica| replica.frame == Some(frame))
            .expect("it was being written");
        let replica = &mut self.open[index];
        let (up_to, sealed) = replica.in_flight.take().expect("a write was under way");
        if replica.freed {
            let incarnation = replica.incarnation;
            self.open.remove(index);
            self.release_frame(FrameSlot { frame, incarnation });
            return None;
        }
        replica.reported = up_to;
        if settled {
            replica.durable = up_to;
        }
        let framed = u32::try_from(replica.position()).expect("within a frame");
        let (segment, incarnation) = (replica.segment, replica.incarnation);
        if sealed {
            self.open.remove(index);
        }
        Some(Progress { segment, up_to, framed, incarnation, sealed })
    }
}
