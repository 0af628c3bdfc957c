//! Executes the operations of a batch one after another, and answers them in one response.

use super::body::MasterBody;
use super::deciding::WholeTransaction;
use super::operations::BUSY_MICROS;
use super::{Master, PREFETCH_DISTANCE};
use crate::answers::answer;
use sprat_disk::Disk;
use sprat_net::Nanos;
use sprat_rpc::{Handler as _, Outcome, Repeat, RequestId};
use sprat_wire::op::{BATCH_ANSWER_BYTES, BatchItems, Request, Status, encode_answer, push_item};
use zerocopy::IntoBytes as _;

/// Number of operations between the prefetch of an operation's key and its execution: enough for
/// both prefetches of the key.
const AHEAD: usize = 2 * PREFETCH_DISTANCE;

impl<D: Disk> Master<D> {
    /// Executes a batch. The response waits until every answer in it may be sent.
    pub(super) fn batch(
        &mut self,
        now: Nanos,
        id: RequestId,
        items: BatchItems<'_>,
    ) -> Outcome<MasterBody> {
        // Refused before the first operation is executed.
        if !self.held.made.admits(id.session()) || !self.waiting.admits(id.session()) {
            self.counts.turned_away += 1;
            return Outcome::Retry(BUSY_MICROS);
        }
        self.counts.batches += 1;
        let count = u32::try_from(items.len()).expect("MAX_BATCH");
        let mut answers = std::mem::take(&mut self.batch_answers);
        let mut repeat = Repeat::Reexecute;
        self.batch_position = Some(0);
        let mut transaction = WholeTransaction::new(items.len());
        let mut ahead = items;
        if items.len() <= PREFETCH_DISTANCE {
            ahead.by_ref().for_each(drop); // nothing to do between a key's two prefetches
        }
        ahead.by_ref().take(AHEAD).for_each(|item| self.prefetch(item));
        for item in items {
            if let Some(item) = ahead.next() {
                self.prefetch(item);
            }
            let outcome = match Request::parse_with_id(item) {
                _ if answers.len() >= BATCH_ANSWER_BYTES => Outcome::Retry(0),
                Ok((request, operation)) if request.may_be_in_batch() => {
                    if !request.is_idempotent() {
                        repeat = Repeat::Retain;
                    }
                    let operation = operation.as_ref();
                    let is_last = transaction.add(&request, operation);
                    self.commits_last = is_last && self.may_commit_at_once();
                    let outcome = self.dispatch(now, id, &request, operation);
                    self.commits_last = false;
                    match transaction.executed(&outcome) {
                        Some(plan) => self.settle(now, id, &plan),
                        None => outcome,
                    }
                }
                Ok(_) | Err(_) => {
                    self.counts.malformed += 1;
                    Outcome::Reply(answer(Status::Malformed, false, 0, 0, Repeat::Retain))
                }
            };
            self.push_answer(&mut answers, outcome);
        }
        let position = self.batch_position.take().expect("set above");
        let body = self.held.made.make(id.session(), |out| std::mem::swap(out, &mut answers));
        self.batch_answers = answers;
        let body = MasterBody::Made(body.expect("admitted above"));
        self.wait_for(position, id, answer(Status::Ok, false, count, 0, repeat).with_body(body))
    }

    fn push_answer(&mut self, answers: &mut Vec<u8>, outcome: Outcome<MasterBody>) {
        match outcome {
            Outcome::Reply(reply) => match reply.body() {
                Some(body) => {
                    push_item(answers, &[reply.head(), self.held.bytes(&self.log, body)]);
                    self.held.release(&mut self.log, body);
                }
                None => push_item(answers, &[reply.head()]),
            },
            Outcome::Retry(micros) => {
                let busy = encode_answer(Status::Busy, false, 0, micros.into());
                push_item(answers, &[busy.as_bytes()]);
            }
            Outcome::Pending => unreachable!("answers within a batch do not wait"),
        }
    }
}
