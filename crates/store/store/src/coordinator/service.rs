//! The coordinator as a service. It answers a poll when there are newer assignments, a change when
//! the servers concerned have applied the change, and other requests at once.

mod waiting;

pub use self::waiting::{APPLY_TIMEOUT, MAX_WAITING, POLL};
use self::waiting::{PendingChange, PendingCopy, PendingPoll};
use super::REMEDY;
use super::catalog::{Catalog, Refusal};
use super::election::TAKEOVER_GRACE;
use super::members::Membership;
use super::metadata::Metadata;
use super::office::{LeaderLease, LeaderMailbox, LeaderTerm};
use crate::answers::{answer, answer_text, denied};
use crate::bodies::ResponseBuffers;
use crate::guests::AccessRules;
use crate::node::Service;
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, Repeat, RequestId, Requester, Response};
use sprat_wire::certificate::{Certificate, Role};
use sprat_wire::index::parse_new_index;
use sprat_wire::op::{
    ClusterSeen, RecoveredPart, Request, ServerRecord, Status, TableOptions, TableRecord,
    push_counter, push_server, push_table,
};
use sprat_wire::tablet::{Range, Tablet};
use std::collections::VecDeque;
use std::time::Duration;

/// Retry delay, in microseconds, in replies while [`MAX_WAITING`] is reached, or no buffer is left.
const BUSY_MICROS: u32 = 10_000;

/// Retry delay, in microseconds, in replies while the metadata cannot be changed.
const LATER_MICROS: u32 = 100_000;

/// The shortest time between two warnings that the metadata do not fit a server's data.
const FOREIGN_WARNING_INTERVAL: Duration = Duration::from_secs(5);

/// The state of a coordinator that is one of several.
struct Candidacy<M> {
    mailbox: LeaderMailbox<M>,
    /// Number of updates taken from the mailbox.
    seen: u64,
    /// This coordinator's own locator.
    locator: String,
    /// This coordinator's latest term as leader, and its lease in that term.
    term: u64,
    valid: LeaderLease,
    /// Term and locator of another leader; zero and "" if it is not known.
    leader: (u64, String),
}

/// The coordinator's service, for the node on which it runs.
///
/// It holds the [`Catalog`], the state of all servers, the polls of servers that wait for newer
/// assignments, and the changes of clients that wait until servers have applied them. A node feeds
/// it requests and calls [`poll`](Service::poll) at each iteration of its loop. It may block on its
/// metadata, for a bounded time; everything else returns at once.
///
/// A coordinator without others ([`new`](Self::new)) always leads. One of several
/// ([`standby`](Self::standby)) leads while its [`LeaderMailbox`] says so and its lease is valid;
/// otherwise it answers [`Status::NotLeading`] with the leader's locator.
pub struct Coordinator<M> {
    /// The coordinator's candidacy; `None` for the cluster's only coordinator, which always leads.
    candidacy: Option<Candidacy<M>>,
    catalog: Catalog<M>,
    members: Membership,
    guests: AccessRules,
    polls: Vec<PendingPoll>,
    changes: Vec<PendingChange>,
    copies: Vec<PendingCopy>,
    ready: VecDeque<(RequestId, Outcome<u32>)>,
    bodies: ResponseBuffers,
    requests: u64,
    /// The session of the request that is being answered.
    session: u32,
    /// Whether the coordinator led at the last call of [`poll`](Service::poll).
    led: bool,
    /// The time before which no further warning about servers with foreign data is given.
    warn_foreign_from: Nanos,
    /// Why these metadata are an older copy, once a server of the cluster has shown that they are.
    /// It is never reset. If it were, the coordinator would declare dead the servers that it
    /// refuses, and each such change would raise its version. Once the version reached that of the
    /// servers, no server would notice the older copy any more.
    behind: Option<String>,
}

impl<M: Metadata> Coordinator<M> {
    /// Makes the only coordinator of a cluster, with this catalog.
    pub fn new(catalog: Catalog<M>) -> Self {
        Self {
            candidacy: None,
            catalog,
            members: Membership::default(),
            guests: AccessRules::default(),
            polls: Vec::new(),
            changes: Vec::new(),
            copies: Vec::new(),
            ready: VecDeque::new(),
            bodies: ResponseBuffers::default(),
            requests: 0,
            session: 0,
            led: true,
            warn_foreign_from: Nanos(0),
            behind: None,
        }
    }

    /// Makes one of several coordinators, which others reach at `locator`. It leads once `mailbox`
    /// appoints it. Before that, and after its lease has ended, it answers [`Status::NotLeading`].
    pub fn standby(mailbox: LeaderMailbox<M>, locator: String) -> Self {
        let candidacy = Candidacy {
            mailbox,
            seen: 0,
            locator,
            term: 0,
            valid: LeaderLease::default(),
            leader: (0, String::new()),
        };
        Self { candidacy: Some(candidacy), ..Self::new(Catalog::absent()) }
    }

    /// Returns whether the coordinator leads at `now`.
    pub fn leads(&self, now: Nanos) -> bool {
        let is_valid = |candidacy: &Candidacy<M>| candidacy.valid.is_valid(now);
        self.candidacy
            .as_ref()
            .is_none_or(|candidacy| self.catalog.is_present() && is_valid(candidacy))
    }

    /// Returns this coordinator's latest term as leader; zero for the only coordinator of a
    /// cluster.
    pub fn term(&self) -> u64 {
        self.candidacy.as_ref().map_or(0, |candidacy| candidacy.term)
    }

    /// Returns the catalog.
    pub fn catalog(&self) -> &Catalog<M> {
        &self.catalog
    }

    /// Returns the dead server, and the reason of the newest failure, for each recovery task of
    /// which an attempt has failed and none has succeeded.
    pub fn failures(&self) -> impl Iterator<Item = (u32, &str)> {
        self.members.failures()
    }

    /// Makes a reply with a body that `fill` writes. If the session has used up its share of
    /// buffers, asks it to retry.
    fn reply(
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

    fn reply_table(&mut self, table: &TableRecord) -> Outcome<u32> {
        self.reply(Status::Ok, u64::from(table.id), |out| push_table(out, table))
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

    fn create(
        &mut self,
        now: Nanos,
        id: RequestId,
        name: &str,
        options: TableOptions,
    ) -> Outcome<u32> {
        match self.catalog.create(name, options, &self.members.alive(now, &self.catalog)) {
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

    /// Replies once the servers of a table know of the change to its indexes.
    fn index_changed(
        &mut self,
        now: Nanos,
        id: RequestId,
        changed: Result<Result<TableRecord, Status>, Refusal>,
    ) -> Outcome<u32> {
        match changed {
            Ok(Ok(table)) => {
                let servers = table.tablets.iter().map(|tablet| tablet.server).collect();
                self.await_applied(now, id, servers, Some(table))
            }
            Ok(Err(status)) => Outcome::Reply(answer(status, false, 0, 0, Repeat::Retain)),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn enlist(
        &mut self,
        now: Nanos,
        server: u32,
        (cluster, copies): (u64, u8),
        (locator, rack): (&str, &str),
    ) -> Outcome<u32> {
        let ours = self.catalog.cluster();
        // A server whose log is kept by other servers may have been removed from the catalog. It
        // starts with an empty log anyway, and gets a new id.
        let known = copies > 0 || self.catalog.server(server).is_some();
        if cluster != 0 && (cluster != ours || !known) {
            let reason = format!(
                "the data belongs to cluster {cluster:016x}, server {server}; this is cluster \
                 {ours:016x}: give the -C of that cluster, or another --data"
            );
            return answer_text(&mut self.bodies, Status::WrongCluster, &reason);
        }
        let id = if cluster == 0 { 0 } else { server };
        match self.catalog.enlist(id, (locator, rack), copies) {
            Ok(id) => {
                self.members.enlisted(now, id);
                let version = self.catalog.version();
                self.reply(Status::Ok, u64::from(id), |out| {
                    push_counter(out, "cluster", ours);
                    push_counter(out, "version", version);
                })
            }
            Err(refusal) => self.refuse(&refusal),
        }
    }

    /// Refuses a server that is of another cluster. If this is the only coordinator, refuses also a
    /// server that has seen a later version than these metadata have, or than the copy had from
    /// which they were rebuilt. Such metadata began empty, or were restored from an older copy, so
    /// their tables may differ from the tables of the server's objects.
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
                "are of cluster {ours:016x}, and server {server} is of cluster {cluster:016x}: \
                 they started empty, or -C names another cluster's coordinator"
            )
        } else if known > version {
            format!(
                "are of version {version} of the tablet map, and server {server} has seen version \
                 {known}: they are an older copy"
            )
        } else if let Some(copy) = self.catalog.lacks(known) {
            format!(
                "were rebuilt from version {copy} of the tablet map, and server {server} has seen \
                 version {known}: its catalog.sprat may be newer; they are an older copy"
            )
        } else {
            return None;
        };
        let reason =
            format!("the coordinator's metadata ({}) {reason}: {REMEDY}", self.catalog.place());
        if now >= self.warn_foreign_from {
            tracing::error!("{reason}");
            self.warn_foreign_from = now + FOREIGN_WARNING_INTERVAL;
        }
        // A leader that was deposed and does not know it yet has a lower version for a moment. The
        // servers turn to its successor.
        let is_alone = self.candidacy.is_none();
        if is_alone && cluster == ours {
            self.behind = Some(reason.clone());
        }
        (is_alone || cluster != ours)
            .then(|| answer_text(&mut self.bodies, Status::WrongCluster, &reason))
    }

    /// Refuses every request once these metadata are known to be an older copy. Reports of servers
    /// get `NotLeading`, after which a server sends them again. If such a report were refused, the
    /// server would stop.
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

    /// Records that recovery must not use open heads of a live server's log below `segment`.
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
        report: &RecoveredPart,
        failure: (&str, bool),
    ) -> Outcome<u32> {
        let task = (server, report.order.get(), report.since.get());
        match self.members.recovered(now, task, failure, &mut self.catalog) {
            Ok(()) => Outcome::Reply(answer(Status::Ok, false, 0, 0, Repeat::Retain)),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn move_tablet(&mut self, now: Nanos, tablet: Option<Tablet>, to: u32) -> Outcome<u32> {
        let alive = self.members.alive(now, &self.catalog).contains(&to);
        let begun = match tablet {
            Some(tablet) if alive => self.catalog.begin_move(tablet, to),
            _ => Err(Refusal::Limit("there is no such server, or it does not answer")),
        };
        self.reply_committed(begun.map(drop))
    }

    /// Replies to a change at once, without waiting for servers to apply it.
    fn reply_committed(&mut self, change: Result<(), Refusal>) -> Outcome<u32> {
        match change {
            Ok(()) => {
                Outcome::Reply(answer(Status::Ok, false, 0, self.catalog.version(), Repeat::Retain))
            }
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn drain(&mut self, server: u32, drain: bool) -> Outcome<u32> {
        let drained = self.catalog.drain(server, drain);
        self.reply_committed(drained)
    }

    /// Replies with a table. Tablets that their server does not serve yet get no locator in the
    /// reply.
    fn reply_found(&mut self, table: Option<TableRecord>) -> Outcome<u32> {
        match table {
            Some(mut table) => {
                let ranges: Vec<Range> = table.ranges().map(|(range, _)| range).collect();
                for (tablet, range) in table.tablets.iter_mut().zip(ranges) {
                    let whole = Tablet { table: table.id, range };
                    if !self.members.serves(tablet.server, whole, &self.catalog) {
                        tablet.locator.clear();
                    }
                }
                self.reply_table(&table)
            }
            None => Outcome::Reply(answer(Status::NoSuchTable, false, 0, 0, Repeat::Reexecute)),
        }
    }

    /// Replies that this coordinator does not lead, with the leader's locator if that is known.
    fn not_leading(&mut self) -> Outcome<u32> {
        let leader = self.candidacy.as_ref().map(|candidacy| candidacy.leader.clone());
        let (term, locator) = leader.unwrap_or_default();
        self.reply(Status::NotLeading, term, |out| out.extend_from_slice(locator.as_bytes()))
    }

    fn who_leads(&mut self, now: Nanos) -> Outcome<u32> {
        if !self.leads(now) {
            return self.not_leading();
        }
        let locator = self.candidacy.as_ref().map(|candidacy| candidacy.locator.clone());
        let locator = locator.unwrap_or_default();
        self.reply(Status::Ok, self.term(), |out| out.extend_from_slice(locator.as_bytes()))
    }

    /// Takes an update from the mailbox: begins to lead, or stops.
    fn take_leader_update(&mut self, now: Nanos) {
        let Some(candidacy) = &mut self.candidacy else { return };
        let update = candidacy.mailbox.take_update(&mut candidacy.seen);
        let Some(update) = update.filter(|update| !update.is_empty()) else { return };
        if let Some(leader) = update.leader {
            candidacy.leader = leader;
        }
        if self.catalog.is_present() {
            self.step_down();
        }
        let Some(candidacy) = &mut self.candidacy else { return };
        if let Some(LeaderTerm { term, taken, catalog, valid }) = update.term {
            (candidacy.term, candidacy.valid) = (term, valid);
            candidacy.leader = (0, String::new());
            self.catalog = catalog;
            self.members =
                Membership::for_leader(now, self.catalog.version(), taken + TAKEOVER_GRACE);
            tracing::info!("leads the cluster, in term {term}");
        }
    }

    /// Stops leading, because another coordinator leads, or because this one does not know whether
    /// a change of its metadata was made.
    fn step_down(&mut self) {
        let candidacy = self.candidacy.as_mut().expect("one that is alone loses nothing");
        candidacy.valid = LeaderLease::default();
        match self.catalog.lost() {
            Some(why) => {
                tracing::warn!("no longer leads: {why}");
                candidacy.mailbox.resign(candidacy.term);
            }
            None => tracing::warn!("no longer leads: term {} is over", candidacy.term),
        }
        self.catalog = Catalog::absent();
        self.members = Membership::default();
        self.complete_all();
    }

    /// Checks whether the sender's role and rights allow the request; returns the refusal if not.
    fn check_access(&self, who: Requester, request: &Request<'_>) -> Option<Outcome<u32>> {
        let allowed = match request {
            Request::CreateTable { .. }
            | Request::DropTable { .. }
            | Request::CreateIndex { .. }
            | Request::DropIndex { .. }
            | Request::MoveTablet { .. }
            | Request::Drain { .. } => who.administers(),
            Request::FindTable { name } => self.guests.rights_by_name(who, name).is_some(),
            Request::Enlist { .. }
            | Request::Assignments { .. }
            | Request::Void { .. }
            | Request::Recovered { .. }
            | Request::Loads { .. }
            | Request::Backup(_) => who.serves(),
            Request::CopyCatalog { .. } => who.serves() || who.administers(),
            Request::ListServers | Request::ServerStats => who.role() != Some(Role::Client),
            // Any peer may send these requests, and sees only tables to which it has rights. The
            // coordinator does not serve other requests, and the reply says so.
            _ => true,
        };
        (!allowed).then(denied)
    }

    fn dispatch(&mut self, now: Nanos, id: RequestId, request: Request<'_>) -> Outcome<u32> {
        if let Some(refused) = self.check_access(id.requester(), &request) {
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
        if let Request::Void { server, .. }
        | Request::Recovered { server, .. }
        | Request::Loads { server, .. }
        | Request::CopyCatalog { server, .. } = request
        {
            self.members.asked(now, server);
        }
        match request {
            Request::WhoLeads => unreachable!("answered above"),
            Request::CreateTable { name, options } => self.create(now, id, name, options),
            Request::DropTable { name } => self.drop_table(now, id, name),
            Request::CreateIndex { table, index } => {
                let (name, definition) =
                    parse_new_index(index).expect("checked when the request was parsed");
                let created = self.catalog.create_index(table, name, definition);
                self.index_changed(now, id, created)
            }
            Request::DropIndex { table, index } => {
                let dropped = self.catalog.drop_index(table, index);
                self.index_changed(now, id, dropped)
            }
            Request::FindTable { name } => {
                let known = self.catalog.find_table(name);
                self.reply_found(known)
            }
            Request::LocateTable { table } => {
                // A table to which the sender has no rights is reported as missing.
                let known = self.catalog.tables().find(|record| record.id == table);
                let known = known.filter(|known| {
                    self.guests.rights_by_name(id.requester(), &known.name).is_some()
                });
                self.reply_found(known)
            }
            Request::ListTables => {
                let seen = |table: &TableRecord| {
                    self.guests.rights_by_name(id.requester(), &table.name).is_some()
                };
                let tables: Vec<_> = self.catalog.tables().filter(seen).collect();
                self.reply(Status::Ok, self.catalog.version(), |out| {
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
                let record = |(id, known): (u32, &super::ServerEntry)| ServerRecord {
                    id,
                    silent_ms: silent(id),
                    locator: known.locator.clone(),
                    rack: known.rack.clone(),
                };
                let servers: Vec<_> = self.catalog.servers().map(record).collect();
                self.reply(Status::Ok, 0, |out| {
                    servers.iter().for_each(|server| push_server(out, server))
                })
            }
            Request::Enlist { server, cluster, copies, locator, rack } => {
                self.enlist(now, server, (cluster, copies), (locator, rack))
            }
            Request::Assignments { server, known, seen } => {
                match self.refuse_foreign(now, server, seen) {
                    Some(refused) => refused,
                    None => self.poll_assignments(now, id, server, known),
                }
            }
            Request::CopyCatalog { server, seen } => match self.refuse_foreign(now, server, seen) {
                Some(refused) => refused,
                // A server knows the latest version that it has seen.
                None if server != 0 => self.copy_catalog(),
                None => self.copy_confirmed(now, id),
            },
            Request::MoveTablet { table, to, range } => {
                self.move_tablet(now, range.range().map(|range| Tablet { table, range }), to)
            }
            Request::Drain { server, drain } => self.drain(server, drain),
            Request::Void { server, segment } => self.void(server, segment),
            Request::Recovered { server, part: report, failure, no_room } => {
                self.recovered(now, server, report, (failure, no_room))
            }
            Request::Loads { server, capacity, loads } => {
                self.members.record_loads(server, capacity, loads);
                Outcome::Reply(answer(Status::Ok, false, 0, 0, Repeat::Reexecute))
            }
            Request::ServerStats => {
                let (tables, servers) =
                    (self.catalog.table_count() as u64, self.catalog.servers().count() as u64);
                let tablets = self.catalog.tablet_count() as u64;
                let requests = self.requests;
                let lost = self.members.failures().count() as u64;
                let moves = self.catalog.moves().count() as u64;
                let leads = self.leads(now).into();
                self.reply(Status::Ok, 0, |out| {
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
            | Request::SetTtl { .. }
            | Request::Remove { .. }
            | Request::IncrementI64 { .. }
            | Request::IncrementF64 { .. }
            | Request::Scan { .. }
            | Request::ScanRange { .. }
            | Request::Batch { .. }
            | Request::Prepare { .. }
            | Request::Decide { .. }
            | Request::Restore { .. }
            | Request::TableStats { .. }
            | Request::Echo { .. }
            | Request::CopyLog { .. }
            | Request::Watch { .. }
            | Request::Collect { .. }
            | Request::Backup(_) => answer_text(
                &mut self.bodies,
                Status::WrongRole,
                "this is a coordinator; send requests for objects to the servers",
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
        self.take_leader_update(now);
        if self.leads(now) {
            // First, because a coordinator that stood still for the length of a lease, in a slow
            // write of its metadata, would declare servers dead whose polls have waited since.
            self.answer_due(now);
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
            false => self.complete_all(),
        }
        !self.ready.is_empty()
    }

    fn take_ready(&mut self) -> Option<(RequestId, Outcome<u32>)> {
        self.ready.pop_front()
    }

    fn next_deadline(&self) -> Option<Nanos> {
        if !self.led {
            return None; // an update in the mailbox wakes this thread
        }
        let version = self.catalog.version();
        let due = |poll: &PendingPoll| if poll.known == version { poll.until } else { Nanos(0) };
        let polls = self.polls.iter().map(due);
        let changes = self.changes.iter().map(|change| change.until);
        let valid = self.candidacy.iter().map(|candidacy| candidacy.valid.until());
        let members =
            self.behind.is_none().then(|| self.members.next_deadline(&self.catalog)).flatten();
        polls.chain(changes).chain(valid).chain(members).min()
    }
}
