//! Operations under way.

use crate::core::{BACKOFF, Sink, Target};
use crate::error::Error;
use crate::port::Session;
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, RequestId, Response};
use sprat_wire::op::{Answer, Status};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Most operations under way in one client.
pub const MAX_PENDING: usize = 16_384;

/// How long an operation that may be executed twice is tried with one server before it is asked whether another has it.
pub(crate) const ATTEMPT: Duration = Duration::from_millis(400);

/// A request's buffer is kept for the next operation up to this size, bytes.
const KEEP_BYTES: usize = 4096;

/// Longer buffers kept for whichever long operations come next, and the longest such.
const SPARE_BUFFERS: usize = 4;
const SPARE_BYTES: usize = 2 << 20;

/// What is known of an operation from its beginning on.
#[derive(Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) tag: u64,
    pub(crate) target: Target,
    /// The table whose server it is for, if it is for one's.
    pub(crate) table: Option<u32>,
    pub(crate) idempotent: bool,
    pub(crate) begun: Nanos,
    pub(crate) deadline: Nanos,
    /// Whoever began it was told that its end is unknown; what is under way still has to end.
    pub(crate) given_up: bool,
}

struct Entry {
    pending: Option<Pending>,
    request: Vec<u8>,
    backoff: Duration,
}

/// Operations by number.
#[derive(Default)]
pub(crate) struct Calls {
    entries: Vec<Entry>,
    free: Vec<u32>,
    spare: Vec<Vec<u8>>,
    /// Operations to begin again, by when.
    due: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Tables that may be elsewhere by now.
    doubts: Vec<u32>,
}

impl Calls {
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    #[inline]
    pub(crate) fn add(&mut self, pending: Pending, parts: &[&[u8]]) -> Result<u32, Error> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.entries.len() < MAX_PENDING => {
                self.entries.push(Entry { pending: None, request: Vec::new(), backoff: BACKOFF.0 });
                u32::try_from(self.entries.len() - 1).expect("MAX_PENDING fits")
            }
            None => return Err(Error::TooManyPending(MAX_PENDING)),
        };
        let entry = &mut self.entries[index as usize];
        assert!(entry.pending.is_none());
        entry.pending = Some(pending);
        entry.backoff = BACKOFF.0;
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

    /// From here on the operation is for another server.
    pub(crate) fn aim(&mut self, index: u32, target: Target) {
        self.entries[index as usize].pending.as_mut().expect("an operation under way").target = target;
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

    /// Doubts where the tables of operations are that have waited long for a server and cannot be tried with another.
    pub(crate) fn doubt_old(&mut self, now: Nanos) {
        let old = self.entries.iter().filter_map(|entry| entry.pending.as_ref());
        let old = old.filter(|pending| !pending.idempotent && !pending.given_up && now.since(pending.begun) > ATTEMPT);
        self.doubts.extend(old.filter_map(|pending| pending.table));
    }

    /// A table is not with that server any more. Of operations that cannot be tried with another nobody will ever hear.
    pub(crate) fn give_up(&mut self, now: Nanos, table: u32, target: Target, sink: Sink<'_>) {
        let waiting: Vec<u32> = self.due.iter().map(|&Reverse((_, index))| index).collect();
        for (index, entry) in (0..).zip(&mut self.entries) {
            let Some(pending) = &mut entry.pending else { continue };
            let concerned = pending.table == Some(table) && pending.target == target && !pending.idempotent;
            if concerned && !pending.given_up && !waiting.contains(&index) {
                pending.given_up = true;
                let (server, waited) = (pending.target.peer.to_string(), now.since(pending.begun));
                sink(pending.tag, Err(Error::Indeterminate { server, waited }));
            }
        }
    }

    /// An operation's bytes, and until when to try it: what may be executed twice is given up early, so that it can be tried
    /// with whoever has the table by then.
    pub(crate) fn request(&self, now: Nanos, index: u32) -> (&[u8], Nanos) {
        let pending = self.pending(index);
        let until = if pending.idempotent { pending.deadline.min(now + ATTEMPT) } else { pending.deadline };
        (&self.entries[index as usize].request, until)
    }

    /// An operation's table is gone.
    pub(crate) fn end_dropped(&mut self, index: u32, sink: Sink<'_>) {
        let pending = self.remove(index);
        sink(pending.tag, Err(Error::TableDropped(pending.table.unwrap_or_default())));
    }

    /// Has an operation begin again after a while, unless its deadline comes first.
    pub(crate) fn retry(&mut self, now: Nanos, index: u32) {
        let entry = &mut self.entries[index as usize];
        let deadline = entry.pending.as_ref().expect("an operation under way").deadline;
        let at = (now + entry.backoff).min(deadline);
        entry.backoff = (entry.backoff * 2).min(BACKOFF.1);
        self.due.push(Reverse((at, index)));
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
            sink(pending.tag, Err(timeout(&pending, now)));
        }
        None
    }

    fn end(&mut self, now: Nanos, index: u32, result: Result<Response<'_>, CallFailure>, sink: Sink<'_>) {
        if self.pending(index).given_up {
            self.remove(index);
            return;
        }
        match result {
            Ok(response) => {
                let answer = Answer::parse(&response);
                let pending = *self.pending(index);
                if answer.is_some_and(|answer| answer.status == Status::UnknownTable)
                    && let Some(table) = pending.table
                    && now < pending.deadline
                {
                    // It was not executed; the coordinator knows whether the table is elsewhere, or no more.
                    self.doubts.push(table);
                    return self.retry(now, index);
                }
                self.remove(index);
                sink(pending.tag, answer.ok_or_else(|| Error::Protocol { server: pending.target.peer.to_string() }));
            }
            Err(failure) => {
                let pending = *self.pending(index);
                self.doubts.extend(pending.table);
                let safe = pending.idempotent || !maybe_executed(&failure);
                if safe && now < pending.deadline {
                    return self.retry(now, index);
                }
                self.remove(index);
                sink(pending.tag, Err(error_of(&failure, &pending, safe, now)));
            }
        }
    }
}

fn maybe_executed(failure: &CallFailure) -> bool {
    match *failure {
        CallFailure::Deadline { maybe_executed }
        | CallFailure::Unreachable { maybe_executed }
        | CallFailure::Lost { maybe_executed } => maybe_executed,
        // Turned away, but a copy of the request may be under way and meet a server that is less busy.
        CallFailure::Overloaded { .. } => true,
        CallFailure::Refused(_) => false,
    }
}

fn timeout(pending: &Pending, now: Nanos) -> Error {
    Error::Timeout { server: pending.target.peer.to_string(), waited: now.since(pending.begun) }
}

fn error_of(failure: &CallFailure, pending: &Pending, safe: bool, now: Nanos) -> Error {
    let server = pending.target.peer.to_string();
    match failure {
        _ if safe => timeout(pending, now),
        CallFailure::Lost { .. } => Error::Lost { server },
        _ => Error::Indeterminate { server, waited: now.since(pending.begun) },
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
        let session =
            self.sessions.iter().find(|session| session.id == call.session()).expect("a session of this port");
        self.calls.end(now, session.slots[call.slot()], result, self.sink);
    }
}
