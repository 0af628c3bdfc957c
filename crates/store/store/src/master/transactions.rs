//! Prepares and decides operations of transactions, and keeps others from the objects that they
//! lock: see [`sprat_wire::transaction`].

use super::Master;
use super::body::MasterBody;
use super::operations::{BUSY_MICROS, Change, MAX_ALONE};
use crate::answers::answer;
use sprat_disk::Disk;
use sprat_log::{Full, Log};
use sprat_rpc::{Outcome, Repeat, RequestId};
use sprat_wire::once::{COMPLETIONS, OperationId};
use sprat_wire::op::{Condition, Request, Status};
use sprat_wire::transaction::{
    Decision, OperationState, PREPARED, Participant, Plan, prepared_key,
};

/// Retry delay, in microseconds, for requests for a locked object. Most transactions are decided a
/// round trip after they locked it.
pub(super) const LOCKED_MICROS: u32 = 100;

impl<D: Disk> Master<D> {
    /// Returns the reply to a request for an object that a transaction locks; `None` if the request
    /// may be executed. While an object is locked, the transaction may be committed already, so
    /// that the object's present value must not be read any more.
    pub(super) fn meets_lock(&mut self, request: &Request<'_>) -> Option<Outcome<MasterBody>> {
        if matches!(request, Request::Prepare { .. }) {
            return None;
        }
        let (table, key) = request.object()?;
        if !self.log.is_locked(table, key, request.changes_object()) {
            return None;
        }
        self.counts.locked += 1;
        Some(Outcome::Retry(LOCKED_MICROS))
    }

    /// Returns whether a client may make this request that has the right to read the table, and not
    /// to change it. Such a client may decide the operations by which its transaction depends on an
    /// object, but must not make the server write completions of operations that it does not know.
    pub(super) fn is_for_readers(&self, request: &Request<'_>) -> bool {
        let Request::Decide { table, id, decision, .. } = *request else {
            return !request.needs_write_right();
        };
        match self.log.plan(table, &OperationId::of_bytes(id).unmarked()) {
            Some(plan) => !plan.action().changes(),
            None => matches!(decision, Decision::Commit | Decision::End),
        }
    }

    /// Prepares an operation of a transaction. It does not wait for a lock of another transaction,
    /// which may be waiting for a lock of this one.
    pub(super) fn prepare_operation(
        &mut self,
        change: &Change<'_>,
        key: &[u8],
        condition: Condition,
        plan: &Plan<'_>,
    ) -> Outcome<MasterBody> {
        self.counts.prepares += 1;
        let table = change.table;
        let named = change.operation.and_then(|id| plan.participant(table, id));
        let Some(participant) = named else {
            self.counts.malformed += 1;
            return Outcome::Reply(answer(Status::Malformed, false, 0, 0, Repeat::Retain));
        };
        let prepared = answer(Status::Ok, false, 0, 0, Repeat::Retain);
        if self.log.locked_key(&participant).is_some() {
            return self.acknowledge(change.id, prepared);
        }
        if let Some(outcome) = self.reject_change(change.operation) {
            return outcome;
        }
        if self.log.is_locked(table, key, plan.action().changes()) {
            self.counts.locked += 1;
            return self.refuse(change, (key, self.log.find(table, key)), Status::Aborted, 0);
        }
        if let Err(outcome) =
            self.expire(table, key).and_then(|()| self.check(change, key, condition))
        {
            return outcome;
        }
        let room = self.seal_if_short(Log::prepared_len(key, plan) + MAX_ALONE, false);
        let written = room.and_then(|()| match self.commits_last {
            true => self.log.commit_last(&participant, key, plan.action()),
            false => self.log.prepare((table, key), &participant.id, plan),
        });
        match written {
            Ok(()) => {
                if self.commits_last {
                    // The operation may have removed the object.
                    self.removed_at = self.log.position();
                    self.counts.commits += 1;
                }
                self.note_operation(&participant, Some(key));
                self.acknowledge(change.id, prepared)
            }
            Err(log_full) => self.log_full(log_full, change.operation),
        }
    }

    /// Decides an operation of a transaction. Repeating a decision changes nothing.
    pub(super) fn decide(
        &mut self,
        id: RequestId,
        participant: &Participant,
        decision: Decision,
    ) -> Outcome<MasterBody> {
        if let Some(outcome) = self.reject_change(None) {
            return outcome;
        }
        let Ok(state) = self.carry_out(participant, decision) else {
            self.counts.turned_away += 1;
            return Outcome::Retry(BUSY_MICROS);
        };
        self.acknowledge(id, answer(Status::Ok, false, 0, state as u64, Repeat::Retain))
    }

    /// Carries out a decision, and returns the state of the operation after it. The state is
    /// certain once the log is durable.
    pub(super) fn carry_out(
        &mut self,
        participant: &Participant,
        decision: Decision,
    ) -> Result<OperationState, Full> {
        match (decision, self.log.operation_state(participant)) {
            (Decision::Commit, OperationState::Prepared) => self.commit(participant),
            (Decision::Vote, OperationState::Ended)
            | (Decision::Abort, OperationState::Ended | OperationState::Prepared) => {
                self.abort(participant)
            }
            (Decision::End, _) => self.end(participant),
            _ => Ok(()),
        }?;
        Ok(self.log.operation_state(participant))
    }

    pub(super) fn commit(&mut self, participant: &Participant) -> Result<(), Full> {
        let bytes = self.log.prepared_bytes(participant).expect("it is prepared");
        self.seal_if_short(bytes + MAX_ALONE, true)?;
        let key = self.key_to_note(participant);
        self.log.commit(participant)?;
        // The operation may have removed the object.
        self.removed_at = self.log.position();
        self.counts.commits += 1;
        self.note_operation(participant, Some(&key));
        Ok(())
    }

    fn abort(&mut self, participant: &Participant) -> Result<(), Full> {
        if !self.log.takes_client(participant.id.client) {
            return Err(Full::Replication);
        }
        self.seal_if_short(MAX_ALONE, true)?;
        self.log.abort(participant)?;
        self.counts.aborts += 1;
        self.note_operation(participant, None);
        Ok(())
    }

    pub(super) fn end(&mut self, participant: &Participant) -> Result<(), Full> {
        let Some(bytes) = self.log.prepared_bytes(participant) else { return Ok(()) };
        self.seal_if_short(bytes, true)?;
        let key = self.key_to_note(participant);
        self.log.end(participant)?;
        self.note_operation(participant, Some(&key));
        Ok(())
    }

    /// Returns the key of the object of a prepared operation, for
    /// [`note_operation`](Self::note_operation); an empty one if that does nothing.
    fn key_to_note(&self, participant: &Participant) -> Vec<u8> {
        if self.migration_sources.is_empty() && self.feeds.are_none() {
            return Vec::new();
        }
        self.log.locked_key(participant).expect("it is prepared").to_vec()
    }

    /// Records what may have changed by an operation of a transaction, for the server to which the
    /// object's tablet is moving, if it is moving: the completion and, given the object's key, the
    /// object and the prepared entry.
    fn note_operation(&mut self, participant: &Participant, key: Option<&[u8]>) {
        if let Some(key) = key
            && !self.feeds.are_none()
        {
            self.feeds.note(&self.log, participant.table, key);
        }
        if self.migration_sources.is_empty() {
            return;
        }
        let Participant { table, position, id } = *participant;
        let position = key.map_or(position, |key| self.log.position_of(table, key));
        let completion = (table | COMPLETIONS, Box::from(&id.key()[..]));
        let object = key.map(|key| (table, key.into()));
        let prepared = key.map(|key| (table | PREPARED, prepared_key(key, &id).into()));
        self.migration_sources.note_at((table, position), [Some(completion), object, prepared]);
    }
}
