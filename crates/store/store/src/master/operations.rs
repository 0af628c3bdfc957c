//! Executes each request that a master receives.

use super::body::MasterBody;
use super::timing::Mark;
use super::transactions::LOCKED_MICROS;
use super::{Master, ServedTablets};
use crate::answers::{answer, answer_text, denied};
use crate::moving::CollectedBatch;
use crate::replication::{Outlook, Replicator};
use sprat_disk::Disk;
use sprat_log::{Content, Full, Log, Operation, Ref};
use sprat_net::Nanos;
use sprat_rpc::{Outcome, Repeat, Reply, RequestId};
use sprat_wire::certificate::{Rights, Role};
use sprat_wire::elements::{self, ELEMENTS};
use sprat_wire::entry::{Entry, HEADER_BYTES, Kind, entry_len};
use sprat_wire::expiry::{NEVER, Time, Ttl};
use sprat_wire::once::{
    COMPLETION_KEY_BYTES, COMPLETIONS, Completion, MAX_COMPLETION, MAX_RESULT, OperationId,
};
use sprat_wire::op::{
    Condition, Item, MoveCursor, MoveStage, RESPONSE_BYTES, Request, Status, encode_answer,
    encode_object, push_counter, write_scan_record,
};
use sprat_wire::tablet::{Range, Tablet};
use sprat_wire::transaction::Participant;
use sprat_wire::value::{Number, ValueType};
use zerocopy::IntoBytes;

/// Bytes of objects at which a scan's reply ends. The object that reaches this limit is sent whole,
/// and with it all objects whose keys have the same hash.
pub(super) const SCAN_BYTES: usize = 64 << 10;

/// Number of objects at which a scan's reply ends. Only objects whose keys have the same hash as
/// the last one can exceed it.
pub(super) const SCAN_OBJECTS: usize = 256;

/// Limit on the log bytes of the completion of an operation that changed nothing.
pub(super) const MAX_ALONE: usize = HEADER_BYTES + COMPLETION_KEY_BYTES + MAX_COMPLETION;

/// A change that a client requests.
pub(super) struct Change<'a> {
    pub(super) id: RequestId,
    pub(super) table: u32,
    /// The operation's id, if it must take effect once only.
    pub(super) operation: Option<&'a OperationId>,
}

impl Change<'_> {
    /// Returns the completion to write when the operation is done with this result; `None` if the
    /// operation need not take effect once only.
    fn done<'r>(&self, result: &'r [u8]) -> Option<Operation<'r>> {
        self.operation.map(|&id| Operation { id, result })
    }
}

/// Returns a reply with a few bytes of body, which need no buffer.
fn short_answer(status: Status, number: u64, body: &[u8]) -> Reply<MasterBody> {
    let mut head = [0; RESPONSE_BYTES + MAX_RESULT];
    head[..RESPONSE_BYTES].copy_from_slice(encode_answer(status, false, 0, number).as_bytes());
    head[RESPONSE_BYTES..][..body.len()].copy_from_slice(body);
    Reply::new(&head[..RESPONSE_BYTES + body.len()], Repeat::Retain)
}

/// Retry delay, in microseconds, in all cases for which [`SHARE_MICROS`] and [`FEW_MICROS`] are not
/// meant: for example before the first assignment, without a lease, or while too many replies wait.
pub(super) const BUSY_MICROS: u32 = 500;

/// Retry delay, in microseconds, for reads of a session that has used up its share of pinned
/// values: the session must acknowledge some replies first.
const SHARE_MICROS: u32 = 5_000;

/// Retry delay, in microseconds, for changes while too few backups take replicas.
const FEW_MICROS: u32 = 20_000;

/// Appends the objects of a page to the reply to a scan.
pub(super) fn push_objects(out: &mut Vec<u8>, log: &Log, found: &[Ref]) {
    for entry in found.iter().map(|&found| log.entry(found)) {
        let Entry { version, key, value, value_type, expires, .. } = entry;
        let ttl = Ttl::left(log.time(), expires);
        write_scan_record(out, &Item { version, key, value, value_type, ttl });
    }
}

impl<D: Disk> Master<D> {
    #[inline]
    pub(super) fn dispatch(
        &mut self,
        now: Nanos,
        id: RequestId,
        request: &Request<'_>,
        operation: Option<&OperationId>,
    ) -> Outcome<MasterBody> {
        self.note_evicted();
        let Some(table) = request.table() else {
            if let Request::Collect { order, stage, from } = *request {
                return self.collect(id, (order, stage, from));
            }
            if let Request::Batch { items } = *request {
                return self.batch(now, id, items);
            }
            if let Request::CopyLog { step } = *request {
                return self.copy_log(now, id, step);
            }
            if *request == Request::ServerStats {
                if id.requester().role() == Some(Role::Client) {
                    return denied();
                }
                return if self.counter_requests.add_request(id) {
                    Outcome::Pending
                } else {
                    Outcome::Retry(BUSY_MICROS)
                };
            }
            let reason = "this is a server of objects; ask the coordinator";
            return answer_text(&mut self.held.made, Status::WrongRole, reason);
        };
        let tablet = match self.locate(request, table) {
            Ok(tablet) => tablet,
            Err(outcome) => return outcome,
        };
        match self.access_rules.rights(id.requester(), table) {
            Some(Rights::Write) => {}
            Some(Rights::Read) if self.is_for_readers(request) => {}
            Some(Rights::Read) => return denied(),
            // The reply is the same as for a table that is not here, so that a client learns
            // nothing by guessing table ids.
            None => {
                return Outcome::Reply(answer(Status::UnknownTable, false, 0, 0, Repeat::Retain));
            }
        }
        if !self.is_leased(now) {
            // Another server may serve the tablet by now. The request was not executed here, and
            // the server that holds the tablet now will answer it.
            self.counts.turned_away += 1;
            return Outcome::Retry(BUSY_MICROS);
        }
        if !self.waiting.admits(id.session()) {
            self.counts.turned_away += 1;
            return Outcome::Retry(BUSY_MICROS);
        }
        if let Some(operation) = operation
            && let Some(outcome) = self.completed_before(id, table, operation)
        {
            return outcome;
        }
        if let Err(outcome) = self.settle_object(now, request) {
            return outcome;
        }
        let change = Change { id, table, operation };
        match *request {
            Request::Read { key, .. } => self.read(id, table, key),
            Request::Write { key, value, condition, ttl, .. } => {
                let content = Content { expires: self.expires(ttl), ..Content::bytes(value) };
                self.write(&change, key, content, condition)
            }
            Request::SetTtl { key, condition, ttl, .. } => {
                self.set_ttl(&change, key, condition, ttl)
            }
            Request::Remove { key, condition, .. } => self.remove(&change, key, condition),
            Request::IncrementI64 { key, delta, .. } => {
                self.increment(&change, key, Number::Integer(delta))
            }
            Request::IncrementF64 { key, delta, .. } => {
                self.increment(&change, key, Number::Double(delta))
            }
            Request::Restore { key, value, value_type, version, ttl, .. } => {
                let expires = self.expires(ttl);
                let (table, value_type) = match value_type {
                    Some(value_type) => (table, value_type),
                    None => (table | ELEMENTS, ValueType::Bytes),
                };
                let content = Content { value, value_type, expires };
                self.restore(&change, (table, key), content, version)
            }
            Request::Prepare { key, condition, plan, .. } => {
                self.prepare_operation(&change, key, condition, &plan)
            }
            Request::Decide { table, position, id: operation, decision } => {
                let operation = OperationId::of_bytes(operation).unmarked();
                self.decide(id, &Participant { table, position, id: operation }, decision)
            }
            Request::Scan { after, .. } => self.scan(id, tablet, after),
            Request::ScanRange { query, .. } => self.scan_range(id, table, &query),
            Request::Watch { from, .. } => self.watch(now, id, tablet, from),
            Request::TableStats { .. } => self.table_stats(id, table),
            Request::Echo { value, .. } => self.echo(id, value),
            _ => unreachable!("answered above"),
        }
    }

    /// Finds the tablet that a request concerns, and counts the request. The error is the reply:
    /// the tablet is not here, or is just moving.
    #[inline]
    pub(super) fn locate(
        &mut self,
        request: &Request<'_>,
        table: u32,
    ) -> Result<Tablet, Outcome<MasterBody>> {
        let Some(tablets) = &self.served.tablets else { return Err(Outcome::Retry(BUSY_MICROS)) };
        let position = |first: Tablet| match request {
            // The counts are of all the table's tablets on this server, so any position will do.
            Request::TableStats { .. } => first.range.first,
            _ => request.position(self.log.config().seed),
        };
        let Some((at, position)) = ServedTablets::find(tablets, table, position) else {
            // The reply is retained: a late duplicate of this request must not be executed after
            // the tablet has moved here.
            return Err(Outcome::Reply(answer(Status::UnknownTable, false, 0, 0, Repeat::Retain)));
        };
        let tablet = tablets[at];
        self.served.requests[at].count(position);
        if !self.migration_sources.is_empty() {
            let position = request.position(self.log.config().seed);
            if self.migration_sources.holds_back(request, tablet, position) {
                self.counts.turned_away += 1;
                return Err(Outcome::Retry(BUSY_MICROS));
            }
        }
        Ok(tablet)
    }

    /// Makes sure that a request may meet its object: no transaction locks the object, and it has
    /// not expired. The error is the reply.
    #[inline]
    pub(super) fn settle_object(
        &mut self,
        now: Nanos,
        request: &Request<'_>,
    ) -> Result<(), Outcome<MasterBody>> {
        if self.log.has_prepared()
            && let Some(outcome) = self.meets_lock(request)
        {
            return Err(outcome);
        }
        if self.log.has_expiring() || request.has_ttl() {
            // The thread may have been descheduled since the last iteration.
            self.state_time(now);
        }
        if self.log.has_expiring()
            && let Some((table, key)) = request.object()
            && !matches!(request, Request::Prepare { .. })
        {
            self.expire(table, key)?;
        }
        Ok(())
    }

    #[inline]
    fn read(&mut self, id: RequestId, table: u32, key: &[u8]) -> Outcome<MasterBody> {
        self.counts.reads += 1;
        let found = self.log.find(table, key);
        self.mark(Mark::Found);
        let Some(found) = found else {
            return self.reply_when_durable(
                id,
                None,
                answer(Status::NotFound, false, 0, 0, Repeat::Reexecute),
            );
        };
        self.log.note_used(table, found);
        let Entry { version, value_type, expires, .. } = self.log.entry(found);
        let ttl = Ttl::left(self.log.time(), expires);
        let Some(body) = self.held.pin(id.session(), &mut self.log, found) else {
            self.counts.turned_away += 1;
            return Outcome::Retry(SHARE_MICROS);
        };
        let header = encode_object(version, value_type, ttl);
        let reply = Reply::new(header.as_bytes(), Repeat::Reexecute).with_body(body);
        self.reply_when_durable(id, Some(found), reply)
    }

    fn write(
        &mut self,
        change: &Change<'_>,
        key: &[u8],
        content: Content<'_>,
        condition: Condition,
    ) -> Outcome<MasterBody> {
        self.counts.writes += 1;
        if let Some(outcome) = self.reject_change(change.operation) {
            return outcome;
        }
        if condition != Condition::None
            && let Err(outcome) = self.check(change, key, condition)
        {
            return outcome;
        }
        self.put_and_acknowledge(change, key, content)
    }

    /// Stores an object of a backup, unless there is one of that version or a later one.
    fn restore(
        &mut self,
        change: &Change<'_>,
        (table, key): (u32, &[u8]),
        content: Content<'_>,
        version: u64,
    ) -> Outcome<MasterBody> {
        if !change.id.requester().administers() {
            return denied();
        }
        self.counts.writes += 1;
        if let Some(outcome) = self.reject_change(change.operation) {
            return outcome;
        }
        let Content { value, value_type, expires } = content;
        let (kind, successor) = (Kind::Object, false);
        let entry = Entry { kind, successor, table, version, key, value, value_type, expires };
        let restored = self.seal_if_short(entry.encoded_len(), false);
        match restored.and_then(|()| self.log.adopt(&entry)) {
            Ok(true) if table == change.table => self.note_change(table, key, change.operation),
            Ok(true) => self.note_element(change.table, key, change.operation),
            Ok(false) => {}
            Err(log_full) => return self.log_full(log_full, change.operation),
        }
        let found = self.log.find(table, key).expect("this version or a later one");
        let version = self.log.entry(found).version;
        self.acknowledge(change.id, answer(Status::Ok, false, 0, version, Repeat::Retain))
    }

    /// Returns when an object expires that gets this time to live now.
    fn expires(&self, ttl: Option<Ttl>) -> Time {
        ttl.map_or(NEVER, |ttl| ttl.after(self.log.time()))
    }

    fn set_ttl(
        &mut self,
        change: &Change<'_>,
        key: &[u8],
        condition: Condition,
        ttl: Option<Ttl>,
    ) -> Outcome<MasterBody> {
        self.counts.ttls += 1;
        if let Some(outcome) = self.reject_change(change.operation) {
            return outcome;
        }
        if let Err(outcome) = self.check(change, key, condition) {
            return outcome;
        }
        let Some(found) = self.log.find(change.table, key) else {
            return self.refuse(change, (key, None), Status::NotFound, 0);
        };
        let Entry { value, value_type, .. } = self.log.entry(found);
        let value = value.to_vec();
        let content = Content { value: &value, value_type, expires: self.expires(ttl) };
        self.put_and_acknowledge(change, key, content)
    }

    fn remove(
        &mut self,
        change: &Change<'_>,
        key: &[u8],
        condition: Condition,
    ) -> Outcome<MasterBody> {
        self.counts.removes += 1;
        if let Some(outcome) = self.reject_change(change.operation) {
            return outcome;
        }
        if let Err(outcome) = self.check(change, key, condition) {
            return outcome;
        }
        let operation = change.done(&[]);
        let before = operation.as_ref().map_or(0, Operation::len);
        let removed =
            self.seal_if_short(before + HEADER_BYTES + key.len() + size_of::<u64>(), true);
        let removed = removed.and_then(|()| match &operation {
            Some(operation) => self.log.remove_once(change.table, key, operation),
            None => self.log.remove(change.table, key),
        });
        match removed {
            Ok(Some(version)) => {
                self.removed_at = self.log.position();
                self.note_change(change.table, key, change.operation);
                self.acknowledge(change.id, answer(Status::Ok, false, 0, version, Repeat::Retain))
            }
            Ok(None) => self.refuse(change, (key, None), Status::NotFound, 0),
            Err(log_full) => self.log_full(log_full, change.operation),
        }
    }

    fn increment(&mut self, change: &Change<'_>, key: &[u8], delta: Number) -> Outcome<MasterBody> {
        self.counts.increments += 1;
        if let Some(outcome) = self.reject_change(change.operation) {
            return outcome;
        }
        let found = self.log.find(change.table, key);
        let entry = found.map(|found| self.log.entry(found));
        let expires = entry.map_or(NEVER, |entry| entry.expires);
        let present = entry.map(|entry| (entry.value_type, entry.value));
        let sum = match delta.added_to(present) {
            Ok(sum) => sum,
            Err(why) => return self.refuse(change, (key, found), Status::NotANumber, why as u64),
        };
        let value = sum.bytes();
        let content = Content { value: &value, value_type: sum.value_type(), expires };
        match self.put(change, key, content, &value) {
            Ok(version) => {
                self.acknowledge(change.id, short_answer(Status::Ok, version, &sum.bytes()))
            }
            Err(outcome) => outcome,
        }
    }

    /// Returns the reply to an operation that was executed before, or that is superseded: a later
    /// operation of the same request slot proves that the client no longer waits for it. Asks the
    /// client to retry if the log can keep no completions of another client. Returns `None` if the
    /// operation is to be executed.
    fn completed_before(
        &mut self,
        id: RequestId,
        table: u32,
        operation: &OperationId,
    ) -> Option<Outcome<MasterBody>> {
        let Some(found) = self.log.completion(table, operation) else {
            return (!self.log.takes_client(operation.client))
                .then_some(Outcome::Retry(BUSY_MICROS));
        };
        let entry = self.log.entry(found);
        if entry.version < operation.sequence {
            return None;
        }
        let completion = Completion::of(&entry).expect("as the log wrote it");
        if entry.version == operation.sequence && completion.is_begun() {
            return None;
        }
        self.counts.repeated += 1;
        if entry.version > operation.sequence {
            let reason = "a later operation of its request slot was executed: no client can still \
                          wait for this one";
            return Some(answer_text(&mut self.held.made, Status::Refused, reason));
        }
        let reply = short_answer(completion.status, completion.version, completion.result);
        // The entries that the operation wrote lie behind its completion in the log and must also
        // be durable.
        Some(self.wait_for(self.log.position(), id, reply))
    }

    fn echo(&mut self, id: RequestId, value: &[u8]) -> Outcome<MasterBody> {
        let Some(body) = self.held.made.make(id.session(), |out| out.extend_from_slice(value))
        else {
            return Outcome::Retry(BUSY_MICROS);
        };
        Outcome::Reply(
            answer(Status::Ok, false, 0, 0, Repeat::Reexecute).with_body(MasterBody::Made(body)),
        )
    }

    /// Checks the condition of a change; the error is the reply.
    pub(super) fn check(
        &mut self,
        change: &Change<'_>,
        key: &[u8],
        condition: Condition,
    ) -> Result<(), Outcome<MasterBody>> {
        let found = self.log.find(change.table, key);
        let version = found.map(|found| self.log.entry(found).version);
        if condition.holds(version) {
            return Ok(());
        }
        self.counts.conflicts += 1;
        Err(self.refuse(change, (key, found), Status::Conflict, version.unwrap_or(0)))
    }

    /// Replies that nothing was changed, because of the object that was found or missing. If the
    /// operation was sent before, its completion is written to the log: an earlier copy may still
    /// be in flight and must not be executed when it arrives. If the log is full, the client must
    /// retry.
    pub(super) fn refuse(
        &mut self,
        change: &Change<'_>,
        (key, found): (&[u8], Option<Ref>),
        status: Status,
        number: u64,
    ) -> Outcome<MasterBody> {
        let reply = answer(status, false, 0, number, Repeat::Retain);
        let Some(operation) = change.operation.filter(|operation| operation.resent) else {
            return self.reply_when_durable(change.id, found, reply);
        };
        let kept = self.seal_if_short(MAX_ALONE, true);
        match kept
            .and_then(|()| self.log.complete_alone((change.table, key), operation, status, number))
        {
            Ok(()) => {
                self.note_change(change.table, key, change.operation);
                self.acknowledge(change.id, reply)
            }
            Err(_) => Outcome::Retry(BUSY_MICROS),
        }
    }

    /// Writes an object, and replies with its version.
    fn put_and_acknowledge(
        &mut self,
        change: &Change<'_>,
        key: &[u8],
        content: Content<'_>,
    ) -> Outcome<MasterBody> {
        match self.put(change, key, content, &[]) {
            Ok(version) => {
                self.acknowledge(change.id, answer(Status::Ok, false, 0, version, Repeat::Retain))
            }
            Err(outcome) => outcome,
        }
    }

    /// Writes an object and returns its version; the error is the reply. `result` is the body of
    /// the reply, which the completion keeps.
    fn put(
        &mut self,
        change: &Change<'_>,
        key: &[u8],
        content: Content<'_>,
        result: &[u8],
    ) -> Result<u64, Outcome<MasterBody>> {
        let operation = change.done(result);
        let len = operation.as_ref().map_or(0, Operation::len)
            + entry_len(key.len(), content.value.len(), content.expires);
        let put = self.seal_if_short(len, false);
        let put =
            put.and_then(|()| self.log.put_content(change.table, key, content, operation.as_ref()));
        self.mark(Mark::Found);
        let written = put.map_err(|log_full| self.log_full(log_full, change.operation))?;
        self.note_change(change.table, key, change.operation);
        Ok(written.version)
    }

    /// Records a change of an object or of a completion, for clients that watch the object's
    /// tablet, and for the server to which it is moving, if it is moving.
    #[inline]
    pub(super) fn note_change(&mut self, table: u32, key: &[u8], operation: Option<&OperationId>) {
        if !self.feeds.are_none() {
            self.feeds.note(&self.log, table, key);
        }
        if !self.migration_sources.is_empty() {
            self.migration_sources.note(&self.log, table, key, operation);
        }
    }

    /// Records that an element of a collection of a table has changed, by an operation that may
    /// have an id.
    pub(super) fn note_element(&mut self, table: u32, key: &[u8], operation: Option<&OperationId>) {
        self.elements_changed_at = self.log.position();
        if !self.migration_sources.is_empty() {
            let element = Some((table | ELEMENTS, key.into()));
            let completion = operation.map(|id| (table | COMPLETIONS, id.key()[..].into()));
            let place = (table, elements::position(key));
            self.migration_sources.note_at(place, [element, completion]);
        }
    }

    /// Replies to a migration target with the next entries of a tablet that moves there.
    fn collect(
        &mut self,
        id: RequestId,
        request: (u64, MoveStage, &MoveCursor),
    ) -> Outcome<MasterBody> {
        if !id.requester().serves() {
            return denied();
        }
        if !self.waiting.admits(id.session()) {
            return Outcome::Retry(BUSY_MICROS);
        }
        let Self { migration_sources, log, held, .. } = self;
        let mut batch = None;
        let Some(body) = held
            .made
            .make(id.session(), |out| batch = migration_sources.collect(log, request, out))
        else {
            return Outcome::Retry(BUSY_MICROS);
        };
        match batch {
            Some(CollectedBatch { number, more }) => {
                let reply = answer(Status::Ok, more, 0, number, Repeat::Retain)
                    .with_body(MasterBody::Made(body));
                // The completions in the batch also concern tablets that stay here. If this server
                // lost the completions, the target must not know them either, so the reply waits
                // until they are durable.
                self.acknowledge(id, reply)
            }
            None => {
                held.made.release(body);
                Outcome::Reply(answer(Status::NotFound, false, 0, 0, Repeat::Retain))
            }
        }
    }

    pub(super) fn log_full(
        &mut self,
        log_full: Full,
        operation: Option<&OperationId>,
    ) -> Outcome<MasterBody> {
        match log_full {
            // An earlier copy of the request may be executed once there is memory, so a repeated
            // operation cannot be answered with "not executed".
            Full::Memory if operation.is_none_or(|operation| !operation.resent) => {
                self.counts.memory_full += 1;
                Outcome::Reply(answer(Status::MemoryFull, false, 0, 0, Repeat::Retain))
            }
            Full::Disk if operation.is_none_or(|operation| !operation.resent) => {
                self.counts.turned_away += 1;
                answer_text(&mut self.held.made, Status::DiskFull, &self.durable.full_disk())
            }
            Full::Memory | Full::Disk | Full::Replication => {
                self.counts.turned_away += 1;
                Outcome::Retry(BUSY_MICROS)
            }
        }
    }

    /// Returns the reply to a change that could not be acknowledged; `None` if the change may
    /// proceed.
    #[inline]
    pub(super) fn reject_change(
        &mut self,
        operation: Option<&OperationId>,
    ) -> Option<Outcome<MasterBody>> {
        if self.stopped.is_some() {
            return Some(self.writes_stopped());
        }
        match self.replicator().map(Replicator::outlook)? {
            Outlook::Good => None,
            Outlook::Waiting => {
                self.counts.turned_away += 1;
                Some(Outcome::Retry(FEW_MICROS))
            }
            // An earlier copy of the operation may be in another server's log, and count once that
            // log is recovered.
            Outlook::Bleak => {
                Some(self.too_few_servers(operation.is_some_and(|operation| operation.resent)))
            }
        }
    }

    /// Replies that too few servers take replicas. `perhaps` says whether the operation may still
    /// take effect once enough servers take replicas.
    pub(super) fn too_few_servers(&mut self, perhaps: bool) -> Outcome<MasterBody> {
        let reason = self.replicator().map(Replicator::shortage).unwrap_or_default();
        let reply = answer(Status::TooFewServers, false, 0, perhaps.into(), Repeat::Retain);
        let body = self.held.made.make_text(&reason);
        Outcome::Reply(body.map_or(reply, |body| reply.with_body(MasterBody::Made(body))))
    }

    /// Replies once everything that is in the log now is durable.
    pub(super) fn acknowledge(
        &mut self,
        id: RequestId,
        reply: Reply<MasterBody>,
    ) -> Outcome<MasterBody> {
        let position = self.log.position();
        self.wait_for(position, id, reply)
    }

    /// Replies with the object that was found, once it is durable. If there is no object (`None`),
    /// waits for the last removal instead, because that may have removed the object.
    #[inline]
    fn reply_when_durable(
        &mut self,
        id: RequestId,
        found: Option<Ref>,
        reply: Reply<MasterBody>,
    ) -> Outcome<MasterBody> {
        if self.durable.is_nothing() {
            return Outcome::Reply(reply);
        }
        match self.position_of(found) {
            0 => Outcome::Reply(reply),
            position => self.wait_for(position, id, reply),
        }
    }

    /// Returns the log position for which a reply must wait that reveals an object, or that there
    /// is none; zero if it need not wait.
    #[inline]
    pub(super) fn position_of(&self, found: Option<Ref>) -> u64 {
        match found {
            Some(found) if self.is_revealed(found) => 0,
            Some(_) => self.log.position(),
            None => self.removed_at,
        }
    }

    pub(super) fn wait_for(
        &mut self,
        position: u64,
        id: RequestId,
        reply: Reply<MasterBody>,
    ) -> Outcome<MasterBody> {
        if let Some(latest) = &mut self.batch_position {
            *latest = position.max(*latest);
            return Outcome::Reply(reply);
        }
        if self.is_durable(position) {
            return Outcome::Reply(reply);
        }
        if self.stopped.is_some() {
            // What the reply reveals will never be durable, and may be gone after a restart.
            if let Some(body) = reply.body() {
                self.held.release(&mut self.log, body);
            }
            return self.lost();
        }
        if self.is_bleak() {
            if let Some(body) = reply.body() {
                self.held.release(&mut self.log, body);
            }
            return self.too_few_servers(true);
        }
        self.waiting.push(position, id, reply);
        self.durable.arrived();
        Outcome::Pending
    }

    fn scan(&mut self, id: RequestId, tablet: Tablet, after: Option<u64>) -> Outcome<MasterBody> {
        self.counts.scans += 1;
        self.reply_page(|master, found| master.scan_into(id, tablet, after, found))
    }

    /// Replies with a page, for which `scan` gets an empty list of objects to fill. Its error is
    /// after how many microseconds to retry.
    pub(super) fn reply_page(
        &mut self,
        scan: impl FnOnce(&mut Self, &mut Vec<Ref>) -> Result<Outcome<MasterBody>, u32>,
    ) -> Outcome<MasterBody> {
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        let outcome = scan(self, &mut found).unwrap_or_else(|retry| {
            self.counts.turned_away += 1;
            Outcome::Retry(retry)
        });
        self.found = found;
        outcome
    }

    /// Replies to a scan; the error is after how many microseconds to retry.
    fn scan_into(
        &mut self,
        id: RequestId,
        tablet: Tablet,
        after: Option<u64>,
        found: &mut Vec<Ref>,
    ) -> Result<Outcome<MasterBody>, u32> {
        let next = self.find_page(tablet, after, SCAN_OBJECTS, found)?;
        let Self { log, held, .. } = self;
        let count = u32::try_from(found.len()).expect("a page of objects");
        let body = held.made.make(id.session(), |out| push_objects(out, log, found));
        let body = body.ok_or(BUSY_MICROS)?;
        let reply = answer(Status::Ok, next.is_some(), count, next.unwrap_or(0), Repeat::Retain);
        Ok(self.wait_for_found(found, id, reply.with_body(MasterBody::Made(body))))
    }

    /// Finds the next objects of a tablet, about `limit` of them, for a reply that waits for
    /// [their position](Self::position_of_page). Returns the position up to which that is all;
    /// `None` at the end of the table. The error is after how many microseconds to retry.
    pub(super) fn find_page(
        &mut self,
        tablet: Tablet,
        after: Option<u64>,
        limit: usize,
        found: &mut Vec<Ref>,
    ) -> Result<Option<u64>, u32> {
        let Tablet { table, range } = tablet;
        // The record may move objects, so it is written before any is found.
        let leaves_out = self.log.due().is_some();
        if leaves_out {
            self.leave_out_expired(table).map_err(|_| BUSY_MICROS)?;
        }
        let next = self.log.scan(table, (after, range.last), SCAN_BYTES, limit, found);
        // The scan goes on in the next tablet.
        let next = next.or((range.last < u64::MAX).then_some(range.last));
        let from = after.map_or(range.first, |after| after.saturating_add(1));
        let page = Range { first: from, last: next.unwrap_or(range.last).max(from) };
        let next = match self.log.first_locked(Tablet { table, range: page }) {
            None => next,
            Some(first) if first == from => {
                self.counts.locked += 1;
                return Err(LOCKED_MICROS);
            }
            // The page ends before the first object that a transaction may have changed, even if
            // there is no such object yet.
            Some(first) => {
                let log = &self.log;
                found.retain(|&at| log.position_of(table, log.entry(at).key) < first);
                Some(first - 1)
            }
        };
        if leaves_out {
            let log = &self.log;
            let is_expired = |at: &Ref| log.is_expired(&log.entry(*at));
            if found
                .iter()
                .any(|at| is_expired(at) && log.is_locked(table, log.entry(*at).key, true))
            {
                self.counts.locked += 1;
                return Err(LOCKED_MICROS);
            }
            found.retain(|at| !is_expired(at));
        }
        Ok(next)
    }

    /// Replies once the objects of a page are durable. An object that is missing from the page may
    /// have been removed, or have got another field in an index, by an entry that is not durable.
    pub(super) fn wait_for_found(
        &mut self,
        found: &[Ref],
        id: RequestId,
        reply: Reply<MasterBody>,
    ) -> Outcome<MasterBody> {
        self.wait_for(self.position_of_page(found), id, reply)
    }

    /// Returns the log position for which a reply must wait that reveals a page of objects.
    pub(super) fn position_of_page(&self, found: &[Ref]) -> u64 {
        match found.iter().all(|&found| self.is_revealed(found)) {
            true => self.removed_at.max(self.log.fields_changed_at()),
            false => self.log.position(),
        }
    }

    fn table_stats(&mut self, id: RequestId, table: u32) -> Outcome<MasterBody> {
        let Self { log, held, .. } = self;
        let stats = log.table_stats(table);
        let body = held.made.make(id.session(), |out| {
            push_counter(out, "bytes", stats.bytes);
            log.order_stats(table).for_each(|order| order.push_to(out));
        });
        match body {
            Some(body) => {
                let reply = answer(Status::Ok, false, 0, stats.objects, Repeat::Retain);
                Outcome::Reply(reply.with_body(MasterBody::Made(body)))
            }
            None => Outcome::Retry(BUSY_MICROS),
        }
    }
}
