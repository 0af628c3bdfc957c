//! The backup: keeps a master's segments on a local disk, and gives them back after a restart.
//!
//! # How the master drives it
//! A [`Backup`] is a state machine on the node's thread. It never blocks; the owner turns it:
//! 1. `log.next_pending()` gives bytes that are in memory and not on disk, oldest segment first;
//!    [`Backup::append`] takes them. Before the log appends an entry it asks [`Backup::room`] and seals
//!    the head when the entry would not fit: many small commits use up a frame before 8 MB of log are in it.
//! 2. [`Backup::submit`] starts a *group commit* of everything taken so far, if none is under way. What is
//!    appended meanwhile makes up the next: the busier the disk, the larger the commits.
//! 3. [`Backup::poll`] tells, as [`Progress`], up to where each segment is durable: `log.mark_durable(segment,
//!    up_to)`, and the answers that waited for it may leave.
//! 4. `log.take_reclaimable()` gives segments that a durable head no longer lists; [`Backup::free`] takes their frames back.
//!
//! When there is nothing to do, sleep on [`Backup::poll_fd`], until [`Backup::next_deadline`] at most.
//! [`Backup::open`] replays what is there first; [`Backup::close`] ends in order.
//!
//! # What order is kept on disk
//! Writes of one commit go out together, one chunk a segment, with one exception: the first chunk of a *head*
//! is written only when everything taken before is durable (on the medium, also under
//! [`Durability::Buffered`], at the price of one sync a segment). So when a head is on disk, every segment
//! that its digest lists is there, whole and sealed; only the newest head can be unfinished. A head must
//! therefore be sealed, in what was appended, before the next one is.
//!
//! Frames of freed segments are written again at once, under `Buffered` after the next sync: until then a
//! power failure could bring back the head that still lists them.
//!
//! # When the disk refuses
//! Any failed write or sync, or a full disk, poisons the backup: [`Failed`] is kept, every later call returns it, and
//! nothing more is reported durable until the log is opened again. A failed sync is not tried again: the
//! kernel forgets which pages it could not write. Replaying tells what really is there.
//!
//! # What replay cannot tell
//! See [`ReplayReport::cut`].

mod config;
mod failure;
mod frames;
mod growth;
mod open;
mod replay;
mod replica;
mod report;
mod survey;
mod walk;

pub use config::{Durability, MAX_OPEN, MAX_REPLAY_THREADS, Options, SPARE_FRAMES, SYNC_INTERVAL};
pub use failure::{AppendError, Failed, Operation};
pub use frames::FrameCount;
pub use open::OpenError;
pub use report::{Corruption, Cut, Garbage, ReplayReport, ReplayedSegment};

use frames::Frames;
use growth::{GROW_FRAMES, Growth, Next};
use replica::{Geometry, Pool, Replica};
use sprat_disk::{Completion, Disk, Op};
use sprat_net::Nanos;
use sprat_wire::frame::{FILE_HEADERS, FileHeader};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Most writes of one commit under way at a time.
const MAX_COMMIT_WRITES: usize = 16;
const _: () = assert!(MAX_COMMIT_WRITES + 3 <= sprat_disk::MAX_IN_FLIGHT);

/// Tickets of operations; that of a write is [`TICKET_WRITE`] and its segment together.
const TICKET_SYNC: u64 = 1;
const TICKET_GROW: u64 = 2;
const TICKET_HEADER: u64 = 3;
const TICKET_WRITE: u64 = 16;

/// Bytes of a segment have become durable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// The segment.
    pub segment: u64,
    /// Its log is durable up to here, bytes.
    pub up_to: u32,
    /// Whether it is sealed, durably.
    pub sealed: bool,
}

/// A log file, open for appending. See the [module](self).
pub struct Backup<D: Disk> {
    disk: D,
    header: FileHeader,
    geometry: Geometry,
    durability: Durability,
    max_frames: u32,
    frames: Frames,
    /// Segments not yet sealed and durable, in the order in which they were begun; at most [`MAX_OPEN`].
    open: Vec<Replica>,
    pool: Pool,
    /// Segments of the commit under way that are still to be written, in order.
    queue: VecDeque<u64>,
    /// Writes under way.
    writing: usize,
    growth: Option<Growth>,
    /// The growth's next operation, held until a commit has come between.
    growth_next: Option<Op>,
    /// A commit's write has ended since the growth's last operation began.
    written_since_growth: bool,
    /// Something is with the kernel and not known to be on the medium, or a freed frame waits for a sync.
    dirty: bool,
    /// A sync is under way.
    syncing: bool,
    /// When the last sync was begun.
    synced_at: Nanos,
    /// The newest head, and the bytes of log in it.
    newest: Option<(u64, u32)>,
    failure: Option<Failed>,
}

impl<D: Disk> Backup<D> {
    /// Takes `slices`, the bytes of `segment`'s log from `offset` on, for the next commit; `sealed` when
    /// they are its last. Offset zero begins the segment; the bytes must then hold its whole
    /// header entry. A call without bytes only seals.
    ///
    /// # Errors
    /// [`AppendError`]; nothing was taken then.
    ///
    /// # Panics
    /// When the bytes do not follow those taken before, the segment is sealed, or a head begins before the
    /// one before it is sealed: the owner lost track.
    pub fn append<'a, I>(&mut self, segment: u64, offset: u32, slices: I, sealed: bool) -> Result<(), AppendError>
    where
        I: IntoIterator<Item = &'a [u8]>,
        I::IntoIter: Clone,
    {
        self.check()?;
        let slices = slices.into_iter();
        let asked: usize = slices.clone().map(<[u8]>::len).sum();
        let room = self.room(segment);
        if asked > room {
            return Err(AppendError::NoRoom { segment, room, asked });
        }
        if asked == 0 && !sealed {
            return Ok(());
        }
        let index = match self.open.iter().position(|replica| replica.segment == segment) {
            Some(index) => index,
            None => self.begin(segment, slices.clone().next().unwrap_or(&[]))?,
        };
        let replica = &mut self.open[index];
        assert!(replica.log_end == offset, "segment {segment} continues at {}, not {offset}", replica.log_end);
        assert!(!replica.sealed && !replica.freed, "segment {segment} is sealed or freed");
        replica.append(&self.geometry, &mut self.pool, slices, sealed);
        Ok(())
    }

    /// Begins a segment; returns its place among the open ones.
    fn begin(&mut self, segment: u64, first: &[u8]) -> Result<usize, AppendError> {
        assert!(segment != 0 && segment < u64::MAX - TICKET_WRITE, "segment {segment} is out of range");
        if self.open.len() == MAX_OPEN {
            return Err(AppendError::Behind);
        }
        assert!(self.frames.live().all(|live| live != segment), "segment {segment} is on disk already");
        let count = self.frame_count();
        if count.live >= count.max {
            return Err(AppendError::NoFrame(count.max));
        }
        let replica = Replica::new(segment, first);
        let unsealed = self.open.iter().find(|other| other.head && !other.sealed);
        assert!(!replica.head || unsealed.is_none(), "head {segment} begins before the one before it is sealed");
        self.open.push(replica);
        Ok(self.open.len() - 1)
    }

    /// Bytes of log that `segment` can still take, if they come in at most two calls of
    /// [`append`](Self::append); those of a whole segment when it is not begun, none when it is sealed.
    #[must_use]
    pub fn room(&self, segment: u64) -> usize {
        match self.open.iter().find(|replica| replica.segment == segment) {
            Some(replica) => replica.room(&self.geometry),
            None => replica::room(&self.geometry, 0, 0),
        }
    }

    /// Starts a commit of everything appended, unless one is under way; returns whether it did.
    ///
    /// # Errors
    /// [`Failed`], now or earlier.
    pub fn submit(&mut self, now: Nanos) -> Result<bool, Failed> {
        self.check()?;
        if self.is_committing() {
            return Ok(false);
        }
        let mut ready = self.frames.ready();
        // Segments that have a frame go first, then those that begin, heads after what they may list.
        for pass in 0..3 {
            for replica in self.open.iter().filter(|replica| replica.is_staged() && !replica.freed) {
                let begins = replica.frame.is_none();
                if pass != usize::from(begins) + usize::from(begins && replica.head) {
                    continue;
                }
                if begins {
                    // Without a frame it waits for the file to grow, and what is on disk already goes on.
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

    /// Whether a commit is under way.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        !self.queue.is_empty() || self.writing > 0
    }

    /// Whether nothing is under way and nothing waits to be.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let staged = self.open.iter().any(Replica::is_staged);
        !self.is_committing() && !staged && !self.syncing && !self.dirty && self.growth.is_none()
    }

    /// Starts as many writes of the commit as may be under way together.
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
            let replica = &mut self.open[index];
            let frame = match replica.frame {
                Some(frame) => frame,
                None => *replica.frame.insert(self.frames.assign(segment).expect("counted when the commit began")),
            };
            if replica.head {
                self.newest = Some((segment, replica.log_end));
            }
            let outgoing = replica.dispatch(&self.geometry);
            let offset = self.header.frame_offset(frame) + outgoing.offset as u64;
            let durable = self.durability == Durability::Sync;
            let op = Op::Write { buffer: outgoing.buffer, len: outgoing.len, offset, durable };
            self.disk.submit(TICKET_WRITE + segment, op);
            self.queue.pop_front();
            self.writing += 1;
        }
    }

    /// The place of an open segment.
    fn index(&self, segment: u64) -> usize {
        self.open.iter().position(|replica| replica.segment == segment).expect("an open segment")
    }

    /// Begins a sync, unless one is under way.
    fn sync(&mut self, now: Nanos) {
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
    fn grow(&mut self) {
        let left = self.max_frames.saturating_sub(self.frames.total);
        if self.growth.is_some() || self.frames.ready() >= SPARE_FRAMES || left == 0 {
            return;
        }
        let first = self.frames.total;
        let frames = first..first + left.min(GROW_FRAMES);
        let bytes = self.header.frame_offset(frames.start)..self.header.frame_offset(frames.end);
        let (growth, op) = Growth::begin(frames, bytes);
        self.growth = Some(growth);
        self.disk.submit(TICKET_GROW, op);
    }

    /// Takes note of what the disk has done, tells `report` what has become durable, and goes on with
    /// what is to be done. Makes no system call when there is nothing to do.
    ///
    /// # Errors
    /// [`Failed`], now or earlier.
    pub fn poll(&mut self, now: Nanos, mut report: impl FnMut(Progress)) -> Result<(), Failed> {
        self.check()?;
        while let Some(completion) = self.disk.poll() {
            if let Some(progress) = self.complete(completion)? {
                report(progress);
            }
        }
        let starved = self.frames.ready() == 0 && self.frames.has_freed();
        if self.dirty && !self.syncing && (now >= self.synced_at + SYNC_INTERVAL || starved) {
            self.sync(now);
        }
        self.advance(now);
        self.grow();
        self.continue_growth();
        Ok(())
    }

    /// Goes on growing, in turns with commits: writing behind a file's end locks the file, and whoever writes piece
    /// upon piece there keeps others out, for the 4 ms after which the kernel sees to it that they get their turn.
    fn continue_growth(&mut self) {
        if (!self.is_committing() || self.written_since_growth)
            && let Some(op) = self.growth_next.take()
        {
            self.written_since_growth = false;
            self.disk.submit(TICKET_GROW, op);
        }
    }

    /// One operation is done.
    fn complete(&mut self, completion: Completion) -> Result<Option<Progress>, Failed> {
        let Completion { ticket, result, buffer } = completion;
        match ticket {
            TICKET_SYNC => {
                result.map_err(|error| self.fail(Operation::Sync, 0, error))?;
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
                    return Err(self.fail(Operation::Grow, offset, error));
                }
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
                    }
                }
                Ok(None)
            }
            TICKET_HEADER => {
                result.map_err(|error| self.fail(Operation::Header, 0, error))?;
                Ok(None)
            }
            _ => {
                let segment = ticket - TICKET_WRITE;
                let index = self.index(segment);
                if let Err(error) = result {
                    let frame = self.open[index].frame.expect("it was written to");
                    return Err(self.fail(Operation::Write, self.header.frame_offset(frame), error));
                }
                self.pool.give(buffer.expect("a write returns its buffer"));
                self.writing -= 1;
                self.written_since_growth = true;
                Ok(self.written(index))
            }
        }
    }

    /// The write of an open segment is done.
    fn written(&mut self, index: usize) -> Option<Progress> {
        let settled = self.durability == Durability::Sync;
        self.dirty |= !settled;
        let replica = &mut self.open[index];
        let (up_to, sealed) = replica.in_flight.take().expect("a write was under way");
        let segment = replica.segment;
        if replica.freed {
            self.open.remove(index);
            self.frames.release(segment, settled);
            return None;
        }
        replica.reported = up_to;
        if settled {
            replica.durable = up_to;
        }
        if sealed {
            self.open.remove(index);
        }
        Some(Progress { segment, up_to, sealed })
    }

    /// Gives up a segment: a durable head no longer lists it, or it was never listed.
    pub fn free(&mut self, segment: u64) {
        let settled = self.durability == Durability::Sync;
        if let Some(index) = self.open.iter().position(|replica| replica.segment == segment) {
            self.queue.retain(|queued| *queued != segment);
            if self.open[index].in_flight.is_some() {
                self.open[index].freed = true;
                return;
            }
            self.open.remove(index);
        }
        self.dirty |= !settled;
        self.frames.release(segment, settled);
    }

    /// Remembers a failure for good.
    fn fail(&mut self, operation: Operation, offset: u64, error: std::io::Error) -> Failed {
        let failed = Failed { operation, file: self.disk.name(), offset, source: Arc::new(error) };
        self.failure.get_or_insert(failed).clone()
    }

    fn check(&self) -> Result<(), Failed> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// The failure that ended writing, if one has.
    #[must_use]
    pub fn failure(&self) -> Option<&Failed> {
        self.failure.as_ref()
    }

    /// How many frames are in use.
    #[must_use]
    pub fn frame_count(&self) -> FrameCount {
        let waiting = self.open.iter().filter(|replica| replica.frame.is_none()).count();
        self.frames.count(self.max_frames, waiting)
    }

    /// Segments that have a frame, ascending.
    pub fn segments(&self) -> impl Iterator<Item = u64> + '_ {
        self.frames.live()
    }

    /// When [`poll`](Self::poll) must be called at the latest though the disk says nothing.
    #[must_use]
    pub fn next_deadline(&self) -> Nanos {
        if self.dirty && !self.syncing && self.failure.is_none() {
            self.synced_at + SYNC_INTERVAL
        } else {
            Nanos::NEVER
        }
    }

    /// Polls readable when the disk may have answered.
    #[must_use]
    pub fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.disk.poll_fd()
    }

    /// The disk, for a look at it.
    #[must_use]
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Commits what was appended, waits for the disk, and notes in the file that it was closed in order: the
    /// next start then takes every damage for damage, with no doubt about the last commit. Blocks.
    ///
    /// # Errors
    /// [`Failed`], now or earlier.
    pub fn close(mut self, now: Nanos, mut report: impl FnMut(Progress)) -> Result<(), Failed> {
        loop {
            self.submit(now)?;
            self.poll(now, &mut report)?;
            if self.dirty {
                self.sync(now);
            }
            if self.is_idle() {
                break;
            }
            self.wait()?;
        }
        self.header.clean = self.newest;
        self.header.frames = self.frames.total;
        self.header.incarnation += 1;
        self.write_header()
    }

    fn wait(&mut self) -> Result<(), Failed> {
        self.disk.wait().map_err(|error| self.fail(Operation::Wait, 0, error))
    }

    /// Writes the file header, durably. Blocks; nothing else may be under way.
    fn write_header(&mut self) -> Result<(), Failed> {
        let write = self.header_write();
        self.block_on(write)
    }

    /// A durable write of the file header over its older copy.
    fn header_write(&self) -> Op {
        let mut buffer = sprat_disk::AlignedBuf::zeroed(sprat_disk::BLOCK_BYTES);
        buffer.copy_from_slice(&self.header.encode());
        let copy = u64::from(self.header.incarnation) % FILE_HEADERS as u64;
        let (len, offset) = (buffer.len(), copy * sprat_disk::BLOCK_BYTES as u64);
        Op::Write { buffer, len, offset, durable: true }
    }

    /// Does one operation of opening or closing; nothing else may be under way.
    fn block_on(&mut self, op: Op) -> Result<(), Failed> {
        self.disk.submit(TICKET_HEADER, op);
        loop {
            self.wait()?;
            if let Some(completion) = self.disk.poll() {
                assert!(completion.ticket == TICKET_HEADER, "nothing else is under way");
                self.complete(completion)?;
                return Ok(());
            }
        }
    }
}
