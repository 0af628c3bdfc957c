//! What a master does for each request.

use super::body::Body;
use super::timing::Mark;
use super::{Master, Serves};
use crate::answers::{answer, answer_text, denied};
use crate::moving::Given;
use crate::replication::{Outlook, Replicator};
use sprat_disk::Disk;
use sprat_log::{Full, Operation, Ref};
use sprat_net::Nanos;
use sprat_rpc::{Outcome, Repeat, Reply, RequestId};
use sprat_wire::certificate::{Rights, Role};
use sprat_wire::entry::HEADER_BYTES;
use sprat_wire::once::{COMPLETION_KEY_BYTES, Completion, MAX_COMPLETION, MAX_RESULT, OperationId};
use sprat_wire::op::{
    Condition, Item, MoveCursor, MoveStage, RESPONSE_BYTES, Request, Status, encode_answer,
    push_counter, write_scan_record,
};
use sprat_wire::tablet::Tablet;
use sprat_wire::value::{Number, ValueType};
use zerocopy::IntoBytes;

/// Bytes of objects in the answer to a scan, unless one alone is longer.
const SCAN_BYTES: usize = 64 << 10;

/// Objects in the answer to a scan.
const SCAN_OBJECTS: usize = 256;

/// Bytes of log that the completion of an operation takes which changed nothing.
const MAX_ALONE: usize = HEADER_BYTES + COMPLETION_KEY_BYTES + MAX_COMPLETION;

/// A change that is asked for.
struct Asked<'a> {
    id: RequestId,
    table: u32,
    /// Which operation it is, if it is to take effect once.
    operation: Option<&'a OperationId>,
}

impl Asked<'_> {
    /// The operation as done.
    fn done<'r>(&self, result: &'r [u8]) -> Option<Operation<'r>> {
        self.operation.map(|&id| Operation { id, result })
    }
}

/// An answer with a few bytes of body.
fn short_answer(status: Status, number: u64, body: &[u8]) -> Reply<Body> {
    let mut head = [0; RESPONSE_BYTES + MAX_RESULT];
    head[..RESPONSE_BYTES].copy_from_slice(encode_answer(status, false, 0, number).as_bytes());
    head[RESPONSE_BYTES..][..body.len()].copy_from_slice(body);
    Reply::new(&head[..RESPONSE_BYTES + body.len()], Repeat::Retain)
}

/// What to ask of those who come too early or when too much is under way, microseconds.
pub(super) const BUSY_MICROS: u32 = 500;

/// What to ask of those who have their share of answers on their way, microseconds: they are to
/// take some first.
const SHARE_MICROS: u32 = 5_000;

/// What to ask of those who want to change something while servers are missing, microseconds.
const FEW_MICROS: u32 = 20_000;

impl<D: Disk> Master<D> {
    #[inline]
    pub(super) fn dispatch(
        &mut self,
        now: Nanos,
        id: RequestId,
        request: &Request<'_>,
        operation: Option<&OperationId>,
    ) -> Outcome<Body> {
        let Some(table) = request.table() else {
            if let Request::Collect { order, stage, from } = *request {
                return self.give(id, (order, stage, from));
            }
            if *request == Request::ServerStats {
                if id.requester().role() == Some(Role::Client) {
                    return denied();
                }
                return if self.watchers.ask(id) {
                    Outcome::Pending
                } else {
                    Outcome::Retry(BUSY_MICROS)
                };
            }
            let reason = "this is a server of objects; ask the coordinator";
            return answer_text(&mut self.held.made, Status::WrongRole, reason);
        };
        let Some(tablets) = &self.serves.tablets else { return Outcome::Retry(BUSY_MICROS) };
        let position = |first: Tablet| match request {
            // Of all that is here of the table, whichever tablets these are.
            Request::TableStats { .. } => first.range.first,
            _ => request.position(self.log.config().seed),
        };
        let Some((at, position)) = Serves::find(tablets, table, position) else {
            // Kept: a copy of the request that comes later, when the tablet may be served, must not
            // be executed any more.
            return Outcome::Reply(answer(Status::UnknownTable, false, 0, 0, Repeat::Retain));
        };
        let tablet = tablets[at];
        self.serves.asked[at].count(position);
        if !self.leaving.is_empty() {
            let position = request.position(self.log.config().seed);
            if self.leaving.holds_back(request, tablet, position) {
                self.counts.turned_away += 1;
                return Outcome::Retry(BUSY_MICROS);
            }
        }
        match self.guests.rights(id.requester(), table) {
            Some(Rights::Write) => {}
            Some(Rights::Read) if !request.changes_object() => {}
            Some(Rights::Read) => return denied(),
            // As of a table that is not here: nobody learns by guessing which there are.
            None => {
                return Outcome::Reply(answer(Status::UnknownTable, false, 0, 0, Repeat::Retain));
            }
        }
        if !self.is_leased(now) {
            // Others may serve it by now. It was not executed, and whoever has it then answers.
            self.counts.turned_away += 1;
            return Outcome::Retry(BUSY_MICROS);
        }
        if !self.waiting.admits(id.session()) {
            self.counts.turned_away += 1;
            return Outcome::Retry(BUSY_MICROS);
        }
        if let Some(operation) = operation
            && let Some(outcome) = self.done_before(id, table, operation)
        {
            return outcome;
        }
        let asked = Asked { id, table, operation };
        match *request {
            Request::Read { key, .. } => self.read(id, table, key),
            Request::Write { key, value, condition, .. } => {
                self.write(&asked, key, value, condition)
            }
            Request::Remove { key, condition, .. } => self.remove(&asked, key, condition),
            Request::IncrementI64 { key, delta, .. } => {
                self.increment(&asked, key, Number::Integer(delta))
            }
            Request::IncrementF64 { key, delta, .. } => {
                self.increment(&asked, key, Number::Double(delta))
            }
            Request::Scan { after, .. } => self.scan(id, tablet, after),
            Request::TableStats { .. } => self.table_stats(id, table),
            Request::Echo { value, .. } => self.echo(id, value),
            _ => unreachable!("answered above"),
        }
    }

    #[inline]
    fn read(&mut self, id: RequestId, table: u32, key: &[u8]) -> Outcome<Body> {
        self.counts.reads += 1;
        let found = self.log.find(table, key);
        self.mark(Mark::Found);
        let Some(found) = found else {
            return self.tell(id, None, answer(Status::NotFound, false, 0, 0, Repeat::Reexecute));
        };
        let entry = self.log.entry(found);
        let (version, value_type) = (entry.version, entry.value_type.code());
        let Some(body) = self.held.pin(id.session(), &mut self.log, found) else {
            self.counts.turned_away += 1;
            return Outcome::Retry(SHARE_MICROS);
        };
        let reply =
            answer(Status::Ok, false, value_type, version, Repeat::Reexecute).with_body(body);
        self.tell(id, Some(found), reply)
    }

    fn write(
        &mut self,
        asked: &Asked<'_>,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> Outcome<Body> {
        self.counts.writes += 1;
        if let Some(outcome) = self.not_taken(asked) {
            return outcome;
        }
        if condition != Condition::None
            && let Err(outcome) = self.check(asked, key, condition)
        {
            return outcome;
        }
        match self.put(asked, key, (ValueType::Bytes, value)) {
            Ok(version) => {
                self.acknowledge(asked.id, answer(Status::Ok, false, 0, version, Repeat::Retain))
            }
            Err(outcome) => outcome,
        }
    }

    fn remove(&mut self, asked: &Asked<'_>, key: &[u8], condition: Condition) -> Outcome<Body> {
        self.counts.removes += 1;
        if let Some(outcome) = self.not_taken(asked) {
            return outcome;
        }
        if let Err(outcome) = self.check(asked, key, condition) {
            return outcome;
        }
        let operation = asked.done(&[]);
        let before = operation.as_ref().map_or(0, Operation::len);
        let removed =
            self.seal_if_short(before + HEADER_BYTES + key.len() + size_of::<u64>(), true);
        let removed = removed.and_then(|()| match &operation {
            Some(operation) => self.log.remove_once(asked.table, key, operation),
            None => self.log.remove(asked.table, key),
        });
        match removed {
            Ok(Some(version)) => {
                self.removed_at = self.log.position();
                self.changed(asked, key);
                self.acknowledge(asked.id, answer(Status::Ok, false, 0, version, Repeat::Retain))
            }
            Ok(None) => self.refuse(asked, (key, None), Status::NotFound, 0),
            Err(full) => self.full(full, asked),
        }
    }

    fn increment(&mut self, asked: &Asked<'_>, key: &[u8], delta: Number) -> Outcome<Body> {
        self.counts.increments += 1;
        if let Some(outcome) = self.not_taken(asked) {
            return outcome;
        }
        let found = self.log.find(asked.table, key);
        let present =
            found.map(|found| self.log.entry(found)).map(|entry| (entry.value_type, entry.value));
        let sum = match delta.added_to(present) {
            Ok(sum) => sum,
            Err(why) => return self.refuse(asked, (key, found), Status::NotANumber, why as u64),
        };
        match self.put(asked, key, (sum.value_type(), &sum.bytes())) {
            Ok(version) => {
                self.acknowledge(asked.id, short_answer(Status::Ok, version, &sum.bytes()))
            }
            Err(outcome) => outcome,
        }
    }

    /// The answer to an operation that was done before, or that nobody awaits any more: a later one
    /// of its lane shows that.
    fn done_before(
        &mut self,
        id: RequestId,
        table: u32,
        operation: &OperationId,
    ) -> Option<Outcome<Body>> {
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
            let reason = "a later operation of its lane was done: nobody can await this one";
            return Some(answer_text(&mut self.held.made, Status::Refused, reason));
        }
        let reply = short_answer(completion.status, completion.version, completion.result);
        // Also what it wrote, which stands behind it in the log, has to be durable.
        Some(self.wait_for(self.log.position(), id, reply))
    }

    fn echo(&mut self, id: RequestId, value: &[u8]) -> Outcome<Body> {
        let Some(body) = self.held.made.make(id.session(), |out| out.extend_from_slice(value))
        else {
            return Outcome::Retry(BUSY_MICROS);
        };
        Outcome::Reply(
            answer(Status::Ok, false, 0, 0, Repeat::Reexecute).with_body(Body::Made(body)),
        )
    }

    /// Whether the condition holds; the answer if not.
    fn check(
        &mut self,
        asked: &Asked<'_>,
        key: &[u8],
        condition: Condition,
    ) -> Result<(), Outcome<Body>> {
        let found = self.log.find(asked.table, key);
        let version = found.map(|found| self.log.entry(found).version);
        if condition.holds(version) {
            return Ok(());
        }
        self.counts.conflicts += 1;
        Err(self.refuse(asked, (key, found), Status::Conflict, version.unwrap_or(0)))
    }

    /// Answers that nothing was changed, because of what was found. If the operation was sent
    /// before, that is kept: what was sent then may still be under way, and must not be
    /// executed when it comes.
    fn refuse(
        &mut self,
        asked: &Asked<'_>,
        (key, found): (&[u8], Option<Ref>),
        status: Status,
        number: u64,
    ) -> Outcome<Body> {
        let reply = answer(status, false, 0, number, Repeat::Retain);
        let Some(operation) = asked.operation.filter(|operation| operation.resent) else {
            return self.tell(asked.id, found, reply);
        };
        let kept = self.seal_if_short(MAX_ALONE, true);
        match kept
            .and_then(|()| self.log.complete_alone((asked.table, key), operation, status, number))
        {
            Ok(()) => {
                self.changed(asked, key);
                self.acknowledge(asked.id, reply)
            }
            Err(_) => Outcome::Retry(BUSY_MICROS),
        }
    }

    /// Writes an object. The sum of an increment is also what that is answered.
    fn put(
        &mut self,
        asked: &Asked<'_>,
        key: &[u8],
        value: (ValueType, &[u8]),
    ) -> Result<u64, Outcome<Body>> {
        let operation = asked.done(if value.0 == ValueType::Bytes { &[] } else { value.1 });
        let len =
            operation.as_ref().map_or(0, Operation::len) + HEADER_BYTES + key.len() + value.1.len();
        let put = self.seal_if_short(len, false);
        let put =
            put.and_then(|()| self.log.put_typed(asked.table, key, value, operation.as_ref()));
        self.mark(Mark::Found);
        let written = put.map_err(|full| self.full(full, asked))?;
        self.changed(asked, key);
        Ok(written.version)
    }

    /// What was asked for was done: whoever the tablet moves to is to know.
    #[inline]
    fn changed(&mut self, asked: &Asked<'_>, key: &[u8]) {
        if !self.leaving.is_empty() {
            self.leaving.note(&self.log, asked.table, key, asked.operation);
        }
    }

    /// Gives another server what it asks for of a tablet that moves there.
    fn give(&mut self, id: RequestId, what: (u64, MoveStage, &MoveCursor)) -> Outcome<Body> {
        if !id.requester().serves() {
            return denied();
        }
        if !self.waiting.admits(id.session()) {
            return Outcome::Retry(BUSY_MICROS);
        }
        let Self { leaving, log, held, .. } = self;
        let mut given = None;
        let Some(body) = held.made.make(id.session(), |out| given = leaving.give(log, what, out))
        else {
            return Outcome::Retry(BUSY_MICROS);
        };
        match given {
            Some(Given { number, more }) => {
                let told =
                    answer(Status::Ok, more, 0, number, Repeat::Retain).with_body(Body::Made(body));
                // Completions are of other tablets too, which stay: should those be lost, so must
                // not be what is known of them.
                self.acknowledge(id, told)
            }
            None => {
                held.made.release(body);
                Outcome::Reply(answer(Status::NotFound, false, 0, 0, Repeat::Retain))
            }
        }
    }

    fn full(&mut self, full: Full, asked: &Asked<'_>) -> Outcome<Body> {
        match full {
            // What was sent before may be executed once there is memory: then nobody can be told
            // that it was not.
            Full::Memory if asked.operation.is_none_or(|operation| !operation.resent) => {
                self.counts.memory_full += 1;
                Outcome::Reply(answer(Status::MemoryFull, false, 0, 0, Repeat::Retain))
            }
            Full::Disk if asked.operation.is_none_or(|operation| !operation.resent) => {
                self.counts.turned_away += 1;
                answer_text(&mut self.held.made, Status::DiskFull, &self.durable.full_disk())
            }
            Full::Memory | Full::Disk | Full::Replication => {
                self.counts.turned_away += 1;
                Outcome::Retry(BUSY_MICROS)
            }
        }
    }

    /// The answer to a change that is not taken because it could not be acknowledged.
    #[inline]
    fn not_taken(&mut self, asked: &Asked<'_>) -> Option<Outcome<Body>> {
        if self.stopped.is_some() {
            return Some(self.writes_stopped());
        }
        match self.replicator().map(Replicator::outlook)? {
            Outlook::Good => None,
            Outlook::Waiting => {
                self.counts.turned_away += 1;
                Some(Outcome::Retry(FEW_MICROS))
            }
            // What was sent before may be in another server's log, and count once that is brought
            // back.
            Outlook::Bleak => {
                Some(self.too_few(asked.operation.is_some_and(|operation| operation.resent)))
            }
        }
    }

    /// Says that too few servers take replicas; `perhaps` of what may count once they do.
    pub(super) fn too_few(&mut self, perhaps: bool) -> Outcome<Body> {
        let reason = self.replicator().map(Replicator::shortage).unwrap_or_default();
        let reply = answer(Status::TooFewServers, false, 0, perhaps.into(), Repeat::Retain);
        let body = self.held.made.explain(&reason);
        Outcome::Reply(body.map_or(reply, |body| reply.with_body(Body::Made(body))))
    }

    /// Answers a change once it is durable.
    fn acknowledge(&mut self, id: RequestId, reply: Reply<Body>) -> Outcome<Body> {
        let position = self.log.position();
        self.wait_for(position, id, reply)
    }

    /// Answers with what was found once that is durable.
    #[inline]
    fn tell(&mut self, id: RequestId, found: Option<Ref>, reply: Reply<Body>) -> Outcome<Body> {
        if self.durable.is_nothing() {
            return Outcome::Reply(reply);
        }
        let position = match found {
            Some(found) if self.log.is_durable(found) => return Outcome::Reply(reply),
            Some(_) => self.log.position(),
            None => self.removed_at,
        };
        self.wait_for(position, id, reply)
    }

    fn wait_for(&mut self, position: u64, id: RequestId, reply: Reply<Body>) -> Outcome<Body> {
        if self.is_durable(position) {
            return Outcome::Reply(reply);
        }
        if self.stopped.is_some() {
            // It will never be: what was found may be gone after a restart.
            if let Some(body) = reply.body() {
                self.held.release(&mut self.log, body);
            }
            return self.writes_stopped();
        }
        if self.is_bleak() {
            if let Some(body) = reply.body() {
                self.held.release(&mut self.log, body);
            }
            return self.too_few(true);
        }
        self.waiting.push(position, id, reply);
        self.durable.arrived();
        Outcome::Pending
    }

    fn scan(&mut self, id: RequestId, tablet: Tablet, after: Option<u64>) -> Outcome<Body> {
        self.counts.scans += 1;
        let Self { log, held, found, .. } = self;
        found.clear();
        let Tablet { table, range } = tablet;
        let next = log.scan(table, (after, range.last), SCAN_BYTES, SCAN_OBJECTS, found);
        // Behind the last position of this tablet others go on.
        let next = next.or((range.last < u64::MAX).then_some(range.last));
        let durable = found.iter().all(|&found| log.is_durable(found));
        let count = u32::try_from(found.len()).expect("a page of objects");
        let body = held.made.make(id.session(), |out| {
            for entry in found.iter().map(|&found| log.entry(found)) {
                let sprat_wire::entry::Entry { version, key, value, value_type, .. } = entry;
                write_scan_record(out, &Item { version, key, value, value_type });
            }
        });
        let Some(body) = body else { return Outcome::Retry(BUSY_MICROS) };
        let reply = answer(Status::Ok, next.is_some(), count, next.unwrap_or(0), Repeat::Retain);
        // What is missing from the answer may be a removal that is not durable.
        let position = if durable { self.removed_at } else { self.log.position() };
        self.wait_for(position, id, reply.with_body(Body::Made(body)))
    }

    fn table_stats(&mut self, id: RequestId, table: u32) -> Outcome<Body> {
        let stats = self.log.table_stats(table);
        match self.held.made.make(id.session(), |out| push_counter(out, "bytes", stats.bytes)) {
            Some(body) => {
                let reply = answer(Status::Ok, false, 0, stats.objects, Repeat::Retain);
                Outcome::Reply(reply.with_body(Body::Made(body)))
            }
            None => Outcome::Retry(BUSY_MICROS),
        }
    }
}
