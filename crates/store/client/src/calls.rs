//! Operations under way.

use crate::error::Error;
use crate::places::Place;
use crate::session::Session;
use crate::target::Target;
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, RequestId, Response};
use sprat_wire::once::{MAX_LANES, OPERATION_ID_BYTES, OperationId, RETRIED_FOR};
use sprat_wire::op::{Answer, REQUEST_BYTES, Request, Status};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Most operations under way in one client.
pub const MAX_PENDING: usize = 16_384;

const _: () = assert!(MAX_PENDING <= MAX_LANES as usize);

/// How long an operation that may be executed twice is tried with one server before it is asked
/// whether another has it.
pub const ATTEMPT: Duration = Duration::from_millis(400);

/// The same when it was tried before, doubled each time up to [`ATTEMPT`]: who knew no other server
/// a moment ago may know one by now.
const NEXT_ATTEMPT: Duration = Duration::from_millis(50);

/// How often it is asked who has what nobody has for now.
const SEEK: Duration = Duration::from_millis(10);

/// How often it is looked whether a table is found that an operation waits for.
const HOLD: Duration = Duration::from_millis(2);

/// Servers remembered that did not answer; of more, some are asked as if they had.
const MAX_SILENT: usize = 64;

/// Wait until the next coordinator is asked, when one does not lead.
const NEXT_COORDINATOR: Duration = Duration::from_millis(5);

/// Waits between two attempts at the same operation: doubled each time, within these bounds.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(200));

/// A request's buffer is kept for the next operation up to this size, bytes.
const KEEP_BYTES: usize = 4096;

/// Longer buffers kept for whichever long operations come next, and the longest such.
const SPARE_BUFFERS: usize = 4;
const SPARE_BYTES: usize = 2 << 20;

/// Where answers go: the operation's tag, and its answer or why there is none. What the answer
/// borrows is gone when the function returns.
pub type Sink<'a> = &'a mut dyn FnMut(u64, Result<Answer<'_>, Error>);

/// What is known of an operation from its beginning on.
#[derive(Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) tag: u64,
    pub(crate) target: Target,
    /// The table whose server it is for, if it is for one's.
    pub(crate) table: Option<u32>,
    pub(crate) repeats: Repeats,
    /// It is for whichever coordinator leads.
    pub(crate) roams: bool,
    pub(crate) begun: Nanos,
    pub(crate) deadline: Nanos,
    /// Attempts that have failed.
    pub(crate) tries: u32,
    /// What was sent may have been executed.
    pub(crate) perhaps: bool,
    /// Whoever began it was told that its end is unknown; what is under way still has to end.
    pub(crate) given_up: bool,
    /// The operation waits because, as far as the client knows, no server has its tablet.
    pub(crate) sought: bool,
}

/// Whether an operation may be sent anew although it may have been executed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Repeats {
    /// Twice is as once.
    Freely,
    /// It has an id by which it is known again, for some time.
    ById,
    /// It may not.
    Never,
}

impl Repeats {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        if request.changes_object() {
            Self::ById
        } else if request.is_idempotent() {
            Self::Freely
        } else {
            Self::Never
        }
    }
}

impl Pending {
    /// Whether it may be sent anew although it may have been executed.
    fn may_repeat(&self, now: Nanos) -> bool {
        match self.repeats {
            Repeats::Freely => true,
            Repeats::ById => now.since(self.begun) < RETRIED_FOR,
            Repeats::Never => false,
        }
    }

    /// Why it failed, if all that is known is that there was no answer in time.
    fn timeout(&self, now: Nanos) -> Error {
        let (server, waited) = (self.target.peer.to_string(), now.since(self.begun));
        match (self.repeats, self.table) {
            (Repeats::ById | Repeats::Never, _) if self.perhaps => {
                Error::Indeterminate { server, waited }
            }
            (_, Some(table)) if self.sought => Error::Recovering { table, waited },
            _ => Error::Timeout { server, waited },
        }
    }
}

/// A lane of the client: see [`sprat_wire::once`].
struct Entry {
    pending: Option<Pending>,
    request: Vec<u8>,
    backoff: Duration,
    /// Number of its last operation that has an id.
    sequence: u64,
}

/// Operations by number.
pub(crate) struct Calls {
    /// Who we are to those that keep what our operations came to.
    client: u64,
    entries: Vec<Entry>,
    free: Vec<u32>,
    spare: Vec<Vec<u8>>,
    /// Operations to begin again, by when.
    due: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Tables that may be elsewhere by now.
    doubts: Vec<u32>,
    /// Servers that did not answer the last call that ended, and whether that is news.
    silent: Vec<(Target, bool)>,
    /// A coordinator that does not lead, or does not answer, and whom it named instead.
    strayed: Option<(Target, String)>,
    /// Somebody has answered.
    has_heard: bool,
}

impl Calls {
    pub(crate) fn new(client: u64) -> Self {
        Self {
            client,
            entries: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            due: BinaryHeap::new(),
            doubts: Vec::new(),
            silent: Vec::new(),
            strayed: None,
            has_heard: false,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    #[inline]
    pub(crate) fn add(&mut self, pending: Pending, request: &Request<'_>) -> Result<u32, Error> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.entries.len() < MAX_PENDING => {
                self.entries.push(Entry {
                    pending: None,
                    request: Vec::new(),
                    backoff: BACKOFF.0,
                    sequence: 0,
                });
                u32::try_from(self.entries.len() - 1).expect("MAX_PENDING fits")
            }
            None => return Err(Error::TooManyPending(MAX_PENDING)),
        };
        let entry = &mut self.entries[index as usize];
        assert!(entry.pending.is_none());
        entry.pending = Some(pending);
        entry.backoff = BACKOFF.0;
        let (mut header, key, value) = request.parts();
        let mut id = None;
        if pending.repeats == Repeats::ById {
            entry.sequence += 1;
            let lane = u16::try_from(index).expect("MAX_PENDING fits");
            let (client, sequence) = (self.client, entry.sequence);
            id = Some(OperationId { client, lane, sequence, again: false }.bytes());
            header = header.with_id();
        }
        let id = id.as_ref().map_or(&[][..], |id| &id[..]);
        let parts = [header.as_bytes(), id, key, value];
        let total = parts.iter().map(|part| part.len()).sum();
        if total > KEEP_BYTES {
            entry.request = self.spare.pop().unwrap_or_default();
            entry.request.reserve_exact(total);
        }
        for part in parts {
            entry.request.extend_from_slice(part);
        }
        Ok(index)
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
        self.free.push(index);
        pending
    }

    fn pending(&self, index: u32) -> &Pending {
        self.entries[index as usize].pending.as_ref().expect("an operation under way")
    }

    pub(crate) fn target(&self, index: u32) -> Target {
        self.pending(index).target
    }

    pub(crate) fn table(&self, index: u32) -> Option<u32> {
        self.pending(index).table
    }

    /// Whether an operation is for whichever coordinator leads.
    pub(crate) fn roams(&self, index: u32) -> bool {
        self.pending(index).roams
    }

    /// A coordinator that does not lead, or does not answer, and whom it named, since this was last
    /// asked.
    pub(crate) fn take_strayed(&mut self) -> Option<(Target, String)> {
        self.strayed.take()
    }

    /// From here on the operation is for another server.
    pub(crate) fn aim(&mut self, index: u32, target: Target) {
        let pending =
            self.entries[index as usize].pending.as_mut().expect("an operation under way");
        (pending.target, pending.sought) = (target, false);
    }

    /// Tables that may be elsewhere by now, each once, since this was last asked.
    pub(crate) fn take_doubts(&mut self) -> Vec<u32> {
        let mut doubts = std::mem::take(&mut self.doubts);
        doubts.sort_unstable();
        doubts.dedup();
        doubts
    }

    pub(crate) fn has_doubts(&self) -> bool {
        !self.doubts.is_empty()
    }

    /// A server that did not answer, and of which this was not said yet.
    pub(crate) fn take_silent(&mut self) -> Option<Target> {
        let (target, is_news) = self.silent.iter_mut().find(|(_, is_news)| *is_news)?;
        *is_news = false;
        Some(*target)
    }

    /// Whether a server did not answer the last call that ended.
    #[inline]
    pub(crate) fn is_silent(&self, server: Target) -> bool {
        !self.silent.is_empty() && self.silent.iter().any(|&(target, _)| target == server)
    }

    fn was_silent(&mut self, server: Target) {
        if let Some((_, is_news)) = self.silent.iter_mut().find(|(target, _)| *target == server) {
            *is_news = true;
        } else if self.silent.len() < MAX_SILENT {
            self.silent.push((server, true));
        }
    }

    /// Doubts where the tables of operations are that have waited long for a server and cannot be
    /// tried with another.
    pub(crate) fn doubt_old(&mut self, now: Nanos) {
        let old = self.entries.iter().filter_map(|entry| entry.pending.as_ref());
        let old = old.filter(|pending| {
            !pending.may_repeat(now) && !pending.given_up && now.since(pending.begun) > ATTEMPT
        });
        self.doubts.extend(old.filter_map(|pending| pending.table));
    }

    /// A table is there. Of operations that were sent elsewhere, and cannot be tried again, nobody
    /// will ever hear.
    pub(crate) fn give_up(&mut self, now: Nanos, table: u32, place: &Place, sink: Sink<'_>) {
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

    /// Whether anybody has ever answered.
    pub(crate) fn has_heard(&self) -> bool {
        self.has_heard
    }

    /// Ends all operations that are for a coordinator. What is under way of them still has to end.
    pub(crate) fn end_refused(&mut self, error: &Error, sink: Sink<'_>) {
        let mut ended = Vec::new();
        for (index, entry) in (0..).zip(&mut self.entries) {
            if let Some(pending) =
                entry.pending.as_mut().filter(|pending| pending.roams && !pending.given_up)
            {
                pending.given_up = true;
                ended.push((index, pending.tag));
            }
        }
        let waiting = std::mem::take(&mut self.due).into_vec();
        let (over, waiting): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|&Reverse((_, index))| ended.iter().any(|&(one, _)| one == index));
        self.due = waiting.into();
        for Reverse((_, index)) in over {
            self.remove(index);
        }
        ended.into_iter().for_each(|(_, tag)| sink(tag, Err(error.clone())));
    }

    /// An operation's bytes, and until when to try it: what may be executed twice is given up
    /// early, so that it can be tried with whoever has the table by then.
    pub(crate) fn request(&self, now: Nanos, index: u32) -> (&[u8], Nanos) {
        let pending = self.pending(index);
        let attempt = match pending.tries {
            0 if !self.is_silent(pending.target) => ATTEMPT,
            tries => ATTEMPT.min(NEXT_ATTEMPT * (1 << tries.min(8))),
        };
        let until = if pending.may_repeat(now) {
            pending.deadline.min(now + attempt)
        } else {
            pending.deadline
        };
        (&self.entries[index as usize].request, until)
    }

    /// An operation's table is gone.
    pub(crate) fn end_dropped(&mut self, now: Nanos, index: u32, sink: Sink<'_>) {
        let pending = self.remove(index);
        let dropped = Error::TableDropped(pending.table.unwrap_or_default());
        sink(pending.tag, Err(if pending.perhaps { pending.timeout(now) } else { dropped }));
    }

    /// The request of an operation.
    pub(crate) fn parsed(&self, index: u32) -> Request<'_> {
        parsed(&self.entries[index as usize].request)
    }

    /// Has an operation wait until somebody has what it is for.
    pub(crate) fn seek(&mut self, now: Nanos, index: u32, table: u32) {
        self.doubts.push(table);
        self.entries[index as usize].pending.as_mut().expect("an operation under way").sought =
            true;
        self.begin_again_in(now, index, SEEK);
    }

    /// Has an operation wait until it has been asked whether its table is elsewhere by now.
    pub(crate) fn ask_first(&mut self, now: Nanos, index: u32, table: u32) {
        self.doubts.push(table);
        self.hold(now, index);
    }

    /// Has an operation wait until its table is found.
    pub(crate) fn hold(&mut self, now: Nanos, index: u32) {
        self.begin_again_in(now, index, HOLD);
    }

    fn begin_again_in(&mut self, now: Nanos, index: u32, wait: Duration) {
        let at = (now + wait).min(self.pending(index).deadline);
        self.due.push(Reverse((at, index)));
    }

    /// Has an operation begin again after a while, unless its deadline comes first.
    pub(crate) fn retry(&mut self, now: Nanos, index: u32) {
        let backoff = &mut self.entries[index as usize].backoff;
        let wait = *backoff;
        *backoff = (wait * 2).min(BACKOFF.1);
        self.begin_again_in(now, index, wait);
    }

    pub(crate) fn next_due(&self) -> Nanos {
        self.due.peek().map_or(Nanos::NEVER, |&Reverse((at, _))| at)
    }

    /// The next operation that is due to begin again; those whose deadline has passed end here.
    pub(crate) fn take_due(&mut self, now: Nanos, sink: Sink<'_>) -> Option<u32> {
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

    fn end(
        &mut self,
        now: Nanos,
        index: u32,
        result: Result<Response<'_>, CallFailure>,
        sink: Sink<'_>,
    ) {
        if self.pending(index).given_up {
            self.remove(index);
            return;
        }
        match result {
            Ok(response) => {
                self.has_heard = true;
                let answer = Answer::parse(&response);
                let pending = *self.pending(index);
                if !self.silent.is_empty() {
                    self.silent.retain(|&(target, _)| target != pending.target);
                }
                let unknown = answer.is_some_and(|answer| answer.status == Status::UnknownTable);
                if unknown
                    && let Some(table) = pending.table
                    && now < pending.deadline
                {
                    // It was not executed; the coordinator knows whether the table is elsewhere, or
                    // no more.
                    self.doubts.push(table);
                    return self.retry(now, index);
                }
                if let Some(answer) =
                    answer.filter(|answer| pending.roams && answer.status == Status::NotLeading)
                {
                    let named = str::from_utf8(answer.body).unwrap_or_default().to_owned();
                    self.strayed.get_or_insert((pending.target, named));
                    let at = (now + NEXT_COORDINATOR).min(pending.deadline);
                    return self.due.push(Reverse((at, index)));
                }
                self.remove(index);
                // Not by this server; but an answer of another may have been lost.
                if unknown && pending.perhaps {
                    return sink(pending.tag, Err(pending.timeout(now)));
                }
                sink(
                    pending.tag,
                    answer
                        .ok_or_else(|| Error::Protocol { server: pending.target.peer.to_string() }),
                );
            }
            Err(failure) => {
                let Entry { pending, request, .. } = &mut self.entries[index as usize];
                let pending = pending.as_mut().expect("an operation under way");
                pending.tries += 1;
                if maybe_executed(&failure) {
                    pending.perhaps = true;
                    if pending.repeats == Repeats::ById {
                        OperationId::mark_again(
                            &mut request[REQUEST_BYTES..][..OPERATION_ID_BYTES],
                        );
                    }
                }
                let pending = *pending;
                self.doubts.extend(pending.table);
                if pending.table.is_some() && is_silence(&failure) {
                    self.was_silent(pending.target);
                }
                if pending.roams {
                    self.strayed.get_or_insert((pending.target, String::new()));
                }
                if (!pending.perhaps || pending.may_repeat(now)) && now < pending.deadline {
                    return self.retry(now, index);
                }
                self.remove(index);
                let lost = matches!(failure, CallFailure::Lost { maybe_executed: true });
                let error = if lost && pending.repeats != Repeats::Freely {
                    Error::Lost { server: pending.target.peer.to_string() }
                } else {
                    pending.timeout(now)
                };
                sink(pending.tag, Err(error));
            }
        }
    }
}

/// A request that was encoded here.
fn parsed(bytes: &[u8]) -> Request<'_> {
    Request::parse_with_id(bytes).expect("made here").0
}

/// Whether nothing came back, rather than that there was no time or no room.
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
        // Turned away, but a copy of the request may be under way and meet a server that is less
        // busy.
        CallFailure::Overloaded { .. } => true,
        CallFailure::Refused(_) => false,
    }
}

/// What one turn needs to hand answers on.
pub(crate) struct Deliver<'a, 's> {
    pub(crate) calls: &'a mut Calls,
    pub(crate) sink: Sink<'s>,
}

impl Deliver<'_, '_> {
    pub(crate) fn with<'a>(&'a mut self, sessions: &'a [Session]) -> Completions<'a> {
        Completions { calls: self.calls, sink: self.sink, sessions }
    }
}

/// The handler of a client's endpoint.
pub(crate) struct Completions<'a> {
    calls: &'a mut Calls,
    sink: Sink<'a>,
    sessions: &'a [Session],
}

impl Handler for Completions<'_> {
    type Body = ();

    fn request(&mut self, _: Nanos, _: RequestId, _: &[u8]) -> Outcome<()> {
        Outcome::Retry(1_000_000) // a client serves nobody
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
        self.calls.end(now, session.slots[call.slot()], result, self.sink);
    }
}
