//! Prepared entries, by which operations of transactions lock objects, and what becomes of them.
//!
//! The log keeps an index of its prepared entries. Whether one still locks its object follows from
//! the operation's completion, so a log that was restored, or has taken over a tablet, has the
//! locks without further work. See [`sprat_wire::transaction`].

use crate::completions::Operation;
use crate::log::{Appender, Content, Full, Log, Ref};
use sprat_wire::entry::HEADER_BYTES;
use sprat_wire::expiry::NEVER;
use sprat_wire::once::{COMPLETIONS, Completion, OperationId};
use sprat_wire::op::Status;
use sprat_wire::tablet::{Range, Tablet};
use sprat_wire::transaction::{
    OperationState, PREPARED, Participant, Plan, TransactionAction, parse_prepared_key,
    prepared_key,
};
use std::collections::{BTreeMap, BTreeSet};

/// A prepared entry.
#[derive(Debug)]
struct PreparedEntry {
    /// The entry's key.
    key: Box<[u8]>,
    /// The position of the entry, and of the object that it locks.
    position: u64,
    /// Bytes of the entry in the log.
    len: usize,
}

/// The prepared entries of a log.
#[derive(Debug, Default)]
pub(crate) struct PreparedEntries {
    /// By the table and the id of the operation.
    entries: BTreeMap<(u32, OperationId), PreparedEntry>,
    /// The operations by the place of their object: table and position.
    places: BTreeSet<(u32, u64, OperationId)>,
    /// Bytes that are left free for decisions: the bytes of all entries. The change and the
    /// completion of an operation are not longer than its prepared entry.
    pub(crate) promised: usize,
}

impl PreparedEntries {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn get(&self, participant: &Participant) -> Option<&PreparedEntry> {
        self.entries.get(&(participant.table, participant.id))
    }

    /// Adds the entry of an operation, which has this key, at this position.
    fn add(&mut self, (table, id): (u32, OperationId), key: &[u8], position: u64, len: usize) {
        self.remove(table, id);
        self.entries.insert((table, id), PreparedEntry { key: key.into(), position, len });
        self.places.insert((table, position, id));
        self.promised += len;
    }

    fn remove(&mut self, table: u32, id: OperationId) {
        if let Some(PreparedEntry { position, len, .. }) = self.entries.remove(&(table, id)) {
            self.places.remove(&(table, position, id));
            self.promised -= len;
        }
    }

    /// Returns the operations on objects of a tablet.
    fn of_tablet(&self, Tablet { table, range }: Tablet) -> impl Iterator<Item = OperationId> {
        let least = OperationId { client: 0, slot: 0, sequence: 0, resent: false };
        let most =
            OperationId { client: u64::MAX, slot: u16::MAX, sequence: u64::MAX, resent: true };
        self.places
            .range((table, range.first, least)..=(table, range.last, most))
            .map(|(_, _, id)| *id)
    }

    /// Forgets the entries of a tablet.
    pub(crate) fn drop_tablet(&mut self, tablet: Tablet) {
        let gone: Vec<_> = self.of_tablet(tablet).collect();
        gone.into_iter().for_each(|id| self.remove(tablet.table, id));
    }
}

/// Returns whether an entry of a table of prepared entries is one.
pub(crate) fn is_prepared_entry(table: u32, key: &[u8], value: &[u8]) -> bool {
    let (Some((_, id)), Some(plan)) = (parse_prepared_key(key), Plan::parse(value)) else {
        return false;
    };
    plan.participant(table & !PREPARED, &id).is_some()
}

impl Log {
    /// Returns whether any operation is prepared here, and was not ended.
    #[inline]
    #[must_use]
    pub fn has_prepared(&self) -> bool {
        !self.prepared.is_empty()
    }

    /// Returns the operations that are prepared here and were not ended, each as its table and id.
    pub fn prepared(&self) -> impl Iterator<Item = (u32, OperationId)> {
        self.prepared.entries.keys().copied()
    }

    /// Returns the keys of the prepared entries of a tablet.
    pub fn prepared_keys(&self, tablet: Tablet) -> impl Iterator<Item = &[u8]> {
        let entries = &self.prepared.entries;
        self.prepared.of_tablet(tablet).map(move |id| &entries[&(tablet.table, id)].key[..])
    }

    /// Returns the prepared entry of an operation.
    fn prepared_entry(&self, table: u32, id: &OperationId) -> Option<Ref> {
        self.find(table | PREPARED, &self.prepared.entries.get(&(table, *id))?.key)
    }

    /// Returns the plan of an operation that is prepared.
    ///
    /// # Panics
    /// When the prepared entry is not one, which nothing writes or restores.
    #[must_use]
    pub fn plan(&self, table: u32, id: &OperationId) -> Option<Plan<'_>> {
        let entry = self.entry(self.prepared_entry(table, id)?);
        Some(Plan::parse(entry.value).expect("checked when it was written"))
    }

    /// Returns the number of bytes of the prepared entry of an operation; `None` if it is not
    /// prepared, or was ended.
    #[must_use]
    pub fn prepared_bytes(&self, participant: &Participant) -> Option<usize> {
        self.prepared.get(participant).map(|entry| entry.len)
    }

    /// Returns the key of the object that a prepared operation concerns.
    #[must_use]
    pub fn locked_key(&self, participant: &Participant) -> Option<&[u8]> {
        parse_prepared_key(&self.prepared.get(participant)?.key).map(|(key, _)| key)
    }

    /// Returns whether an operation is prepared that was not decided and excludes others on the
    /// object: those that change it, or, if `changes`, also those that only depend on it.
    ///
    /// If there is no such object, those that depend on it exclude all others. The object may have
    /// expired while the log was restored: a client that found none could conclude that the
    /// transaction was committed before, and read another of its objects that is not locked yet.
    #[must_use]
    pub fn is_locked(&self, table: u32, key: &[u8], changes: bool) -> bool {
        if self.prepared.is_empty() {
            return false;
        }
        let changes = changes || self.find(table, key).is_none();
        let position = self.hash(table, key).reverse_bits();
        let range = Range { first: position, last: position };
        self.prepared.of_tablet(Tablet { table, range }).any(|id| {
            let entry = &self.prepared.entries[&(table, id)];
            parse_prepared_key(&entry.key).is_some_and(|(locked, _)| locked == key)
                && self.locks(table, &id, changes)
        })
    }

    /// Returns the first position in a tablet at which an object is [locked](Self::is_locked)
    /// against reads.
    #[must_use]
    pub fn first_locked(&self, tablet: Tablet) -> Option<u64> {
        let Tablet { table, .. } = tablet;
        let locks = |id: &OperationId| {
            let key = &self.prepared.entries[&(table, *id)].key;
            let (key, _) = parse_prepared_key(key).expect("checked when it was written");
            self.locks(table, id, self.find(table, key).is_none())
        };
        let first = self.prepared.of_tablet(tablet).find(locks)?;
        Some(self.prepared.entries[&(table, first)].position)
    }

    /// Returns the objects of a table that are [locked](Self::is_locked) against reads: position,
    /// key, and what the operation that locks the object is to do.
    pub(crate) fn locked(
        &self,
        table: u32,
    ) -> impl Iterator<Item = (u64, &[u8], TransactionAction<'_>)> {
        self.prepared.of_tablet(Tablet::whole(table)).filter_map(move |id| {
            let entry = &self.prepared.entries[&(table, id)];
            let (key, _) = parse_prepared_key(&entry.key)?;
            let is_locked = self.locks(table, &id, self.find(table, key).is_none());
            let plan = self.plan(table, &id).filter(|_| is_locked)?;
            Some((entry.position, key, plan.action()))
        })
    }

    fn locks(&self, table: u32, id: &OperationId, changes: bool) -> bool {
        self.decided(table, id).is_none()
            && (changes || self.plan(table, id).is_some_and(|plan| plan.action().changes()))
    }

    /// Returns the state of an operation of a transaction.
    #[must_use]
    pub fn operation_state(&self, participant: &Participant) -> OperationState {
        match self.decided(participant.table, &participant.id) {
            Some(state) => state,
            None if self.prepared.get(participant).is_some() => OperationState::Prepared,
            None => OperationState::Ended,
        }
    }

    /// Returns how an operation was decided; `None` when it was not. If the client has used the
    /// operation's slot again, the operation was ended.
    fn decided(&self, table: u32, id: &OperationId) -> Option<OperationState> {
        let known = self.entry(self.completion(table, id)?);
        let completion = Completion::of(&known)?;
        if known.version > id.sequence {
            return Some(OperationState::Ended);
        }
        if known.version < id.sequence || completion.is_begun() {
            return None;
        }
        Some(match completion.status {
            Status::Ok => OperationState::Committed,
            _ => OperationState::Aborted,
        })
    }

    /// Prepares an operation on an object, which the operation locks from now on.
    ///
    /// # Errors
    /// [`Full`] when memory or the disk has no room for the prepared entry and later for the
    /// change, perhaps only until more of the log is durable or until pins are released. The log is
    /// unchanged then.
    ///
    /// # Panics
    /// When the key or the plan is over its limit: callers check input from outside.
    pub fn prepare(
        &mut self,
        (table, key): (u32, &[u8]),
        id: &OperationId,
        plan: &Plan<'_>,
    ) -> Result<(), Full> {
        let (table, key) = (table | PREPARED, prepared_key(key, id));
        self.put(table, &key, plan.bytes()).map(drop)
    }

    /// Returns the number of bytes that the prepared entry of an operation takes in the log.
    #[must_use]
    pub fn prepared_len(key: &[u8], plan: &Plan<'_>) -> usize {
        HEADER_BYTES + key.len() + sprat_wire::once::OPERATION_ID_BYTES + plan.bytes().len()
    }

    /// Commits an operation that is prepared and not decided: writes its change, if it has one, and
    /// its completion. Does nothing for other operations.
    ///
    /// # Errors
    /// [`Full`] when there is no room for now. Memory was left free for the change.
    pub fn commit(&mut self, participant: &Participant) -> Result<(), Full> {
        if self.operation_state(participant) != OperationState::Prepared {
            return Ok(());
        }
        let Participant { table, id, .. } = *participant;
        let entry = self.entry(self.prepared_entry(table, &id).expect("it is prepared"));
        let key = parse_prepared_key(entry.key).expect("checked when it was written").0.to_vec();
        let plan = entry.value.to_vec();
        let action = Plan::parse(&plan).expect("checked when it was written").action();
        self.carry_out(participant, &key, action, Appender::Decision)
    }

    /// Commits an operation that is not prepared and not decided: the last one of a transaction of
    /// which all others are prepared in this log. Wherever the log ends after a crash, it has
    /// either prepared them and not this one, or has committed this one, and with it all.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    ///
    /// # Panics
    /// When the key or the value is over its limit: callers check input from outside.
    pub fn commit_last(
        &mut self,
        participant: &Participant,
        key: &[u8],
        action: TransactionAction<'_>,
    ) -> Result<(), Full> {
        let position = self.hash(participant.table, key).reverse_bits();
        let participant = Participant { position, ..*participant };
        self.carry_out(&participant, key, action, Appender::Writer)
    }

    /// Writes an operation's change, if there is one, and its completion.
    fn carry_out(
        &mut self,
        participant: &Participant,
        key: &[u8],
        action: TransactionAction<'_>,
        appender: Appender,
    ) -> Result<(), Full> {
        let Participant { table, id, .. } = *participant;
        let operation = Operation { id, result: &[] };
        let done = match action {
            TransactionAction::Check => false,
            TransactionAction::Write(value, ttl) => {
                let expires = ttl.map_or(NEVER, |ttl| ttl.after(self.time()));
                let content = Content { expires, ..Content::bytes(value) };
                self.write(table, key, content, None, Some(&operation), appender)?;
                true
            }
            TransactionAction::Remove => self.remove_once(table, key, &operation)?.is_some(),
        };
        if done { Ok(()) } else { self.complete_decided(participant, Status::Ok, appender) }
    }

    /// Aborts an operation that is not decided: writes its completion, so that it will not be
    /// prepared any more. Does nothing for an operation that is decided.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn abort(&mut self, participant: &Participant) -> Result<(), Full> {
        match self.decided(participant.table, &participant.id) {
            Some(_) => Ok(()),
            None => self.complete_decided(participant, Status::Aborted, Appender::Decision),
        }
    }

    /// Removes the prepared entry of an operation, if it is decided.
    ///
    /// # Errors
    /// [`Full`] when there is no room for the tombstone. The log is unchanged then.
    pub fn end(&mut self, participant: &Participant) -> Result<(), Full> {
        if self.decided(participant.table, &participant.id).is_none() {
            return Ok(());
        }
        let Some(entry) = self.prepared.get(participant) else { return Ok(()) };
        let key = entry.key.clone();
        self.remove(participant.table | PREPARED, &key).map(drop)
    }

    fn complete_decided(
        &mut self,
        participant: &Participant,
        status: Status,
        appender: Appender,
    ) -> Result<(), Full> {
        let Participant { table, position, id } = participant;
        let position = self.prepared.get(participant).map_or(*position, |entry| entry.position);
        let completion =
            Completion { joined: false, status, version: 0, position: Some(position), result: &[] };
        let entry = (*table | COMPLETIONS, &id.key()[..], id.sequence);
        self.write_completion(entry, &completion, appender)
    }

    /// Adds an object that the hash table did not have to the index, if it is a prepared entry.
    pub(crate) fn index_prepared(&mut self, table: u32, key: &[u8], hash: u64, len: usize) {
        if let Some((table, id)) = operation_of(table, key) {
            self.prepared.add((table, id), key, hash.reverse_bits(), len);
            self.clients.note_heard(id.client);
        }
    }

    /// Removes an object that is no longer in the hash table from the index.
    pub(crate) fn unindex_prepared(&mut self, table: u32, key: &[u8]) {
        if let Some((table, id)) = operation_of(table, key) {
            self.prepared.remove(table, id);
        }
    }
}

/// Returns the table and the id of the operation of a prepared entry; `None` for other objects.
fn operation_of(table: u32, key: &[u8]) -> Option<(u32, OperationId)> {
    if table & PREPARED == 0 {
        return None;
    }
    parse_prepared_key(key).map(|(_, id)| (table & !PREPARED, id))
}
