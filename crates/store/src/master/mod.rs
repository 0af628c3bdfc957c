//! The master: keeps objects in its log, answers for them, and makes every change durable before it is told.

mod body;
mod inbox;
mod operations;
mod pace;
mod stats;
mod timing;
mod waiting;
mod watchers;

pub use body::{Body, MAX_PINS};
pub use inbox::{Command, Inbox, Outbox, inbox};
pub use waiting::MAX_WAITING;

use crate::answers::answer_text;
use crate::backup::{AppendError, Backup, Failed};
use crate::node::Service;
use body::Held;
use pace::Pace;
use sprat_disk::Disk;
use sprat_log::{Full, Log, Ref};
use sprat_net::{Count, Figure, Nanos};
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, RequestId, Response};
use sprat_wire::entry::MAX_ENTRY;
use sprat_wire::op::{Request, Status};
use stats::Counts;
use std::os::fd::BorrowedFd;
use timing::{Mark, Timing};
use waiting::Waiting;
use watchers::Watchers;

/// Slices of cleaning in one piece of idle work.
const IDLE_SLICES: usize = 4;

/// What a server's coordinator has told it, and how far it has come with that.
#[derive(Default)]
struct Assigned {
    /// Ids of the tables it serves, ascending; `None` until the coordinator has been heard.
    tables: Option<Vec<u32>>,
    version: u64,
}

/// Requests between the look at a key's line in the hash table and the look at its entry.
const NEARER: usize = 4;

/// Hashes of the keys expected last.
#[derive(Default)]
struct Expected {
    hashes: [u64; NEARER],
    next: usize,
}

impl Expected {
    /// Remembers a hash and returns the one of [`NEARER`] calls ago.
    fn push(&mut self, hash: u64) -> u64 {
        self.next = (self.next + 1) % NEARER;
        std::mem::replace(&mut self.hashes[self.next], hash)
    }
}

/// The master of the tables assigned to it.
pub struct Master<D: Disk> {
    log: Log,
    backup: Option<Backup<D>>,
    assigned: Assigned,
    inbox: Inbox,
    waiting: Waiting,
    watchers: Watchers,
    pace: Pace,
    held: Held,
    expected: Expected,
    /// Used again by each scan.
    found: Vec<Ref>,
    counts: Counts,
    /// Log position behind the last removal: an object that is not found may have been removed up to there.
    removed_at: u64,
    /// Why no more writes are taken.
    stopped: Option<String>,
    /// How long requests and rounds took, if that is to be known.
    timing: Option<Timing>,
}

impl<D: Disk> Master<D> {
    /// A master of what is in `log`, which `backup` makes durable; without one, nothing is.
    /// It serves no table until [`Command::Serve`] comes through `inbox`.
    pub fn new(log: Log, backup: Option<Backup<D>>, inbox: Inbox) -> Self {
        Self {
            log,
            backup,
            assigned: Assigned::default(),
            inbox,
            waiting: Waiting::default(),
            watchers: Watchers::default(),
            pace: Pace::default(),
            held: Held::default(),
            expected: Expected::default(),
            found: Vec::new(),
            counts: Counts::default(),
            removed_at: 0,
            stopped: None,
            timing: None,
        }
    }

    /// The same; its requests and rounds are timed, and its counters tell (`request_p50_ns`, `longest_round_ns`, of those
    /// since they were last asked for; `thread_..`, how its thread fared). Takes 20 ms.
    #[must_use]
    pub fn timed(self) -> Self {
        Self { timing: Some(Timing::new(None)), ..self }
    }

    /// The same; its requests are counted, by the event that `count` counts on the calling thread, which is to be the node's. Its
    /// counters then tell means in thousandths (`request_events_milli`), the counting itself taken off, in place of times.
    #[must_use]
    pub fn counted(self, count: Count) -> Self {
        Self { timing: Some(Timing::new(Some(count))), ..self }
    }

    /// The log, for a look at it.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Why no more writes are taken; `None` while they are.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// Makes durable what is not yet, and closes the log in order. Blocks.
    ///
    /// # Errors
    /// [`Failed`]: then the next start finds a log that was not closed in order, and replays it as after a crash.
    pub fn close(mut self, now: Nanos) -> Result<(), Failed> {
        let Some(mut backup) = self.backup.take() else { return Ok(()) };
        while let Some(pending) = self.log.next_pending() {
            let (segment, up_to, sealed) = (pending.segment, pending.offset + pending.len, pending.sealed);
            match hand_over(&mut backup, &pending) {
                Ok(()) => self.log.mark_submitted(segment, up_to, sealed),
                Err(AppendError::Failed(failed)) => return Err(failed),
                // Nobody was told that these bytes are durable.
                Err(AppendError::NoRoom { .. } | AppendError::NoFrame(_) | AppendError::Behind) => break,
            }
        }
        backup.close(now, |_| {})
    }

    /// A request has come so far.
    #[inline]
    fn mark(&mut self, mark: Mark) {
        if let Some(timing) = &mut self.timing {
            timing.mark(mark);
        }
    }

    /// Whether the log is durable up to `position`.
    #[inline]
    fn is_durable(&self, position: u64) -> bool {
        self.backup.is_none() || position <= self.log.durable_position()
    }

    /// Hands to the disk what it has not got yet, and takes note of what it has done.
    fn replicate(&mut self, now: Nanos) -> Result<bool, String> {
        let Self { log, backup: Some(backup), pace, .. } = self else { return Ok(false) };
        let mut progressed = false;
        let progress = |progress: crate::backup::Progress| {
            log.mark_durable(progress.segment, progress.up_to as usize, progress.sealed);
            progressed = true;
        };
        backup.poll(now, progress).map_err(|failed| failed.to_string())?;
        while let Some(pending) = log.next_pending() {
            let (segment, up_to, sealed) = (pending.segment, pending.offset + pending.len, pending.sealed);
            match hand_over(backup, &pending) {
                Ok(()) => log.mark_submitted(segment, up_to, sealed),
                Err(AppendError::NoFrame(_) | AppendError::Behind) => break, // until the disk has made room
                Err(error) => return Err(error.to_string()),
            }
        }
        for segment in log.take_reclaimable() {
            backup.free(segment);
        }
        if !backup.is_committing() {
            pace.ended(now);
            if pace.may_begin(now) && backup.submit(now).map_err(|failed| failed.to_string())? {
                pace.begun(now);
            }
        }
        Ok(progressed)
    }

    /// Seals the head when its replica would not hold an entry of `len` bytes more: many small commits fill a frame
    /// before 8 MB of log are in it.
    ///
    /// # Errors
    /// [`Full::Replication`] when no other head can be opened before the disk has made room.
    #[inline]
    fn seal_if_short(&mut self, len: usize) -> Result<(), Full> {
        let Some(backup) = &self.backup else { return Ok(()) };
        let (segment, unsubmitted) = self.log.head_pending();
        if backup.room(segment) < unsubmitted + len && !self.log.roll_head() {
            return Err(Full::Replication);
        }
        Ok(())
    }

    /// From here on no write is taken, and none that waits is acknowledged.
    fn stop_writes(&mut self, reason: String) {
        tracing::error!("no more writes are taken: {reason}");
        self.stopped = Some(reason);
    }

    fn writes_stopped(&mut self) -> Outcome<Body> {
        let reason = self.stopped.clone().unwrap_or_default();
        answer_text(&mut self.held.made, Status::WritesStopped, &reason)
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Serve { version, mut tables } => {
                tables.sort_unstable();
                let gone: Vec<u32> = self.log.tables().filter(|id| tables.binary_search(id).is_err()).collect();
                for id in gone {
                    self.log.drop_table(id);
                }
                self.assigned = Assigned { tables: Some(tables), version };
                self.inbox.applied(version);
            }
            Command::Stats(reply) => self.watchers.command(reply),
        }
    }
}

fn hand_over<D: Disk>(backup: &mut Backup<D>, pending: &sprat_log::Pending<'_>) -> Result<(), AppendError> {
    let offset = u32::try_from(pending.offset).expect("segments are 8 MB");
    backup.append(pending.segment, offset, pending.slices().iter().copied(), pending.sealed)
}

impl<D: Disk> Handler for Master<D> {
    type Body = Body;

    #[inline]
    fn request(&mut self, _: Nanos, id: RequestId, payload: &[u8]) -> Outcome<Body> {
        self.mark(Mark::Entered);
        let parsed = Request::parse(payload);
        self.mark(Mark::Parsed);
        let outcome = match parsed {
            Ok(request) => self.dispatch(id, &request),
            Err(malformed) => {
                self.counts.malformed += 1;
                answer_text(&mut self.held.made, Status::Malformed, &malformed.to_string())
            }
        };
        self.mark(Mark::Done);
        outcome
    }

    #[inline]
    fn expect(&mut self, payload: &[u8]) {
        if let Ok(request) = Request::parse(payload)
            && let Some((table, key)) = request.object()
        {
            let hash = self.log.hash(table, key);
            self.log.prefetch(hash);
            self.log.prefetch_entry(self.expected.push(hash));
        }
    }

    #[inline]
    fn gather(&self, body: Body) -> &[u8] {
        self.held.bytes(&self.log, body)
    }

    #[inline]
    fn release(&mut self, body: Body) {
        self.held.release(&mut self.log, body);
    }

    fn completed(&mut self, _: Nanos, _: CallId, _: Result<Response<'_>, CallFailure>) {
        unreachable!("a master makes no calls");
    }
}

impl<D: Disk> Service for Master<D> {
    fn poll(&mut self, now: Nanos) -> bool {
        let mut worked = false;
        while let Some(command) = self.inbox.take() {
            self.obey(command);
            worked = true;
        }
        if self.stopped.is_none() {
            match self.replicate(now) {
                Ok(progressed) => worked |= progressed,
                Err(reason) => self.stop_writes(reason),
            }
        }
        worked
    }

    fn take_ready(&mut self) -> Option<(RequestId, Outcome<Body>)> {
        if let Some(told) = self.watchers.take() {
            return Some(told);
        }
        if let Some(waiter) = self.waiting.pop(self.log.durable_position()) {
            return Some((waiter.id, Outcome::Reply(waiter.reply)));
        }
        if self.stopped.is_some() {
            let waiter = self.waiting.abandon()?;
            if let Some(body) = waiter.reply.body() {
                self.release(body);
            }
            return Some((waiter.id, self.writes_stopped()));
        }
        None
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let backup = self.backup.as_ref()?.next_deadline();
        Some(self.pace.deadline().map_or(backup, |held| held.min(backup)))
    }

    fn work_idle(&mut self) -> bool {
        !self.log.clean(IDLE_SLICES).idle
    }

    #[inline]
    fn is_timed(&self) -> bool {
        self.timing.is_some()
    }

    fn lap(&mut self, came: u64, left: u64) {
        if let Some(timing) = &mut self.timing {
            timing.request(came, left);
        }
    }

    fn went_round(&mut self, ticks: u64) {
        if let Some(timing) = &mut self.timing {
            timing.round(ticks);
        }
    }

    #[inline]
    fn asks_for_network(&self) -> bool {
        self.watchers.are_waiting()
    }

    fn network(&mut self, network: Vec<Figure>) {
        let mut figures: Vec<_> = self.counters().into_iter().map(|(name, value)| Figure::new(name, value)).collect();
        figures.extend(network);
        self.watchers.tell(&figures, self.assigned.version, &mut self.held, operations::BUSY_MICROS);
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.backup.as_ref()?.poll_fd()
    }
}
