//! The coordinator as a service: requests in, answers out, now or when a server has caught up.

use super::REMEDY;
use super::catalog::{Catalog, Refusal};
use super::election::BURIAL_WAIT;
use super::members::{Members, RENEWAL};
use super::metadata::Metadata;
use super::office::{Office, Valid};
use crate::answers::{answer, answer_text, denied};
use crate::bodies::Bodies;
use crate::guests::Guests;
use crate::node::Service;
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, Repeat, RequestId, Requester, Response};
use sprat_wire::certificate::{Certificate, Role};
use sprat_wire::op::{
    ClusterSeen, RecoveredPart, Request, ServerRecord, Status, TableRecord, push_counter,
    push_server, push_table,
};
use sprat_wire::tablet::{Range, Tablet};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a server's question for newer assignments stays unanswered when there are none: shorter
/// than whoever asks takes it for lost.
pub const POLL: Duration = Duration::from_millis(250);

const _: () = assert!(
    POLL.as_millis() < sprat_client::ATTEMPT_TIMEOUT.as_millis(),
    "else no question is ever answered"
);

/// The same of one that brings tablets back, or that some move from or to: meanwhile it cannot say
/// that it is done.
const HASTE: Duration = Duration::from_millis(5);

/// How long a client waits for a server to take or leave a table before it is answered anyway.
pub const APPLY_PATIENCE: Duration = Duration::from_secs(5);

/// Questions and changes under way at once.
pub const MAX_WAITING: usize = 4096;

/// What to ask of those who come when [`MAX_WAITING`] is reached, microseconds.
const BUSY_MICROS: u32 = 10_000;

/// When to ask again for what the metadata do not let be done for the moment, microseconds.
const LATER_MICROS: u32 = 100_000;

/// How often a coordinator reports that its metadata do not fit a server's.
const FOREIGN_PAUSE: Duration = Duration::from_secs(5);

/// A server's open question.
struct Question {
    id: RequestId,
    server: u32,
    known: u64,
    came: Nanos,
    until: Nanos,
}

/// A client's change, waiting for the servers it concerns.
struct Change {
    id: RequestId,
    servers: Vec<u32>,
    version: u64,
    until: Nanos,
    table: Option<TableRecord>,
}

/// The place of a coordinator among several.
struct Post<M> {
    office: Office<M>,
    /// What it has heard from there.
    heard: u64,
    /// Where it is reached.
    locator: String,
    /// Its term while it leads, and until when it may.
    term: u64,
    valid: Valid,
    /// The term and place of who leads otherwise, as far as known.
    leader: (u64, String),
}

/// The coordinator.
pub struct Coordinator<M> {
    /// `None` of one that is alone, which always leads.
    post: Option<Post<M>>,
    catalog: Catalog<M>,
    members: Members,
    guests: Guests,
    questions: Vec<Question>,
    changes: Vec<Change>,
    ready: VecDeque<(RequestId, Outcome<u32>)>,
    bodies: Bodies,
    requests: u64,
    /// The session of the request that is being answered.
    session: u32,
    /// Whether it led when it was last polled.
    led: bool,
    /// When servers that these metadata do not fit are reported again.
    warn_foreign_from: Nanos,
    /// Why these metadata are an older copy, once a server of the cluster has shown it. Never
    /// unset: the coordinator would declare the servers dead that it refuses, each of these
    /// changes raises its version, and once the version is theirs no server would notice any
    /// more.
    behind: Option<String>,
}

impl<M: Metadata> Coordinator<M> {
    /// A coordinator with this catalog; no server has been heard of yet.
    pub fn new(catalog: Catalog<M>) -> Self {
        Self {
            post: None,
            catalog,
            members: Members::default(),
            guests: Guests::default(),
            questions: Vec::new(),
            changes: Vec::new(),
            ready: VecDeque::new(),
            bodies: Bodies::default(),
            requests: 0,
            session: 0,
            led: true,
            warn_foreign_from: Nanos(0),
            behind: None,
        }
    }

    /// One of several, which others reach at `locator`. It leads when it is told to through its
    /// office; until then, and when it may not any more, it answers [`Status::NotLeading`] and
    /// no more than that.
    pub fn standby(office: Office<M>, locator: String) -> Self {
        let post = Post {
            office,
            heard: 0,
            locator,
            term: 0,
            valid: Valid::default(),
            leader: (0, String::new()),
        };
        Self { post: Some(post), ..Self::new(Catalog::absent()) }
    }

    /// Whether it leads.
    pub fn leads(&self, now: Nanos) -> bool {
        self.post.as_ref().is_none_or(|post| self.catalog.is_present() && post.valid.at(now))
    }

    /// The term in which it leads, or would if it still may; zero of one that is alone.
    pub fn term(&self) -> u64 {
        self.post.as_ref().map_or(0, |post| post.term)
    }

    /// What it knows, for a look at it.
    pub fn catalog(&self) -> &Catalog<M> {
        &self.catalog
    }

    /// Why tables of servers that are gone cannot be brought back for now: the server, and what the
    /// last attempt came to.
    pub fn failures(&self) -> impl Iterator<Item = (u32, &str)> {
        self.members.failures()
    }

    /// Answers with a list; asked again, it is made again.
    fn list(
        &mut self,
        status: Status,
        number: u64,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Outcome<u32> {
        match self.bodies.make(self.session, fill) {
            Some(body) => {
                Outcome::Reply(answer(status, false, 0, number, Repeat::Retain).with_body(body))
            }
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
            Refusal::Later(_) => return Outcome::Retry(LATER_MICROS),
            Refusal::Lost(_) => {
                self.step_down();
                return self.not_leading();
            }
        };
        answer_text(&mut self.bodies, status, reason)
    }

    fn create(&mut self, now: Nanos, id: RequestId, name: &str, tablets: u32) -> Outcome<u32> {
        match self.catalog.create(name, tablets as usize, &self.members.alive(now, &self.catalog)) {
            Ok(table) => {
                let servers = table.tablets.iter().map(|tablet| tablet.server).collect();
                self.await_applied(now, id, servers, Some(table))
            }
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn drop_table(&mut self, now: Nanos, id: RequestId, name: &str) -> Outcome<u32> {
        match self.catalog.drop_table(name) {
            Ok(Some(servers)) => self.await_applied(now, id, servers, None),
            Ok(None) => Outcome::Reply(answer(Status::NoSuchTable, false, 0, 0, Repeat::Retain)),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    /// Answers a change once `servers` serve the present version.
    fn await_applied(
        &mut self,
        now: Nanos,
        id: RequestId,
        mut servers: Vec<u32>,
        table: Option<TableRecord>,
    ) -> Outcome<u32> {
        servers.sort_unstable();
        servers.dedup();
        // One may have as many as are free, so that nobody keeps others from changing anything.
        let own = self.changes.iter().filter(|change| change.id.session() == id.session()).count();
        if own > 0 && own >= MAX_WAITING.saturating_sub(self.changes.len()) {
            return Outcome::Retry(BUSY_MICROS);
        }
        let (version, until) = (self.catalog.version(), now + APPLY_PATIENCE);
        self.changes.push(Change { id, servers, version, until, table });
        Outcome::Pending
    }

    fn enlist(
        &mut self,
        now: Nanos,
        server: u32,
        (cluster, copies): (u64, u8),
        place: (&str, &str),
    ) -> Outcome<u32> {
        let ours = self.catalog.cluster();
        // One whose log others keep may have been forgotten: nothing of what it was is left to it.
        let known = copies > 0 || self.catalog.server(server).is_some();
        if cluster != 0 && (cluster != ours || !known) {
            let reason = format!(
                "the data is of cluster {cluster:016x}, server {server}; this is cluster {ours:016x}: give -C of its own, or another \
                 --data"
            );
            return answer_text(&mut self.bodies, Status::WrongCluster, &reason);
        }
        match self.catalog.enlist(if cluster == 0 { 0 } else { server }, place, copies) {
            Ok(id) => {
                self.members.enlisted(now, id);
                let version = self.catalog.version();
                self.list(Status::Ok, u64::from(id), |out| {
                    push_counter(out, "cluster", ours);
                    push_counter(out, "version", version);
                })
            }
            Err(refusal) => self.refuse(&refusal),
        }
    }

    /// Refuses a server whose cluster is another one, or is further than these metadata are: they
    /// began empty, or were put back from an older copy. What they would say of tables is not
    /// what the server's objects are of.
    fn refuse_foreign(
        &mut self,
        now: Nanos,
        server: u32,
        seen: &ClusterSeen,
    ) -> Option<Outcome<u32>> {
        let (ours, version) = (self.catalog.cluster(), self.catalog.version());
        let (cluster, known) = (seen.cluster.get(), seen.version.get());
        let reason = if cluster != 0 && cluster != ours {
            format!(
                "are of cluster {ours:016x}, and server {server} is of cluster {cluster:016x}: they began empty, or -C \
                 names another cluster's coordinator"
            )
        } else if known > version {
            format!(
                "are of version {version} of the tablet map, and server {server} has seen version {known}: they are an \
                 older copy"
            )
        } else {
            return None;
        };
        let reason =
            format!("the coordinator's metadata ({}) {reason}: {REMEDY}", self.catalog.place());
        if now >= self.warn_foreign_from {
            tracing::error!("{reason}");
            self.warn_foreign_from = now + FOREIGN_PAUSE;
        }
        // One of several that was deposed and does not know it yet is behind for a moment; servers
        // turn to another.
        let is_alone = self.post.is_none();
        if is_alone && cluster == ours {
            self.behind = Some(reason.clone());
        }
        (is_alone || cluster != ours)
            .then(|| answer_text(&mut self.bodies, Status::WrongCluster, &reason))
    }

    /// Refuses every request while these metadata are known to be an older copy. Reports of servers
    /// are answered `NotLeading`, after which a server sends them again; a refusal would end
    /// it.
    fn refuse_behind(&mut self, request: &Request<'_>) -> Option<Outcome<u32>> {
        let reason = self.behind.as_ref()?;
        let status = match request {
            Request::Void { .. } | Request::Recovered { .. } | Request::Loads { .. } => {
                return Some(self.not_leading());
            }
            Request::Enlist { .. } | Request::Assignments { .. } | Request::CopyCatalog { .. } => {
                Status::WrongCluster
            }
            _ => Status::Refused,
        };
        Some(answer_text(&mut self.bodies, status, reason))
    }

    fn copy_catalog(&mut self) -> Outcome<u32> {
        let copy = self.catalog.copy();
        self.list(Status::Ok, self.catalog.version(), |out| out.extend_from_slice(&copy))
    }

    fn question(&mut self, now: Nanos, id: RequestId, server: u32, known: u64) -> Outcome<u32> {
        if !self.members.asks(now, server, known, &self.catalog) {
            // Enlisted with a coordinator before this one, or never, or declared dead.
            let version = self.catalog.version();
            return Outcome::Reply(answer(Status::NotFound, false, 0, version, Repeat::Retain));
        }
        if self.questions.len() >= MAX_WAITING {
            return Outcome::Retry(BUSY_MICROS);
        }
        let leased = self.catalog.server(server).is_some_and(|known| known.copies > 0);
        // One question a server: a newer one shows that the answer to the older is not awaited. It
        // is given one all the same: without, the place that it has in its session would be
        // lost to the server for ever.
        if let Some(at) = self.questions.iter().position(|question| question.server == server) {
            let Question { id, known, .. } = self.questions.swap_remove(at);
            self.session = id.session();
            let outcome = self.assignments(now, server, known);
            self.ready.push_back((id, outcome));
        }
        // Who brings something back, or gives something away, has something to tell as soon as it
        // may.
        let patience = match (leased, self.members.is_busy(server, &self.catalog)) {
            (true, true) => HASTE,
            (true, false) => RENEWAL,
            (false, _) => POLL,
        };
        let until = now + patience;
        self.questions.push(Question { id, server, known, came: now, until });
        Outcome::Pending
    }

    fn assignments(&mut self, now: Nanos, server: u32, known: u64) -> Outcome<u32> {
        if let Some(reason) = &self.behind {
            return answer_text(&mut self.bodies, Status::WrongCluster, reason);
        }
        let assignment = self.members.assignment(now, (server, known), &self.catalog);
        let version = self.catalog.version();
        self.list(Status::Ok, version, |out| assignment.encode(out))
    }

    /// A server that is alive says something of its log.
    fn void(&mut self, server: u32, segment: u64) -> Outcome<u32> {
        if self.catalog.server(server).is_none_or(|known| known.dead) {
            let version = self.catalog.version();
            return Outcome::Reply(answer(Status::Fenced, false, 0, version, Repeat::Retain));
        }
        match self.catalog.void(server, segment) {
            Ok(()) => Outcome::Reply(answer(Status::Ok, false, 0, segment, Repeat::Retain)),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn recovered(
        &mut self,
        now: Nanos,
        server: u32,
        what: &RecoveredPart,
        failure: &str,
    ) -> Outcome<u32> {
        let what = (server, what.order.get(), what.since.get());
        match self.members.recovered(now, what, failure, &mut self.catalog) {
            Ok(()) => Outcome::Reply(answer(Status::Ok, false, 0, 0, Repeat::Retain)),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn move_tablet(&mut self, now: Nanos, tablet: Option<Tablet>, to: u32) -> Outcome<u32> {
        let alive = self.members.alive(now, &self.catalog).contains(&to);
        let begun = match tablet {
            Some(tablet) if alive => self.catalog.begin_move(tablet, to),
            _ => Err(Refusal::Limit("there is no such server, or it is silent")),
        };
        self.noted(begun.map(drop))
    }

    /// A change of the catalog alone.
    fn noted(&mut self, change: Result<(), Refusal>) -> Outcome<u32> {
        match change {
            Ok(()) => {
                Outcome::Reply(answer(Status::Ok, false, 0, self.catalog.version(), Repeat::Retain))
            }
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn drain(&mut self, server: u32, drain: bool) -> Outcome<u32> {
        let drained = self.catalog.drain(server, drain);
        self.noted(drained)
    }

    fn found(&mut self, table: Option<TableRecord>) -> Outcome<u32> {
        match table {
            Some(mut table) => {
                let ranges: Vec<Range> = table.ranges().map(|(range, _)| range).collect();
                for (tablet, range) in table.tablets.iter_mut().zip(ranges) {
                    let whole = Tablet { table: table.id, range };
                    if !self.members.serves(tablet.server, whole, &self.catalog) {
                        tablet.locator.clear();
                    }
                }
                self.table(&table)
            }
            None => Outcome::Reply(answer(Status::NoSuchTable, false, 0, 0, Repeat::Reexecute)),
        }
    }

    /// It does not lead; who does, if that is known.
    fn not_leading(&mut self) -> Outcome<u32> {
        let (term, locator) =
            self.post.as_ref().map(|post| post.leader.clone()).unwrap_or_default();
        self.list(Status::NotLeading, term, |out| out.extend_from_slice(locator.as_bytes()))
    }

    fn who_leads(&mut self, now: Nanos) -> Outcome<u32> {
        if !self.leads(now) {
            return self.not_leading();
        }
        let locator = self.post.as_ref().map(|post| post.locator.clone()).unwrap_or_default();
        self.list(Status::Ok, self.term(), |out| out.extend_from_slice(locator.as_bytes()))
    }

    /// Takes in whether it leads.
    fn hear(&mut self, now: Nanos) {
        let Some(post) = &mut self.post else { return };
        let Some(news) = post.office.news(&mut post.heard).filter(|news| !news.is_empty()) else {
            return;
        };
        if let Some(leader) = news.leader {
            post.leader = leader;
        }
        if self.catalog.is_present() {
            self.step_down();
        }
        let Some(post) = &mut self.post else { return };
        if let Some(reign) = news.reign {
            (post.term, post.valid, post.leader) = (reign.term, reign.valid, (0, String::new()));
            self.catalog = reign.catalog;
            self.members =
                Members::of_reign(now, self.catalog.version(), reign.taken + BURIAL_WAIT);
            tracing::info!("leads the cluster, in term {}", reign.term);
        }
    }

    /// Leads no more: because somebody else does, or because it does not know what became of a
    /// change.
    fn step_down(&mut self) {
        let post = self.post.as_mut().expect("one that is alone loses nothing");
        post.valid = Valid::default();
        match self.catalog.lost() {
            Some(why) => {
                tracing::warn!("leads no more: {why}");
                post.office.resign(post.term);
            }
            None => tracing::warn!("leads no more: term {} is over", post.term),
        }
        self.catalog = Catalog::absent();
        self.members = Members::default();
        self.turn_away();
    }

    /// Answers what waits: questions with that it does not lead, changes as what they are, made.
    fn turn_away(&mut self) {
        for question in std::mem::take(&mut self.questions) {
            self.session = question.id.session();
            let outcome = self.not_leading();
            self.ready.push_back((question.id, outcome));
        }
        for change in std::mem::take(&mut self.changes) {
            self.session = change.id.session();
            let outcome = self.changed(change.table, change.version);
            self.ready.push_back((change.id, outcome));
        }
    }

    /// A change was made.
    fn changed(&mut self, table: Option<TableRecord>, version: u64) -> Outcome<u32> {
        match table {
            Some(table) => self.table(&table),
            None => Outcome::Reply(answer(Status::Ok, false, 0, version, Repeat::Retain)),
        }
    }

    /// What who asks may not do.
    fn refused(&self, who: Requester, request: &Request<'_>) -> Option<Outcome<u32>> {
        let allowed = match request {
            Request::CreateTable { .. }
            | Request::DropTable { .. }
            | Request::MoveTablet { .. }
            | Request::Drain { .. } => who.administers(),
            Request::FindTable { name } => self.guests.rights_by_name(who, name).is_some(),
            Request::Enlist { .. }
            | Request::Assignments { .. }
            | Request::CopyCatalog { .. }
            | Request::Void { .. }
            | Request::Recovered { .. }
            | Request::Loads { .. }
            | Request::Backup(_) => who.serves(),
            Request::ListServers | Request::ServerStats => who.role() != Some(Role::Client),
            // Anybody may ask; of tables each sees its own. The others are not for a coordinator.
            _ => true,
        };
        (!allowed).then(denied)
    }

    fn dispatch(&mut self, now: Nanos, id: RequestId, request: Request<'_>) -> Outcome<u32> {
        if let Some(refused) = self.refused(id.requester(), &request) {
            return refused;
        }
        match request {
            Request::WhoLeads => return self.who_leads(now),
            Request::ServerStats => {}
            _ if !self.leads(now) => return self.not_leading(),
            _ => {
                if let Some(refused) = self.refuse_behind(&request) {
                    return refused;
                }
            }
        }
        match request {
            Request::WhoLeads => unreachable!("answered above"),
            Request::CreateTable { name, tablets } => self.create(now, id, name, tablets),
            Request::DropTable { name } => self.drop_table(now, id, name),
            Request::FindTable { name } => {
                let known = self.catalog.find(name);
                self.found(known)
            }
            Request::LocateTable { table } => {
                // One that may not be seen is not there.
                let known = self.catalog.tables().find(|record| record.id == table);
                let known = known.filter(|known| {
                    self.guests.rights_by_name(id.requester(), &known.name).is_some()
                });
                self.found(known)
            }
            Request::ListTables => {
                let seen = |table: &TableRecord| {
                    self.guests.rights_by_name(id.requester(), &table.name).is_some()
                };
                let tables: Vec<_> = self.catalog.tables().filter(seen).collect();
                self.list(Status::Ok, self.catalog.version(), |out| {
                    tables.iter().for_each(|table| push_table(out, table))
                })
            }
            Request::ListServers => {
                let silent = |id| {
                    let silence = self.members.silence(now, id);
                    silence.map_or(u32::MAX, |silence| {
                        u32::try_from(silence.as_millis()).unwrap_or(u32::MAX)
                    })
                };
                let record = |(id, known): (u32, &super::Known)| ServerRecord {
                    id,
                    silent_ms: silent(id),
                    locator: known.locator.clone(),
                    rack: known.rack.clone(),
                };
                let servers: Vec<_> = self.catalog.servers().map(record).collect();
                self.list(Status::Ok, 0, |out| {
                    servers.iter().for_each(|server| push_server(out, server))
                })
            }
            Request::Enlist { server, cluster, copies, locator, rack } => {
                self.enlist(now, server, (cluster, copies), (locator, rack))
            }
            Request::Assignments { server, known, seen } => {
                match self.refuse_foreign(now, server, seen) {
                    Some(refused) => refused,
                    None => self.question(now, id, server, known),
                }
            }
            Request::CopyCatalog { server, seen } => match self.refuse_foreign(now, server, seen) {
                Some(refused) => refused,
                None => self.copy_catalog(),
            },
            Request::MoveTablet { table, to, range } => {
                self.move_tablet(now, range.range().map(|range| Tablet { table, range }), to)
            }
            Request::Drain { server, drain } => self.drain(server, drain),
            Request::Void { server, segment } => self.void(server, segment),
            Request::Recovered { server, part, failure } => {
                self.recovered(now, server, part, failure)
            }
            Request::Loads { server, capacity, loads } => {
                self.members.told(server, capacity, loads);
                Outcome::Reply(answer(Status::Ok, false, 0, 0, Repeat::Reexecute))
            }
            Request::ServerStats => {
                let (tables, servers) =
                    (self.catalog.count() as u64, self.catalog.servers().count() as u64);
                let tablets = self.catalog.tablets() as u64;
                let requests = self.requests;
                let lost = self.members.failures().count() as u64;
                let moves = self.catalog.moves().count() as u64;
                let leads = self.leads(now).into();
                self.list(Status::Ok, 0, |out| {
                    push_counter(out, "coordinator_tables", tables);
                    push_counter(out, "coordinator_tablets", tablets);
                    push_counter(out, "coordinator_servers", servers);
                    push_counter(out, "coordinator_requests_total", requests);
                    push_counter(out, "coordinator_recoveries_failing", lost);
                    push_counter(out, "coordinator_moves", moves);
                    push_counter(out, "coordinator_leads", leads);
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
            | Request::Collect { .. }
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
        self.session = id.session();
        match Request::parse(payload) {
            Ok(request) => self.dispatch(now, id, request),
            Err(malformed) => {
                answer_text(&mut self.bodies, Status::Malformed, &malformed.to_string())
            }
        }
    }

    fn admitted(&mut self, who: Requester, certificate: &Certificate) {
        self.guests.admit(who, certificate);
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
        self.hear(now);
        if self.leads(now) {
            if self.behind.is_none() {
                self.members.poll(now, &mut self.catalog);
            }
            if self.catalog.lost().is_some() {
                self.step_down();
            }
        }
        self.led = self.leads(now);
        match self.led {
            true => self.answer_due(now),
            false => self.turn_away(),
        }
        !self.ready.is_empty()
    }

    fn take_ready(&mut self) -> Option<(RequestId, Outcome<u32>)> {
        self.ready.pop_front()
    }

    fn next_deadline(&self) -> Option<Nanos> {
        if !self.led {
            return None; // until its office has news
        }
        let version = self.catalog.version();
        let due =
            |question: &Question| if question.known == version { question.until } else { Nanos(0) };
        let questions = self.questions.iter().map(due);
        let changes = self.changes.iter().map(|change| change.until);
        let valid = self.post.iter().map(|post| post.valid.until());
        let members =
            self.behind.is_none().then(|| self.members.next_deadline(&self.catalog)).flatten();
        questions.chain(changes).chain(valid).chain(members).min()
    }
}

impl<M: Metadata> Coordinator<M> {
    /// Answers questions and changes whose time has come.
    fn answer_due(&mut self, now: Nanos) {
        let version = self.catalog.version();
        let mut due = Vec::new();
        self.questions.retain(|question| {
            // One that came in this turn is answered in the next: the time that this turn began may
            // be older than the question, if the process stood still since, and a lease
            // that is counted from then would end before the server's.
            let keep = question.came >= now || (question.known == version && now < question.until);
            if !keep {
                due.push((question.id, question.server, question.known));
            }
            keep
        });
        for (id, server, known) in due {
            self.session = id.session();
            let outcome = self.assignments(now, server, known);
            self.ready.push_back((id, outcome));
        }
        let members = &self.members;
        let mut done = Vec::new();
        self.changes.retain_mut(|change| {
            let applied =
                change.servers.iter().all(|&server| members.has_applied(server, change.version));
            let keep = !applied && now < change.until;
            if !keep {
                done.push((change.id, change.table.take()));
            }
            keep
        });
        for (id, table) in done {
            self.session = id.session();
            let outcome = self.changed(table, version);
            self.ready.push_back((id, outcome));
        }
    }
}
