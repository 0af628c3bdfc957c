//! Operations that share a call. Each remains an operation by itself: only its first attempt, and
//! the answer to it, travel together with those of others.

use super::{AnswerSink, Calls};
use crate::target::ServerHandle;
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, Response};
use sprat_wire::op::{
    Answer, BatchItems, ITEM_LENGTH_BYTES, MAX_BATCH, MAX_BATCH_BYTES, Status, item_length,
};

/// What a call to a server carries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Carried {
    /// An operation, by its index.
    One(u32),
    /// Several operations, by the number of their batch.
    Batch(u32),
}

/// Operations that share a call, and the bytes that precede each in the request.
#[derive(Default)]
struct Batch {
    operations: Vec<u32>,
    lengths: Vec<[u8; ITEM_LENGTH_BYTES]>,
}

/// Operations that one response has answered, with successive tags or all with the same tag.
#[derive(Debug)]
struct Run {
    first: u64,
    last: u64,
    operations: usize,
}

/// The batches whose call is in progress or waits. There are never more than operations.
#[derive(Default)]
pub(super) struct Batches {
    batches: Vec<Batch>,
    free: Vec<u32>,
    /// What responses to batches have answered since the last [`Batches::forget_answered`].
    answered: Vec<Run>,
}

impl Run {
    /// Adds an operation with this tag, if the tag goes on the run. Returns whether it does.
    fn extend(&mut self, tag: u64) -> bool {
        let goes_on = if tag == self.last + 1 {
            self.first < self.last || self.operations == 1
        } else {
            tag == self.last && self.first == self.last
        };
        if goes_on {
            (self.last, self.operations) = (tag, self.operations + 1);
        }
        goes_on
    }

    /// Returns whether the operations with tags from `first` to `last`, of which there are
    /// `operations`, belong to the run.
    fn has(&self, first: u64, last: u64, operations: usize) -> bool {
        if last < first || first < self.first || self.last < last {
            return false;
        }
        let has_one_tag = self.first == self.last;
        operations as u64 == if has_one_tag { self.operations as u64 } else { last - first + 1 }
    }
}

impl Batches {
    fn add(&mut self, batch: Batch) -> u32 {
        if let Some(number) = self.free.pop() {
            self.batches[number as usize] = batch;
            return number;
        }
        self.batches.push(batch);
        u32::try_from(self.batches.len() - 1).expect("fewer than operations")
    }

    /// Notes that a response has answered the operation with this tag. `is_new` says whether it is
    /// the first operation of that response; otherwise the latest run is of the same response.
    fn note_answered(&mut self, tag: u64, is_new: bool) {
        let last = self.answered.last_mut().filter(|_| !is_new);
        if !last.is_some_and(|run| run.extend(tag)) {
            self.answered.push(Run { first: tag, last: tag, operations: 1 });
        }
    }

    fn take(&mut self, number: u32) -> Vec<u32> {
        self.free.push(number);
        std::mem::take(&mut self.batches[number as usize]).operations
    }
}

impl Calls {
    /// Returns the server to which a call goes.
    pub(crate) fn target_of(&self, carried: Carried) -> ServerHandle {
        let first = match carried {
            Carried::One(index) => index,
            Carried::Batch(number) => self.batches.batches[number as usize].operations[0],
        };
        self.target(first)
    }

    /// Divides operations for one server into calls, within the limits of a batch.
    pub(crate) fn divide(&mut self, operations: &[u32]) -> Vec<Carried> {
        let mut calls = Vec::new();
        let mut rest = operations;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fitting = rest.iter().take(MAX_BATCH).take_while(|index| {
                bytes += ITEM_LENGTH_BYTES + self.entries[**index as usize].request.len();
                bytes <= MAX_BATCH_BYTES
            });
            let (together, later) = rest.split_at(fitting.count());
            rest = later;
            calls.push(match *together {
                [alone] => Carried::One(alone),
                _ => Carried::Batch(self.join(together)),
            });
        }
        calls
    }

    fn join(&mut self, operations: &[u32]) -> u32 {
        let length = |index: &u32| item_length(&[&self.entries[*index as usize].request]);
        let lengths = operations.iter().map(length).collect();
        self.batches.add(Batch { operations: operations.to_vec(), lengths })
    }

    /// Returns the parts of a batch's request, and the deadline of its attempt.
    pub(crate) fn batch_request<'a>(
        &'a self,
        now: Nanos,
        number: u32,
        header: &'a [u8],
    ) -> (Vec<&'a [u8]>, Nanos) {
        let Batch { operations, lengths } = &self.batches.batches[number as usize];
        let mut until = Nanos::NEVER;
        let mut parts = Vec::with_capacity(1 + 2 * operations.len());
        parts.push(header);
        for (&index, length) in operations.iter().zip(lengths) {
            let (request, deadline) = self.request(now, index);
            until = until.min(deadline);
            parts.extend([&length[..], request]);
        }
        (parts, until)
    }

    /// Sends the operations of a call again, each by itself after its backoff.
    pub(crate) fn retry_carried(&mut self, now: Nanos, carried: Carried) {
        match carried {
            Carried::One(index) => self.retry(now, index),
            Carried::Batch(number) => {
                for index in self.batches.take(number) {
                    self.retry(now, index);
                }
            }
        }
    }

    /// Handles the response to a batch, or the failure of its call, for each of its operations.
    pub(super) fn end_batch(
        &mut self,
        now: Nanos,
        number: u32,
        result: Result<Response<'_>, CallFailure>,
        sink: AnswerSink<'_>,
    ) {
        let operations = self.batches.take(number);
        let answer = result.as_deref().map(Answer::parse).map_err(|failure| *failure);
        // Without items, the one answer is meant for each operation.
        let items = answer.ok().flatten().filter(|answer| answer.status == Status::Ok);
        let items = items.map(|answer| BatchItems::parse(answer.body).ok());
        let Some(items) = items else {
            return operations.into_iter().for_each(|index| self.end(now, index, answer, sink));
        };
        let mut items = items.filter(|items| items.len() == operations.len());
        let mut is_new = true;
        for index in operations {
            let item = items.as_mut().and_then(Iterator::next).and_then(Answer::parse);
            if item.is_some_and(|item| matches!(item.status, Status::Ok | Status::NotFound)) {
                self.batches.note_answered(self.pending(index).tag, std::mem::take(&mut is_new));
            }
            self.end(now, index, Ok(item), sink);
        }
    }

    /// Forgets which operations were answered together.
    pub(crate) fn forget_answered(&mut self) {
        self.batches.answered.clear();
    }

    /// Returns whether one response answered these operations: see
    /// [`Core::answered_at_once`](crate::Core::answered_at_once).
    pub(crate) fn answered_at_once(&self, first: u64, last: u64, operations: usize) -> bool {
        self.batches.answered.iter().any(|run| run.has(first, last, operations))
    }
}
