//! Operations in progress.

mod batches;

use self::batches::Batches;
pub(crate) use self::batches::Carried;
use crate::error::Error;
use crate::places::TableLocation;
use crate::session::Session;
use crate::target::ServerHandle;
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, RequestId, Response};
use sprat_wire::once::{MAX_OPERATION_SLOTS, OPERATION_ID_BYTES, OperationId, RETRY_WINDOW};
use sprat_wire::op::{Answer, REQUEST_BYTES, Request, Status};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;
use zerocopy::IntoBytes;

/// The largest number of operations in progress in one client; submitting another fails with
/// `Error::TooManyPending`.
pub const MAX_PENDING: usize = 16_384;

const _: () = assert!(MAX_PENDING <= MAX_OPERATION_SLOTS as usize);

/// How long the client waits for one server to answer an operation that may be sent again, before
/// it asks the coordinator whether another server has the tablet.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(400);

/// Timeout of an attempt at a server that was silent, or after an earlier attempt has failed. It is
/// doubled for each failed attempt, up to [`ATTEMPT_TIMEOUT`]. It is short because the coordinator
/// may assign the tablet to another server in the meantime.
const RETRY_TIMEOUT: Duration = Duration::from_millis(50);

/// Interval at which the client asks the coordinator for a tablet that has no server.
pub(crate) const LOCATE_INTERVAL: Duration = Duration::from_millis(10);

/// Interval at which the client checks whether a table that an operation waits for is located.
const LOCATE_POLL: Duration = Duration::from_millis(2);

/// The largest number of silent servers remembered; the client treats further silent servers as if
/// they had answered.
const MAX_SILENT: usize = 64;

/// Wait before the client tries the next coordinator, when one does not lead.
const NEXT_COORDINATOR: Duration = Duration::from_millis(5);

/// Shortest and longest wait between two attempts at one operation; the wait is doubled each time.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(200));

/// Largest request buffer, in bytes, that a slot keeps for its next operation.
const KEEP_BYTES: usize = 4096;

/// Number of longer buffers kept for long operations in any slot, and the largest such buffer in
/// bytes.
const SPARE_BUFFERS: usize = 4;
const SPARE_BYTES: usize = 2 << 20;

/// Takes the result of an operation: its tag, and either its answer or the error. The answer
/// borrows from the receive buffer, so the function must copy what it keeps.
pub type AnswerSink<'a> = &'a mut dyn FnMut(u64, Result<Answer<'_>, Error>);

/// The state of an operation in progress.
#[derive(Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) tag: u64,
    pub(crate) target: ServerHandle,
    /// The table whose server executes the operation; `None` if the operation is for a coordinator,
    /// or for a server of the caller's choice.
    pub(crate) table: Option<u32>,
    pub(crate) repeats: RepeatRule,
    /// Whether the operation is for the coordinator that leads.
    pub(crate) to_leader: bool,
    pub(crate) begun: Nanos,
    pub(crate) deadline: Nanos,
    /// Number of attempts that have failed.
    pub(crate) tries: u32,
    /// Whether a request that was sent may have been executed.
    pub(crate) maybe_executed: bool,
    /// Whether the caller was given an error already, so that only the call in progress still has
    /// to end.
    pub(crate) given_up: bool,
    /// Whether the operation waits because, as far as the client knows, no server has its tablet.
    pub(crate) unserved: bool,
    /// Whether the operation keeps its slot when it ends, until [`Calls::free_slot`].
    pub(crate) held: bool,
}

/// Whether an operation may be sent again although it may have been executed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RepeatRule {
    /// The operation may be sent again: executing it twice has the same effect as once.
    Freely,
    /// The operation may be sent again within [`RETRY_WINDOW`], because it has an id by which the
    /// server recognizes it.
    ById,
    /// The operation must not be sent again once it may have been executed.
    Never,
}

impl RepeatRule {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        if request.takes_id() {
            Self::ById
        } else if request.is_idempotent() {
            Self::Freely
        } else {
            Self::Never
        }
    }
}

impl Pending {
    /// Returns whether the operation may be sent again although it may have been executed.
    fn may_repeat(&self, now: Nanos) -> bool {
        match self.repeats {
            RepeatRule::Freely => true,
            RepeatRule::ById => now.since(self.begun) < RETRY_WINDOW,
            RepeatRule::Never => false,
        }
    }

    /// Returns the error for an operation that had no answer in time.
    fn timeout(&self, now: Nanos) -> Error {
        let (server, waited) = (self.target.peer.to_string(), now.since(self.begun));
        match (self.repeats, self.table) {
            (RepeatRule::ById | RepeatRule::Never, _) if self.maybe_executed => {
                Error::Indeterminate { server, waited }
            }
            (_, Some(table)) if self.unserved => Error::Recovering { table, waited },
            _ => Error::Timeout { server, waited },
        }
    }
}

/// A request slot of the client: see [`sprat_wire::once`].
struct RequestSlot {
    pending: Option<Pending>,
    request: Vec<u8>,
    backoff: Duration,
    /// Sequence number of the slot's last operation with an id.
    sequence: u64,
}

/// Operations by the number of their slot.
pub(crate) struct Calls {
    /// The client's id, under which servers keep its completion records.
    client: u64,
    entries: Vec<RequestSlot>,
    free: Vec<u32>,
    /// Number of slots that must never be used again.
    retired: usize,
    batches: Batches,
    spare: Vec<Vec<u8>>,
    /// Operations to send again, each with the time at which to do so.
    due: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Tables that may have moved to other servers.
    doubted: Vec<u32>,
    /// Servers that did not answer the last call, each with whether
    /// [`take_silent`](Self::take_silent) still has to report the server.
    silent: Vec<(ServerHandle, bool)>,
    /// A coordinator that does not lead or does not answer, and the locator of the leader that it
    /// named; the locator is empty if it named none.
    redirect: Option<(ServerHandle, String)>,
    /// Whether any call was ever answered.
    any_answered: bool,
}

impl Calls {
    pub(crate) fn new(client: u64) -> Self {
        Self {
            client,
            entries: Vec::new(),
            free: Vec::new(),
            retired: 0,
            batches: Batches::default(),
            spare: Vec::new(),
            due: BinaryHeap::new(),
            doubted: Vec::new(),
            silent: Vec::new(),
            redirect: None,
            any_answered: false,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len() - self.retired
    }

    #[inline]
    pub(crate) fn add(&mut self, pending: Pending, request: &Request<'_>) -> Result<u32, Error> {
        let index = self.take_slot()?;
        self.fill(index, pending, request);
        Ok(index)
    }

    /// Takes a slot, for an operation that [`fill`](Self::fill) adds.
    pub(crate) fn take_slot(&mut self) -> Result<u32, Error> {
        match self.free.pop() {
            Some(index) => Ok(index),
            None if self.entries.len() < MAX_PENDING => {
                self.entries.push(RequestSlot {
                    pending: None,
                    request: Vec::new(),
                    backoff: BACKOFF.0,
                    sequence: 0,
                });
                Ok(u32::try_from(self.entries.len() - 1).expect("MAX_PENDING fits"))
            }
            None => Err(Error::TooManyPending(MAX_PENDING)),
        }
    }

    /// Takes slots as [`take_slot`](Self::take_slot) does, all or none.
    pub(crate) fn take_slots(&mut self, count: usize) -> Result<Vec<u32>, Error> {
        let mut slots = Vec::with_capacity(count);
        while slots.len() < count {
            match self.take_slot() {
                Ok(slot) => slots.push(slot),
                Err(error) => {
                    slots.into_iter().for_each(|slot| self.free_slot(slot));
                    return Err(error);
                }
            }
        }
        Ok(slots)
    }

    /// Frees a slot that was taken, or that an operation [held](Pending::held).
    pub(crate) fn free_slot(&mut self, index: u32) {
        match &mut self.entries[index as usize].pending {
            // The caller was given an error, and the operation's call has not ended.
            Some(pending) => pending.held = false,
            None => self.free.push(index),
        }
    }

    /// Counts a slot that an operation held and that must never be used again.
    pub(crate) fn retire_slot(&mut self) {
        self.retired += 1;
    }

    /// Returns the id that the next operation in a slot has, if it has one.
    pub(crate) fn next_id(&self, index: u32) -> OperationId {
        let slot = u16::try_from(index).expect("MAX_PENDING fits");
        let sequence = self.entries[index as usize].sequence + 1;
        OperationId { client: self.client, slot, sequence, resent: false }
    }

    /// Adds an operation in a slot that was taken for it.
    #[inline]
    pub(crate) fn fill(&mut self, index: u32, pending: Pending, request: &Request<'_>) {
        let id = (pending.repeats == RepeatRule::ById).then(|| self.next_id(index));
        let entry = &mut self.entries[index as usize];
        assert!(entry.pending.is_none());
        entry.pending = Some(pending);
        entry.backoff = BACKOFF.0;
        let (mut header, key, value) = request.parts();
        let id = id.map(|id| {
            entry.sequence = id.sequence;
            header = header.with_id();
            id.bytes()
        });
        let id = id.as_ref().map_or(&[][..], |id| &id[..]);
        let ttl = request.ttl_bytes();
        let ttl = ttl.as_ref().map_or(&[][..], |ttl| &ttl[..]);
        let parts = [header.as_bytes(), id, ttl, key, value];
        let total = parts.iter().map(|part| part.len()).sum();
        if total > KEEP_BYTES {
            entry.request = self.spare.pop().unwrap_or_default();
            entry.request.reserve_exact(total);
        }
        for part in parts {
            entry.request.extend_from_slice(part);
        }
    }

    #[inline]
    fn remove(&mut self, index: u32) -> Pending {
        let entry = &mut self.entries[index as usize];
        let pending = entry.pending.take().expect("an operation ends once");
        if entry.request.capacity() > KEEP_BYTES {
            let mut request = std::mem::take(&mut entry.request);
            if self.spare.len() < SPARE_BUFFERS && request.capacity() <= SPARE_BYTES {
                request.clear();
                self.spare.push(request);
            }
        }
        entry.request.clear();
        if !pending.held {
            self.free.push(index);
        }
        pending
    }

    fn pending(&self, index: u32) -> &Pending {
        self.entries[index as usize].pending.as_ref().expect("an operation under way")
    }

    pub(crate) fn target(&self, index: u32) -> ServerHandle {
        self.pending(index).target
    }

    pub(crate) fn table(&self, index: u32) -> Option<u32> {
        self.pending(index).table
    }

    /// Returns whether an operation is for the leading coordinator.
    pub(crate) fn to_leader(&self, index: u32) -> bool {
        self.pending(index).to_leader
    }

    /// Returns, once, a coordinator that does not lead or does not answer, and the locator of the
    /// leader that it named; the locator is empty if it named none.
    pub(crate) fn take_redirect(&mut self) -> Option<(ServerHandle, String)> {
        self.redirect.take()
    }

    /// Sets the server to which the operation's next attempt is sent.
    pub(crate) fn set_target(&mut self, index: u32, target: ServerHandle) {
        let pending =
            self.entries[index as usize].pending.as_mut().expect("an operation under way");
        (pending.target, pending.unserved) = (target, false);
    }

    /// Returns the tables that may have moved since the last call, each once.
    pub(crate) fn take_doubted(&mut self) -> Vec<u32> {
        let mut doubted = std::mem::take(&mut self.doubted);
        doubted.sort_unstable();
        doubted.dedup();
        doubted
    }

    pub(crate) fn has_doubted(&self) -> bool {
        !self.doubted.is_empty()
    }

    /// Returns, once, a server that has become silent.
    pub(crate) fn take_silent(&mut self) -> Option<ServerHandle> {
        let (target, is_new) = self.silent.iter_mut().find(|(_, is_new)| *is_new)?;
        *is_new = false;
        Some(*target)
    }

    /// Returns whether a server did not answer the last call to it.
    #[inline]
    pub(crate) fn is_silent(&self, server: ServerHandle) -> bool {
        !self.silent.is_empty() && self.silent.iter().any(|&(target, _)| target == server)
    }

    fn note_silent(&mut self, server: ServerHandle) {
        if let Some((_, is_new)) = self.silent.iter_mut().find(|(target, _)| *target == server) {
            *is_new = true;
        } else if self.silent.len() < MAX_SILENT {
            self.silent.push((server, true));
        }
    }

    /// Finds operations that have waited long for a server and must not be sent to another, and
    /// adds their tables to those that [`take_doubted`](Self::take_doubted) returns.
    pub(crate) fn doubt_old(&mut self, now: Nanos) {
        let old = self.entries.iter().filter_map(|entry| entry.pending.as_ref());
        let old = old.filter(|pending| {
            !pending.may_repeat(now)
                && !pending.given_up
                && now.since(pending.begun) > ATTEMPT_TIMEOUT
        });
        self.doubted.extend(old.filter_map(|pending| pending.table));
    }

    /// Ends operations on `table` that will get no answer, because they must not be sent again, and
    /// `place` shows that the server to which they were sent no longer has their tablet.
    pub(crate) fn give_up_moved(
        &mut self,
        now: Nanos,
        table: u32,
        place: &TableLocation,
        sink: AnswerSink<'_>,
    ) {
        let waiting: Vec<u32> = self.due.iter().map(|&Reverse((_, index))| index).collect();
        for (index, entry) in (0..).zip(&mut self.entries) {
            let Some(pending) = &mut entry.pending else { continue };
            if pending.table != Some(table)
                || pending.may_repeat(now)
                || pending.given_up
                || waiting.contains(&index)
            {
                continue;
            }
            if place.of(&parsed(&entry.request)).is_some_and(|target| target != pending.target) {
                pending.given_up = true;
                let (server, waited) = (pending.target.peer.to_string(), now.since(pending.begun));
                sink(pending.tag, Err(Error::Indeterminate { server, waited }));
            }
        }
    }

    /// Returns whether any call was ever answered.
    pub(crate) fn any_answered(&self) -> bool {
        self.any_answered
    }

    /// Fails all operations that are for the leading coordinator. Their calls in progress still
    /// have to end.
    pub(crate) fn end_refused(&mut self, error: &Error, sink: AnswerSink<'_>) {
        let mut ended = Vec::new();
        for (index, entry) in (0..).zip(&mut self.entries) {
            if let Some(pending) =
                entry.pending.as_mut().filter(|pending| pending.to_leader && !pending.given_up)
            {
                pending.given_up = true;
                ended.push((index, pending.tag));
            }
        }
        let waiting = std::mem::take(&mut self.due).into_vec();
        let (with_drivers, waiting): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|&Reverse((_, index))| ended.iter().any(|&(one, _)| one == index));
        self.due = waiting.into();
        for Reverse((_, index)) in with_drivers {
            self.remove(index);
        }
        ended.into_iter().for_each(|(_, tag)| sink(tag, Err(error.clone())));
    }

    /// Returns an operation's bytes, and the deadline of its next attempt. An operation that may be
    /// sent again gets an early deadline, so that it can go to the server that has the tablet by
    /// then.
    pub(crate) fn request(&self, now: Nanos, index: u32) -> (&[u8], Nanos) {
        let pending = self.pending(index);
        let attempt = match pending.tries {
            0 if !self.is_silent(pending.target) => ATTEMPT_TIMEOUT,
            tries => ATTEMPT_TIMEOUT.min(RETRY_TIMEOUT * (1 << tries.min(8))),
        };
        let until = if pending.may_repeat(now) {
            pending.deadline.min(now + attempt)
        } else {
            pending.deadline
        };
        (&self.entries[index as usize].request, until)
    }

    /// Ends an operation whose table was dropped.
    pub(crate) fn end_dropped(&mut self, now: Nanos, index: u32, sink: AnswerSink<'_>) {
        let pending = self.remove(index);
        let dropped = Error::TableDropped(pending.table.unwrap_or_default());
        sink(pending.tag, Err(if pending.maybe_executed { pending.timeout(now) } else { dropped }));
    }

    /// Returns the request of an operation.
    pub(crate) fn parsed(&self, index: u32) -> Request<'_> {
        parsed(&self.entries[index as usize].request)
    }

    /// Makes an operation wait until some server has its tablet.
    pub(crate) fn wait_for_server(&mut self, now: Nanos, index: u32, table: u32) {
        self.doubted.push(table);
        self.entries[index as usize].pending.as_mut().expect("an operation under way").unserved =
            true;
        self.retry_in(now, index, LOCATE_INTERVAL);
    }

    /// Makes an operation wait until the coordinator has answered whether its table has moved.
    pub(crate) fn locate_first(&mut self, now: Nanos, index: u32, table: u32) {
        self.doubted.push(table);
        self.wait_for_location(now, index);
    }

    /// Makes an operation wait until its table is located.
    pub(crate) fn wait_for_location(&mut self, now: Nanos, index: u32) {
        self.retry_in(now, index, LOCATE_POLL);
    }

    fn retry_in(&mut self, now: Nanos, index: u32, wait: Duration) {
        let at = (now + wait).min(self.pending(index).deadline);
        self.due.push(Reverse((at, index)));
    }

    /// Sends an operation again after its backoff, or ends it when its deadline comes first.
    pub(crate) fn retry(&mut self, now: Nanos, index: u32) {
        let backoff = &mut self.entries[index as usize].backoff;
        let wait = *backoff;
        *backoff = (wait * 2).min(BACKOFF.1);
        self.retry_in(now, index, wait);
    }

    pub(crate) fn next_due(&self) -> Nanos {
        self.due.peek().map_or(Nanos::NEVER, |&Reverse((at, _))| at)
    }

    /// Returns the next operation to send again, and ends operations whose deadline has passed.
    pub(crate) fn take_due(&mut self, now: Nanos, sink: AnswerSink<'_>) -> Option<u32> {
        while let Some(&Reverse((at, index))) = self.due.peek() {
            if at > now {
                return None;
            }
            self.due.pop();
            if now < self.pending(index).deadline {
                return Some(index);
            }
            let pending = self.remove(index);
            sink(pending.tag, Err(pending.timeout(now)));
        }
        None
    }

    /// Notes that a server may have executed an operation, and tells the servers to which it is
    /// sent from now on.
    fn note_maybe_executed(&mut self, index: u32) {
        let RequestSlot { pending, request, .. } = &mut self.entries[index as usize];
        let pending = pending.as_mut().expect("an operation under way");
        pending.maybe_executed = true;
        if pending.repeats == RepeatRule::ById {
            OperationId::mark_resent(&mut request[REQUEST_BYTES..][..OPERATION_ID_BYTES]);
        }
    }

    /// Handles the answer to an operation, or the failure of its call. An answer of `None` cannot
    /// be parsed.
    fn end(
        &mut self,
        now: Nanos,
        index: u32,
        result: Result<Option<Answer<'_>>, CallFailure>,
        sink: AnswerSink<'_>,
    ) {
        if self.pending(index).given_up {
            self.remove(index);
            return;
        }
        match result {
            Ok(answer) => {
                self.any_answered = true;
                let pending = *self.pending(index);
                if !self.silent.is_empty() {
                    self.silent.retain(|&(target, _)| target != pending.target);
                }
                let unknown = answer.is_some_and(|answer| answer.status == Status::UnknownTable);
                if unknown
                    && let Some(table) = pending.table
                    && now < pending.deadline
                {
                    // The operation was not executed. The coordinator knows whether the table has
                    // moved or was dropped.
                    self.doubted.push(table);
                    return self.retry(now, index);
                }
                if let Some(answer) = answer.filter(|answer| answer.status == Status::Busy) {
                    if answer.more {
                        self.note_maybe_executed(index);
                        self.doubted.extend(pending.table);
                        if !pending.may_repeat(now) && pending.repeats != RepeatRule::Freely {
                            let pending = self.remove(index);
                            return sink(pending.tag, Err(pending.timeout(now)));
                        }
                    }
                    return self.retry(now, index); // which ends it at its deadline
                }
                if let Some(answer) =
                    answer.filter(|answer| pending.to_leader && answer.status == Status::NotLeading)
                {
                    let named = str::from_utf8(answer.body).unwrap_or_default().to_owned();
                    self.redirect.get_or_insert((pending.target, named));
                    let at = (now + NEXT_COORDINATOR).min(pending.deadline);
                    return self.due.push(Reverse((at, index)));
                }
                self.remove(index);
                // This server did not execute the operation, but another server may have executed
                // it, and its answer may have been lost.
                if unknown && pending.maybe_executed {
                    return sink(pending.tag, Err(pending.timeout(now)));
                }
                sink(
                    pending.tag,
                    answer
                        .ok_or_else(|| Error::Protocol { server: pending.target.peer.to_string() }),
                );
            }
            Err(failure) => {
                if maybe_executed(&failure) {
                    self.note_maybe_executed(index);
                }
                let pending = self.entries[index as usize].pending.as_mut();
                let pending = pending.expect("an operation under way");
                pending.tries += 1;
                let pending = *pending;
                self.doubted.extend(pending.table);
                if pending.table.is_some() && is_silence(&failure) {
                    self.note_silent(pending.target);
                }
                if pending.to_leader {
                    self.redirect.get_or_insert((pending.target, String::new()));
                }
                if (!pending.maybe_executed || pending.may_repeat(now)) && now < pending.deadline {
                    return self.retry(now, index);
                }
                self.remove(index);
                let lost = matches!(failure, CallFailure::Lost { maybe_executed: true });
                let error = if lost && pending.repeats != RepeatRule::Freely {
                    Error::Lost { server: pending.target.peer.to_string() }
                } else {
                    pending.timeout(now)
                };
                sink(pending.tag, Err(error));
            }
        }
    }
}

/// Parses a request that this client encoded.
fn parsed(bytes: &[u8]) -> Request<'_> {
    Request::parse_with_id(bytes).expect("made here").0
}

/// Returns whether the server was silent or lost the session, rather than busy or refusing the
/// session.
fn is_silence(failure: &CallFailure) -> bool {
    match failure {
        CallFailure::Deadline { .. }
        | CallFailure::Unreachable { .. }
        | CallFailure::Lost { .. } => true,
        CallFailure::Overloaded { .. } | CallFailure::Refused(_) => false,
    }
}

fn maybe_executed(failure: &CallFailure) -> bool {
    match *failure {
        CallFailure::Deadline { maybe_executed }
        | CallFailure::Unreachable { maybe_executed }
        | CallFailure::Lost { maybe_executed } => maybe_executed,
        // The server turned the request away, but an earlier copy of the request may still arrive
        // when the server is less busy.
        CallFailure::Overloaded { .. } => true,
        CallFailure::Refused(_) => false,
    }
}

/// The parts of the client that take answers during one poll of a port.
pub(crate) struct AnswerDelivery<'a, 's> {
    pub(crate) calls: &'a mut Calls,
    pub(crate) sink: AnswerSink<'s>,
}

impl AnswerDelivery<'_, '_> {
    pub(crate) fn handler<'a>(&'a mut self, sessions: &'a [Session]) -> Completions<'a> {
        Completions { calls: self.calls, sink: self.sink, sessions }
    }
}

/// The handler of a client's endpoint.
pub(crate) struct Completions<'a> {
    calls: &'a mut Calls,
    sink: AnswerSink<'a>,
    sessions: &'a [Session],
}

impl Handler for Completions<'_> {
    type Body = ();

    fn request(&mut self, _: Nanos, _: RequestId, _: &[u8]) -> Outcome<()> {
        Outcome::Retry(1_000_000) // a client serves no requests
    }

    fn gather(&self, (): ()) -> &[u8] {
        &[]
    }

    fn release(&mut self, (): ()) {}

    #[inline]
    fn completed(&mut self, now: Nanos, call: CallId, result: Result<Response<'_>, CallFailure>) {
        let session = self
            .sessions
            .iter()
            .find(|session| session.id == call.session())
            .expect("a session of this port");
        match session.slots[call.slot()].expect("a call was made in this slot") {
            Carried::One(index) => {
                let answer = result.as_deref().map(Answer::parse).map_err(|failure| *failure);
                self.calls.end(now, index, answer, self.sink);
            }
            Carried::Batch(number) => self.calls.end_batch(now, number, result, self.sink),
        }
    }
}
