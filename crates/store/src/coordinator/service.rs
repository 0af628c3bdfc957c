//! The coordinator as a service: requests in, answers out, now or when a server has caught up.

use super::catalog::{Catalog, Owned, Refusal};
use super::metadata::Metadata;
use crate::answers::{answer, answer_text};
use crate::bodies::Bodies;
use crate::node::Service;
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, Repeat, RequestId, Response};
use sprat_wire::op::{Request, ServerRecord, Status, TableRecord, push_counter, push_server, push_table};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a server's question for newer assignments stays unanswered when there are none.
pub const POLL: Duration = Duration::from_millis(500);

/// How long a client waits for a server to take or leave a table before it is answered anyway.
pub const APPLY_PATIENCE: Duration = Duration::from_secs(5);

/// How long a server may be silent and still be given tables.
pub const ALIVE: Duration = Duration::from_secs(2);

/// Questions and changes under way at once.
pub const MAX_WAITING: usize = 4096;

/// What to ask of those who come when [`MAX_WAITING`] is reached, microseconds.
const BUSY_MICROS: u32 = 10_000;

/// What is known of a server since this coordinator started.
#[derive(Clone, Copy)]
struct Heard {
    at: Nanos,
    /// Version of the assignments it serves.
    applied: u64,
}

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
    heard: BTreeMap<u32, Heard>,
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
            heard: BTreeMap::new(),
            questions: Vec::new(),
            changes: Vec::new(),
            ready: VecDeque::new(),
            bodies: Bodies::default(),
            requests: 0,
        }
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

    fn alive(&self, now: Nanos) -> Vec<u32> {
        self.heard.iter().filter(|(_, heard)| now.since(heard.at) < ALIVE).map(|(&id, _)| id).collect()
    }

    fn create(&mut self, now: Nanos, id: RequestId, name: &str) -> Outcome<u32> {
        match self.catalog.create(name, &self.alive(now)) {
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

    fn enlist(&mut self, now: Nanos, server: u32, cluster: u64, locator: &str) -> Outcome<u32> {
        let ours = self.catalog.cluster();
        if cluster != 0 && (cluster != ours || !self.catalog.knows_server(server)) {
            let reason = format!("the data is of cluster {cluster:016x}, server {server}; this is cluster {ours:016x}");
            return answer_text(&mut self.bodies, Status::WrongCluster, &reason);
        }
        match self.catalog.enlist(if cluster == 0 { 0 } else { server }, locator) {
            Ok(id) => {
                self.heard.insert(id, Heard { at: now, applied: 0 });
                self.list(Status::Ok, u64::from(id), |out| push_counter(out, "cluster", ours))
            }
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn question(&mut self, now: Nanos, id: RequestId, server: u32, known: u64) -> Outcome<u32> {
        let Some(heard) = self.heard.get_mut(&server) else {
            // Enlisted with a coordinator before this one, or never.
            return Outcome::Reply(answer(Status::NotFound, false, 0, 0, Repeat::Retain));
        };
        *heard = Heard { at: now, applied: known };
        if self.questions.len() >= MAX_WAITING {
            return Outcome::Retry(BUSY_MICROS);
        }
        // One question a server: a newer one shows that the answer to the older is not awaited.
        self.questions.retain(|question| question.server != server);
        self.questions.push(Question { id, server, known, until: now + POLL });
        Outcome::Pending
    }

    fn assignments(&mut self, server: u32) -> Outcome<u32> {
        let tables: Vec<_> = self.catalog.tables().filter(|table| table.server == server).collect();
        let version = self.catalog.version();
        self.list(Status::Ok, version, |out| tables.iter().for_each(|table| push_table(out, table)))
    }

    fn dispatch(&mut self, now: Nanos, id: RequestId, request: Request<'_>) -> Outcome<u32> {
        match request {
            Request::CreateTable { name } => self.create(now, id, name),
            Request::DropTable { name } => self.drop_table(now, id, name),
            Request::FindTable { name } => match self.catalog.find(name) {
                Some(table) => self.table(&table),
                None => Outcome::Reply(answer(Status::NoSuchTable, false, 0, 0, Repeat::Reexecute)),
            },
            Request::ListTables => {
                let tables: Vec<_> = self.catalog.tables().collect();
                self.list(Status::Ok, self.catalog.version(), |out| {
                    tables.iter().for_each(|table| push_table(out, table))
                })
            }
            Request::ListServers => {
                let silent = |id| {
                    let heard: Option<&Heard> = self.heard.get(&id);
                    heard.map_or(u32::MAX, |heard| u32::try_from(now.since(heard.at).as_millis()).unwrap_or(u32::MAX))
                };
                let servers: Vec<_> = self
                    .catalog
                    .servers()
                    .map(|(id, locator)| ServerRecord { id, silent_ms: silent(id), locator: locator.to_owned() })
                    .collect();
                self.list(Status::Ok, 0, |out| servers.iter().for_each(|server| push_server(out, server)))
            }
            Request::Enlist { server, cluster, locator } => self.enlist(now, server, cluster, locator),
            Request::Assignments { server, known } => self.question(now, id, server, known),
            Request::ServerStats => {
                let (tables, servers) = (self.catalog.tables().count() as u64, self.catalog.servers().count() as u64);
                let requests = self.requests;
                self.list(Status::Ok, 0, |out| {
                    push_counter(out, "coordinator_tables", tables);
                    push_counter(out, "coordinator_servers", servers);
                    push_counter(out, "coordinator_requests_total", requests);
                })
            }
            Request::Read { .. }
            | Request::Write { .. }
            | Request::Remove { .. }
            | Request::IncrementI64 { .. }
            | Request::IncrementF64 { .. }
            | Request::Scan { .. }
            | Request::TableStats { .. }
            | Request::Echo { .. } => answer_text(
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
            let outcome = self.assignments(server);
            self.ready.push_back((id, outcome));
        }
        let heard = &self.heard;
        let mut done = Vec::new();
        self.changes.retain_mut(|change| {
            let applied = heard.get(&change.server).is_some_and(|heard| heard.applied >= change.version);
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
        questions.chain(changes).min()
    }
}
