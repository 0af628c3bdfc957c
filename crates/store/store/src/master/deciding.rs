//! Transactions that this server commits by itself, because one batch has prepared all their
//! operations here. The client then sends no decision while its caller waits, and the objects are
//! not locked until one arrives. See [`sprat_wire::transaction`].

use super::Master;
use super::body::MasterBody;
use super::durable::Durable;
use crate::answers::answer;
use sprat_disk::Disk;
use sprat_log::Full;
use sprat_net::Nanos;
use sprat_rpc::{Outcome, Repeat, RequestId};
use sprat_wire::once::OperationId;
use sprat_wire::op::{Answer, Request, Status};
use sprat_wire::transaction::{Decision, Participant, Plan, Preparation};
use std::collections::VecDeque;
use std::time::Duration;

/// The largest number of transactions that wait until they may be committed. Further ones are
/// decided by their clients, as if the server had prepared only a part of them.
const MAX_DECISIONS: usize = super::MAX_WAITING;

/// How long a transaction may wait to be committed. Usually, a request comes before that changes
/// something, and both changes are replicated together.
const DECISION_DELAY: Duration = Duration::from_millis(1);

/// Finds out, while a batch is executed, whether it is one whole transaction and whether all of it
/// is prepared.
pub(super) struct WholeTransaction<'a> {
    items: usize,
    seen: usize,
    /// The plan of the first operation; `None` once the batch is known to be something else, or an
    /// operation is not prepared.
    plan: Option<Plan<'a>>,
}

impl<'a> WholeTransaction<'a> {
    /// Begins with a batch of `items` operations.
    pub(super) fn new(items: usize) -> Self {
        Self { items, seen: 0, plan: None }
    }

    /// Adds the next operation of the batch, before it is executed. Returns whether it is the last
    /// one of a transaction of which all others are prepared.
    pub(super) fn add(&mut self, request: &Request<'a>, operation: Option<&OperationId>) -> bool {
        let at = self.seen;
        self.seen += 1;
        let Request::Prepare { table, plan, .. } = *request else {
            self.plan = None;
            return false;
        };
        if at == 0 && plan.participants().len() == self.items {
            self.plan = Some(plan);
        }
        self.plan = self.plan.filter(|first| {
            first.has_same_participants(&plan)
                && operation.is_some_and(|id| plan.participant_at(at).is(table, id))
        });
        self.is_whole()
    }

    /// Adds the outcome of that operation. Returns the transaction's plan if all of it is prepared
    /// now.
    pub(super) fn executed(&mut self, outcome: &Outcome<MasterBody>) -> Option<Plan<'a>> {
        self.plan = self.plan.filter(|_| is_ok(outcome));
        self.plan.filter(|_| self.is_whole())
    }

    fn is_whole(&self) -> bool {
        self.plan.is_some() && self.seen == self.items
    }
}

fn is_ok(outcome: &Outcome<MasterBody>) -> bool {
    let Outcome::Reply(reply) = outcome else { return false };
    Answer::parse(reply.head()).is_some_and(|answer| answer.status == Status::Ok)
}

/// Transactions that are prepared here and not committed yet.
#[derive(Default)]
pub(super) struct OwnDecisions {
    /// The operations of each, and the log position up to which the log must be durable before they
    /// are committed.
    queue: VecDeque<(u64, Vec<Participant>)>,
    /// When they are committed at the latest.
    commit_at: Nanos,
}

impl<D: Disk> Master<D> {
    /// Returns whether a transaction may be committed as soon as it is prepared.
    ///
    /// A log on one disk comes back with a beginning of what was written. So the changes may follow
    /// the prepared entries at once: where one of them is, all of these are. A log that other
    /// servers keep is recovered by several servers, of which one may read a replica with the
    /// change of its operation, and another one a shorter replica without the prepared entry of its
    /// own. So these entries must be durable first.
    pub(super) fn may_commit_at_once(&self) -> bool {
        !matches!(self.durable, Durable::Servers(_))
    }

    /// Ends a transaction as far as that is possible now. All its operations are prepared here, or
    /// the last one is [committed](sprat_log::Log::commit_last). Returns the reply to that one.
    pub(super) fn settle(
        &mut self,
        now: Nanos,
        id: RequestId,
        plan: &Plan<'_>,
    ) -> Outcome<MasterBody> {
        let preparation = if self.may_commit_at_once() {
            self.settle_now(plan).map_or(Preparation::Prepared, |()| Preparation::Ended)
        } else if self.own_decisions.queue.len() < MAX_DECISIONS {
            if self.own_decisions.queue.is_empty() {
                self.own_decisions.commit_at = now + DECISION_DELAY;
            }
            let decision = (self.log.position(), plan.participants().collect());
            self.own_decisions.queue.push_back(decision);
            Preparation::Decided
        } else {
            Preparation::Prepared
        };
        self.acknowledge(id, answer(Status::Ok, false, 0, preparation as u64, Repeat::Retain))
    }

    fn settle_now(&mut self, plan: &Plan<'_>) -> Result<(), Full> {
        for participant in plan.participants() {
            if self.log.prepared_bytes(&participant).is_some() {
                self.commit(&participant)?;
            }
        }
        plan.participants().try_for_each(|participant| self.end(&participant))
    }

    /// Commits transactions that have waited long enough; returns whether there were any.
    pub(super) fn poll_decisions(&mut self, now: Nanos) -> bool {
        now >= self.own_decisions.commit_at && self.commit_durable(now)
    }

    /// Commits the transactions whose prepared entries have become durable, before a request is
    /// executed that may need their objects, or whose own changes are replicated anyway. Returns
    /// whether there were any. What cannot be committed now is left to the client.
    pub(super) fn commit_durable(&mut self, now: Nanos) -> bool {
        let mut worked = false;
        while let Some(&(position, _)) = self.own_decisions.queue.front()
            && self.is_durable(position)
            && let Some((_, participants)) = self.own_decisions.queue.pop_front()
        {
            worked = true;
            self.own_decisions.commit_at = now + DECISION_DELAY;
            for participant in &participants {
                self.decide_here(now, participant, Decision::Commit);
            }
        }
        worked
    }

    /// Commits what a request must not find prepared.
    pub(super) fn decide_before(&mut self, now: Nanos, request: &Request<'_>) {
        if self.own_decisions.queue.is_empty() || self.stopped.is_some() {
            return;
        }
        match *request {
            Request::Read { table, key } if !self.log.is_locked(table, key, false) => {}
            _ => {
                self.commit_durable(now);
            }
        }
    }

    /// Returns when to commit transactions although nothing arrives.
    pub(super) fn decisions_deadline(&self) -> Option<Nanos> {
        let &(position, _) = self.own_decisions.queue.front()?;
        self.is_durable(position).then_some(self.own_decisions.commit_at)
    }
}
