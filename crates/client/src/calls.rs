//! Operations under way.

use crate::core::{BACKOFF, Sink, Target};
use crate::error::Error;
use crate::port::Session;
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, RequestId, Response};
use sprat_wire::op::Answer;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Most operations under way in one client.
pub const MAX_PENDING: usize = 16_384;

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
    pub(crate) idempotent: bool,
    pub(crate) begun: Nanos,
    pub(crate) deadline: Nanos,
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

    pub(crate) fn request(&self, index: u32) -> (&[u8], Nanos) {
        (&self.entries[index as usize].request, self.pending(index).deadline)
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
        match result {
            Ok(response) => {
                let pending = self.remove(index);
                let answer = Answer::parse(&response);
                sink(pending.tag, answer.ok_or_else(|| Error::Protocol { server: pending.target.peer.to_string() }));
            }
            Err(failure) => {
                let pending = *self.pending(index);
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
