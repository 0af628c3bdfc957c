//! The coordinator as a service: requests in, answers out, now or when a server has caught up.

use super::catalog::{Catalog, Owned, Refusal};
use super::members::{Members, RENEWAL};
use super::metadata::Metadata;
use crate::answers::{answer, answer_text};
use crate::bodies::Bodies;
use crate::node::Service;
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, Repeat, RequestId, Response};
use sprat_wire::op::{ReplicaId, Request, ServerRecord, Status, TableRecord, push_counter, push_server, push_table};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a server's question for newer assignments stays unanswered when there are none.
pub const POLL: Duration = Duration::from_millis(500);

/// How long a client waits for a server to take or leave a table before it is answered anyway.
pub const APPLY_PATIENCE: Duration = Duration::from_secs(5);

/// Questions and changes under way at once.
pub const MAX_WAITING: usize = 4096;

/// When to ask again for a table that is being brought back, microseconds.
const RECOVERING_MICROS: u32 = 20_000;

/// What to ask of those who come when [`MAX_WAITING`] is reached, microseconds.
const BUSY_MICROS: u32 = 10_000;

/// A server's open question.
struct Question {
    id: RequestId,
    server: u32,
    known: u64,
    until: Nanos,
}

/// A client's change, waiting for the server it concerns.
struct Change {
    id: RequestId,
    server: u32,
    version: u64,
    until: Nanos,
    table: Option<TableRecord>,
}

/// The coordinator.
pub struct Coordinator<M> {
    catalog: Catalog<M>,
    members: Members,
    questions: Vec<Question>,
    changes: Vec<Change>,
    ready: VecDeque<(RequestId, Outcome<u32>)>,
    bodies: Bodies,
    requests: u64,
}

impl<M: Metadata> Coordinator<M> {
    /// A coordinator with this catalog; no server has been heard of yet.
    pub fn new(catalog: Catalog<M>) -> Self {
        Self {
            catalog,
            members: Members::default(),
            questions: Vec::new(),
            changes: Vec::new(),
            ready: VecDeque::new(),
            bodies: Bodies::default(),
            requests: 0,
        }
    }

    /// What it knows, for a look at it.
    pub fn catalog(&self) -> &Catalog<M> {
        &self.catalog
    }

    /// Why tables of servers that are gone cannot be brought back for now: the server, and what the last attempt came to.
    pub fn failures(&self) -> impl Iterator<Item = (u32, &str)> {
        self.members.failures()
    }

    /// Answers with a list; asked again, it is made again.
    fn list(&mut self, status: Status, number: u64, fill: impl FnOnce(&mut Vec<u8>)) -> Outcome<u32> {
        match self.bodies.make(fill) {
            Some(body) => Outcome::Reply(answer(status, false, 0, number, Repeat::Retain).with_body(body)),
            None => Outcome::Retry(BUSY_MICROS),
        }
    }

    fn table(&mut self, table: &TableRecord) -> Outcome<u32> {
        self.list(Status::Ok, u64::from(table.id), |out| push_table(out, table))
    }

    fn refuse(&mut self, refusal: &Refusal) -> Outcome<u32> {
        let (status, reason) = match refusal {
            Refusal::NoServer => (Status::NoServer, ""),
            Refusal::Limit(which) => (Status::Refused, *which),
            Refusal::Metadata(cause) => (Status::Refused, cause.as_str()),
        };
        answer_text(&mut self.bodies, status, reason)
    }

    fn create(&mut self, now: Nanos, id: RequestId, name: &str) -> Outcome<u32> {
        match self.catalog.create(name, &self.members.alive(now, &self.catalog)) {
            Ok(table) => self.await_applied(now, id, table.server, Some(table)),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn drop_table(&mut self, now: Nanos, id: RequestId, name: &str) -> Outcome<u32> {
        match self.catalog.drop_table(name) {
            Ok(Some(Owned { server, .. })) => self.await_applied(now, id, server, None),
            Ok(None) => Outcome::Reply(answer(Status::NoSuchTable, false, 0, 0, Repeat::Retain)),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    /// Answers a change once `server` serves the present version.
    fn await_applied(&mut self, now: Nanos, id: RequestId, server: u32, table: Option<TableRecord>) -> Outcome<u32> {
        if self.changes.len() >= MAX_WAITING {
            return Outcome::Retry(BUSY_MICROS);
        }
        let (version, until) = (self.catalog.version(), now + APPLY_PATIENCE);
        self.changes.push(Change { id, server, version, until, table });
        Outcome::Pending
    }

    fn enlist(&mut self, now: Nanos, server: u32, (cluster, copies): (u64, u8), locator: &str) -> Outcome<u32> {
        let ours = self.catalog.cluster();
        // One whose log others keep may have been forgotten: nothing of what it was is left to it.
        let known = copies > 0 || self.catalog.server(server).is_some();
        if cluster != 0 && (cluster != ours || !known) {
            let reason = format!("the data is of cluster {cluster:016x}, server {server}; this is cluster {ours:016x}");
            return answer_text(&mut self.bodies, Status::WrongCluster, &reason);
        }
        match self.catalog.enlist(if cluster == 0 { 0 } else { server }, locator, copies) {
            Ok(id) => {
                self.members.enlisted(now, id);
                self.list(Status::Ok, u64::from(id), |out| push_counter(out, "cluster", ours))
            }
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn question(&mut self, now: Nanos, id: RequestId, server: u32, known: u64) -> Outcome<u32> {
        if !self.members.asks(now, server, known, &self.catalog) {
            // Enlisted with a coordinator before this one, or never, or declared dead.
            return Outcome::Reply(answer(Status::NotFound, false, 0, 0, Repeat::Retain));
        }
        if self.questions.len() >= MAX_WAITING {
            return Outcome::Retry(BUSY_MICROS);
        }
        let leased = self.catalog.server(server).is_some_and(|known| known.copies > 0);
        // One question a server: a newer one shows that the answer to the older is not awaited.
        self.questions.retain(|question| question.server != server);
        self.questions.push(Question { id, server, known, until: now + if leased { RENEWAL } else { POLL } });
        Outcome::Pending
    }

    fn assignments(&mut self, now: Nanos, server: u32) -> Outcome<u32> {
        let assignment = self.members.assignment(now, server, &self.catalog);
        let version = self.catalog.version();
        self.list(Status::Ok, version, |out| assignment.encode(out))
    }

    /// A server that is alive says something of its log.
    fn void(&mut self, server: u32, segment: u64) -> Outcome<u32> {
        if self.catalog.server(server).is_none_or(|known| known.dead) {
            return Outcome::Reply(answer(Status::Fenced, false, 0, 0, Repeat::Retain));
        }
        match self.catalog.void(server, segment) {
            Ok(()) => Outcome::Reply(answer(Status::Ok, false, 0, segment, Repeat::Retain)),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn recovered(&mut self, server: u32, what: ReplicaId, failure: &str) -> Outcome<u32> {
        match self.members.recovered(server, (what.master, what.segment), failure, &mut self.catalog) {
            Ok(()) => Outcome::Reply(answer(Status::Ok, false, 0, 0, Repeat::Retain)),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn found(&mut self, table: Option<TableRecord>) -> Outcome<u32> {
        match table {
            // Whoever asks is to wait until somebody has it again.
            Some(table) if !self.members.serves(table.server, &self.catalog) => Outcome::Retry(RECOVERING_MICROS),
            Some(table) => self.table(&table),
            None => Outcome::Reply(answer(Status::NoSuchTable, false, 0, 0, Repeat::Reexecute)),
        }
    }

    fn dispatch(&mut self, now: Nanos, id: RequestId, request: Request<'_>) -> Outcome<u32> {
        match request {
            Request::CreateTable { name } => self.create(now, id, name),
            Request::DropTable { name } => self.drop_table(now, id, name),
            Request::FindTable { name } => {
                let known = self.catalog.find(name);
                self.found(known)
            }
            Request::LocateTable { table } => {
                let known = self.catalog.tables().find(|record| record.id == table);
                self.found(known)
            }
            Request::ListTables => {
                let tables: Vec<_> = self.catalog.tables().collect();
                self.list(Status::Ok, self.catalog.version(), |out| {
                    tables.iter().for_each(|table| push_table(out, table))
                })
            }
            Request::ListServers => {
                let silent = |id| {
                    let silence = self.members.silence(now, id);
                    silence.map_or(u32::MAX, |silence| u32::try_from(silence.as_millis()).unwrap_or(u32::MAX))
                };
                let record = |(id, known): (u32, &super::Known)| ServerRecord {
                    id,
                    silent_ms: silent(id),
                    locator: known.locator.clone(),
                };
                let servers: Vec<_> = self.catalog.servers().map(record).collect();
                self.list(Status::Ok, 0, |out| servers.iter().for_each(|server| push_server(out, server)))
            }
            Request::Enlist { server, cluster, copies, locator } => {
                self.enlist(now, server, (cluster, copies), locator)
            }
            Request::Assignments { server, known } => self.question(now, id, server, known),
            Request::Void { server, segment } => self.void(server, segment),
            Request::Recovered { server, what, failure } => self.recovered(server, what, failure),
            Request::ServerStats => {
                let (tables, servers) = (self.catalog.tables().count() as u64, self.catalog.servers().count() as u64);
                let requests = self.requests;
                let lost = self.members.failures().count() as u64;
                self.list(Status::Ok, 0, |out| {
                    push_counter(out, "coordinator_tables", tables);
                    push_counter(out, "coordinator_servers", servers);
                    push_counter(out, "coordinator_requests_total", requests);
                    push_counter(out, "coordinator_recoveries_failing", lost);
                })
            }
            Request::Read { .. }
            | Request::Write { .. }
            | Request::Remove { .. }
            | Request::IncrementI64 { .. }
            | Request::IncrementF64 { .. }
            | Request::Scan { .. }
            | Request::TableStats { .. }
            | Request::Echo { .. }
            | Request::Backup(_) => answer_text(
                &mut self.bodies,
                Status::WrongRole,
                "this is a coordinator; objects are with the servers that it names",
            ),
        }
    }
}

impl<M: Metadata> Handler for Coordinator<M> {
    type Body = u32;

    fn request(&mut self, now: Nanos, id: RequestId, payload: &[u8]) -> Outcome<u32> {
        self.requests += 1;
        match Request::parse(payload) {
            Ok(request) => self.dispatch(now, id, request),
            Err(malformed) => answer_text(&mut self.bodies, Status::Malformed, &malformed.to_string()),
        }
    }

    fn gather(&self, body: u32) -> &[u8] {
        self.bodies.bytes(body)
    }

    fn release(&mut self, body: u32) {
        self.bodies.release(body);
    }

    fn completed(&mut self, _: Nanos, _: CallId, _: Result<Response<'_>, CallFailure>) {
        unreachable!("a coordinator makes no calls");
    }
}

impl<M: Metadata> Service for Coordinator<M> {
    fn poll(&mut self, now: Nanos) -> bool {
        self.members.poll(now, &mut self.catalog);
        let version = self.catalog.version();
        let mut due = Vec::new();
        self.questions.retain(|question| {
            let keep = question.known == version && now < question.until;
            if !keep {
                due.push((question.id, question.server));
            }
            keep
        });
        for (id, server) in due {
            let outcome = self.assignments(now, server);
            self.ready.push_back((id, outcome));
        }
        let members = &self.members;
        let mut done = Vec::new();
        self.changes.retain_mut(|change| {
            let applied = members.has_applied(change.server, change.version);
            let keep = !applied && now < change.until;
            if !keep {
                done.push((change.id, change.table.take()));
            }
            keep
        });
        for (id, table) in done {
            let outcome = match table {
                Some(table) => self.table(&table),
                None => Outcome::Reply(answer(Status::Ok, false, 0, version, Repeat::Retain)),
            };
            self.ready.push_back((id, outcome));
        }
        !self.ready.is_empty()
    }

    fn take_ready(&mut self) -> Option<(RequestId, Outcome<u32>)> {
        self.ready.pop_front()
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let questions = self.questions.iter().map(|question| question.until);
        let changes = self.changes.iter().map(|change| change.until);
        questions.chain(changes).chain(self.members.next_deadline(&self.catalog)).min()
    }
}
