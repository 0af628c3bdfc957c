//! The client without clock, thread or waiting: operations in, answers out.
//!
//! [`Core`] knows which server has a tablet, and keeps sessions to servers. It sends an operation
//! again when that is safe: when the operation certainly was not executed, when executing it twice
//! changes nothing, or when it has an id that lets the server recognize it. It reports every other
//! failure together with whether the operation may have been executed.

mod counts;
mod ranges;
mod transactions;

use self::counts::{COUNT_TAG, Count};
use self::ranges::{RANGE_TAG, RangeScan};
pub use self::transactions::TransactionOperation;
use self::transactions::{TRANSACTION_TAG, Transactions};
use crate::calls::{
    ATTEMPT_TIMEOUT, AnswerDelivery, AnswerSink, Calls, Carried, Pending, RepeatRule,
};
use crate::error::Error;
use crate::member::TimedIdentity;
use crate::operations::Recipient;
use crate::places::{LocationCache, TableLocation};
use crate::port::{Port, RequestTimes};
use crate::target::ServerHandle;
use sprat_key::Identity;
use sprat_net::{
    AnyDriver, Driver as _, DriverRole, Locator, LocatorError, Locators, Nanos, Sources,
};
use sprat_wire::op::{Answer, Records, Request, Status, TableRecord};
use sprat_wire::{MAX_KEY, MAX_TABLE_NAME, MAX_VALUE};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// The largest number of coordinators of a cluster that a client uses; a longer list is refused.
pub const MAX_COORDINATORS: usize = 8;

/// The largest number of transports in use at once, for the coordinator and the servers together. A
/// server that needs one more cannot be reached.
pub const MAX_PORTS: usize = 4;

/// Every `IDLE_ITERATIONS`th poll of the core also polls the ports that have no calls and no timer
/// that is due.
const IDLE_ITERATIONS: u32 = 1024;

/// Tag bit of the client's own requests for the location of a table; the other bits are the table's
/// id. The bit is clear in the tags of operations.
const LOCATE_TAG: u64 = 1 << 63;

/// Tag bits that mark the client's own requests.
const OWN_TAGS: u64 = LOCATE_TAG | COUNT_TAG | TRANSACTION_TAG | RANGE_TAG;

/// How long the client waits for the coordinator to locate a table.
const LOCATE_TIMEOUT: Duration = Duration::from_secs(1);

/// The receiver of a request.
#[derive(Clone, Copy)]
enum Destination {
    /// A table's tablet, and the server that has it as far as the client knows.
    Table(u32, ServerHandle),
    /// A table's tablet, and its server, which has been silent since the coordinator last located
    /// the table. The client asks the coordinator again before it sends the request.
    TableIfMoved(u32, ServerHandle),
    /// A table's tablet, when no server has it as far as the client knows.
    UnservedTable(u32),
    /// One server, whatever tablets it has.
    Server(ServerHandle),
    /// The leading coordinator.
    Coordinator,
}

/// The answer to one of the client's own requests, copied from the receive buffer.
struct OwnAnswer {
    status: Status,
    more: bool,
    count: u32,
    number: u64,
    body: Vec<u8>,
}

impl OwnAnswer {
    fn of(answer: &Answer<'_>) -> Self {
        let Answer { status, more, count, number, body, .. } = *answer;
        Self { status, more, count, number, body: body.to_vec() }
    }

    fn answer(&self) -> Answer<'_> {
        let Self { status, more, count, number, ref body } = *self;
        Answer { status, more, count, ttl_high: 0, number, body }
    }
}

/// The basis of both clients: takes operations and frames and returns answers, and acts only when
/// it is called. It has no thread and no clock; the caller passes the time, which must not
/// decrease.
///
/// A caller passes the coordinator's record of a table to [`learn`](Self::learn),
/// [submits](Self::submit) operations with tags of its choice, and calls [`poll`](Self::poll) in a
/// loop, which hands each answer with its tag to a sink. Between two polls that found nothing the
/// caller may sleep on [`sources`](Self::sources) until [`next_deadline`](Self::next_deadline). Up
/// to [`MAX_PENDING`](crate::MAX_PENDING) operations may be in progress.
pub struct Core {
    ports: Vec<Port>,
    calls: Calls,
    coordinators: Vec<ServerHandle>,
    /// Index of the leading coordinator, as far as known.
    leader: usize,
    /// The client's own locator, for transports that need one.
    local: Option<Locator>,
    /// The client's identity, if it has one.
    member: Option<TimedIdentity>,
    tables: LocationCache,
    /// Tables whose location the client is asking the coordinator for.
    locating: HashSet<u32>,
    counts: Vec<Count>,
    range_scans: Vec<RangeScan>,
    transactions: Transactions,
    /// The operations of the batch that is being gathered, each with its server; `None`: no batch
    /// is being gathered.
    gathered: Option<Vec<(ServerHandle, u32)>>,
    /// Number of rounds and of requests of scans of ranges so far: see [`COUNT_TAG`] and
    /// [`RANGE_TAG`].
    rounds: u64,
    /// Coordinators that have refused connections, as long as no coordinator has answered. `None`:
    /// the client waits for coordinators that refuse.
    refused: Option<Vec<ServerHandle>>,
    /// When to look next for operations that have waited long.
    check_old_at: Nanos,
    seed: u64,
    iterations: u32,
}

impl Core {
    /// Makes a client of the cluster with these coordinators, one of which leads. Sends nothing
    /// yet.
    ///
    /// `seed` must be random and unique to this client: it is the client's id, under which servers
    /// keep its completion records. `local` is the client's own locator, for transports that need
    /// one: see [`DriverRole::Connect`]. With an `identity` the client communicates only with
    /// members of that identity's cluster, and `now` counts from this call.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when a coordinator's transport cannot be opened, its name cannot be
    /// resolved, there are more than [`MAX_COORDINATORS`], the identity is not valid now, or the
    /// system has no random bytes.
    pub fn new(
        coordinators: &Locators,
        local: Option<Locator>,
        identity: Option<&Arc<Identity>>,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut core = Self::empty(seed);
        core.local = local;
        core.member = identity.map(TimedIdentity::new).transpose()?;
        core.find_coordinators(coordinators)?;
        Ok(core)
    }

    /// Like [`new`](Self::new), but with drivers that are already open and without an identity: for
    /// the simulator.
    ///
    /// # Errors
    /// [`Error::Endpoint`] as for [`new`](Self::new).
    pub fn with_drivers(
        drivers: Vec<(&'static str, AnyDriver)>,
        coordinators: &Locators,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut core = Self::empty(seed);
        for (transport, driver) in drivers {
            core.add_port(transport, driver)?;
        }
        core.find_coordinators(coordinators)?;
        Ok(core)
    }

    fn find_coordinators(&mut self, coordinators: &Locators) -> Result<(), Error> {
        if coordinators.len() > MAX_COORDINATORS {
            let count = coordinators.len();
            return Err(Error::Endpoint(format!(
                "{count} coordinators; a cluster has at most {MAX_COORDINATORS}"
            )));
        }
        self.coordinators =
            coordinators.iter().map(|locator| self.target(locator)).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn empty(seed: u64) -> Self {
        Self {
            ports: Vec::new(),
            calls: Calls::new(seed),
            coordinators: Vec::new(),
            leader: 0,
            local: None,
            member: None,
            tables: LocationCache::default(),
            locating: HashSet::new(),
            counts: Vec::new(),
            range_scans: Vec::new(),
            transactions: Transactions::default(),
            gathered: None,
            rounds: 0,
            refused: Some(Vec::new()),
            check_old_at: Nanos(0),
            seed,
            iterations: 0,
        }
    }

    fn add_port(&mut self, transport: &'static str, driver: AnyDriver) -> Result<(), Error> {
        let seed = self.seed.wrapping_add(self.ports.len() as u64);
        let credentials = self.member.as_ref().map(TimedIdentity::credentials).transpose()?;
        self.ports.push(Port::new(transport, driver, seed, credentials));
        Ok(())
    }

    /// Returns the server at a locator, and opens a transport for it if none fits.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when the host's name cannot be resolved, the transport cannot be opened,
    /// or `MAX_PORTS` other transports are in use.
    pub fn target(&mut self, locator: &Locator) -> Result<ServerHandle, Error> {
        let endpoint = |reason: &dyn std::fmt::Display| {
            Error::Endpoint(format!("cannot reach `{locator}`: {reason}"))
        };
        let peer = *locator
            .resolve()
            .map_err(|cause| endpoint(&cause))?
            .first()
            .ok_or_else(|| endpoint(&"the host's name has no address"))?;
        let transport = locator.transport.name();
        let found = self.ports.iter().position(|port| port.serves(transport, peer));
        let port = match found {
            Some(port) => port,
            None if self.ports.len() >= MAX_PORTS => {
                return Err(endpoint(&"too many kinds of transport in use"));
            }
            None => {
                let driver = AnyDriver::open(locator, DriverRole::Connect(self.local.as_ref()))
                    .map_err(|cause| Error::Endpoint(cause.to_string()))?;
                self.add_port(transport, driver)?;
                self.ports.len() - 1
            }
        };
        Ok(ServerHandle { port, peer })
    }

    /// Makes operations wait, until their deadlines, for coordinators that refuse connections, for
    /// example while a cluster is being started. Without this call, an operation fails with
    /// [`Error::ConnectionRefused`] once all coordinators have refused and none has ever answered.
    pub fn wait_for_coordinators(&mut self) {
        self.refused = None;
    }

    /// Ends operations for a coordinator when all coordinators refuse connections and none has ever
    /// answered this client. If a coordinator has answered before, the client goes on trying,
    /// because the coordinator may be restarted or another may take over.
    fn handle_refusals(&mut self, sink: AnswerSink<'_>) {
        let refusals = (0..).zip(&mut self.ports);
        let refusals = refusals.flat_map(|(port, of)| {
            std::iter::from_fn(|| of.take_refusal()).map(move |peer| (port, peer))
        });
        let refusals: Vec<ServerHandle> =
            refusals.map(|(port, peer)| ServerHandle { port, peer }).collect();
        let Some(refused) = self.refused.as_mut().filter(|_| !self.calls.any_answered()) else {
            return;
        };
        refused.extend(refusals);
        if !refused.is_empty() && self.coordinators.iter().all(|one| refused.contains(one)) {
            // The next operation tries all of them again.
            refused.clear();
            let all: Vec<_> = self.coordinators.iter().map(|one| one.peer.to_string()).collect();
            self.calls.end_refused(&Error::ConnectionRefused(all.join(", ")), sink);
        }
    }

    /// Returns the coordinator that leads, as far as the client knows.
    #[must_use]
    pub fn coordinator(&self) -> ServerHandle {
        self.coordinators[self.leader]
    }

    /// Uses another coordinator from now on: the one at the locator `named`, or the next in the
    /// list if `named` is not a usable locator, is the current one, or is a new one although there
    /// are [`MAX_COORDINATORS`] already.
    pub fn switch_coordinator(&mut self, named: &str) {
        let named = named.parse().ok().and_then(|locator| self.target(&locator).ok());
        let known = named.and_then(|named| self.coordinators.iter().position(|&one| one == named));
        self.leader = match (known, named) {
            (Some(known), _) if known != self.leader => known,
            (None, Some(new)) if self.coordinators.len() < MAX_COORDINATORS => {
                self.coordinators.push(new);
                self.coordinators.len() - 1
            }
            _ => (self.leader + 1) % self.coordinators.len(),
        };
    }

    /// Stores which servers have a table, so that operations on the table can be submitted.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when a server's locator is invalid, its name cannot be resolved, or its
    /// transport cannot be opened.
    pub fn learn(&mut self, table: &TableRecord) -> Result<(), Error> {
        let mut targets = BTreeMap::new();
        for text in table.locators().into_iter().filter(|text| !text.is_empty()) {
            let locator: Locator =
                text.parse().map_err(|error| Error::Endpoint(format!("{error}")))?;
            targets.insert(text, self.target(&locator)?);
        }
        let target = |text: &str| targets.get(text).copied();
        let tablets =
            table.tablets.iter().map(|tablet| (tablet.first, target(&tablet.locator))).collect();
        self.tables.learn(table.id, TableLocation { seed: table.seed, tablets, stale: false });
        Ok(())
    }

    /// Returns the server of a table's first tablet, or the coordinator while there is none.
    fn first_server(&mut self, table: u32) -> Result<ServerHandle, Error> {
        let place = self.tables.get(table).ok_or(Error::TableDropped(table))?;
        Ok(place.tablets[0].1.unwrap_or_else(|| self.coordinator()))
    }

    /// Returns the number of operations in progress.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.calls.len() + self.counts.len()
    }

    /// Submits an operation. [`poll`](Self::poll) reports its answer, or its failure, with `tag`,
    /// by `deadline` at the latest. The request leaves with the next `poll` or
    /// [`flush`](Self::flush), together with other submitted requests.
    ///
    /// The client finds the recipient: the leading coordinator, or the server of the tablet. It
    /// sends [`Request::TableStats`] to every server of the table and answers with the sums, and
    /// [`Request::ScanRange`], whatever its position, and answers with what all of them have.
    ///
    /// # Errors
    /// [`Error`] when a key, value or name is over its limit, [`Error::TableDropped`] when the
    /// table is unknown, and [`Error::TooManyPending`]. Nothing is submitted then, and `poll`
    /// reports nothing.
    ///
    /// # Panics
    /// When one of the tag's four highest bits is set: they mark the client's own requests.
    #[inline]
    pub fn submit(
        &mut self,
        now: Nanos,
        tag: u64,
        request: &Request<'_>,
        deadline: Nanos,
    ) -> Result<(), Error> {
        assert!(tag & OWN_TAGS == 0, "the highest bits of a tag are the client's own");
        if let Request::TableStats { table } = *request {
            return self.begin_count(now, tag, table, deadline);
        }
        if let Request::ScanRange { table, query, .. } = *request {
            check(request)?;
            return self.begin_range(now, tag, (table, &query), deadline);
        }
        let set_target = self.route(request)?;
        self.begin(now, tag, set_target, request, deadline)
    }

    /// Returns the receiver of a request.
    #[inline]
    fn route(&mut self, request: &Request<'_>) -> Result<Destination, Error> {
        let Some(table) = request.table() else { return Ok(Destination::Coordinator) };
        let place = self.tables.get(table).ok_or(Error::TableDropped(table))?;
        Ok(match place.of(request) {
            Some(target) if place.stale && self.calls.is_silent(target) => {
                Destination::TableIfMoved(table, target)
            }
            Some(target) => Destination::Table(table, target),
            None => Destination::UnservedTable(table),
        })
    }

    /// Like [`submit`](Self::submit), but to a server of the caller's choice and to no other.
    ///
    /// # Errors
    /// [`Error`] when a key, value or name is over its limit, and [`Error::TooManyPending`].
    /// Nothing is submitted then.
    pub fn submit_to(
        &mut self,
        now: Nanos,
        tag: u64,
        target: ServerHandle,
        request: &Request<'_>,
        deadline: Nanos,
    ) -> Result<(), Error> {
        self.begin(now, tag, Destination::Server(target), request, deadline)
    }

    /// Submits an operation to its recipient: see [`submit`](Self::submit).
    #[inline]
    pub(crate) fn submit_for(
        &mut self,
        now: Nanos,
        tag: u64,
        recipient: &Recipient,
        request: &Request<'_>,
        deadline: Nanos,
    ) -> Result<(), Error> {
        let target = match recipient {
            Recipient::ByRequest => return self.submit(now, tag, request, deadline),
            Recipient::CurrentCoordinator => self.coordinator(),
            Recipient::Server(locator) => {
                let invalid = |error: LocatorError| Error::Endpoint(error.to_string());
                self.target(&locator.parse().map_err(invalid)?)?
            }
        };
        self.submit_to(now, tag, target, request, deadline)
    }

    fn begin(
        &mut self,
        now: Nanos,
        tag: u64,
        set_target: Destination,
        request: &Request<'_>,
        deadline: Nanos,
    ) -> Result<(), Error> {
        check(request)?;
        let pending = self.pending_call(now, tag, set_target, request, deadline);
        let index = self.calls.add(pending, request)?;
        self.send_to(now, index, set_target, request);
        Ok(())
    }

    fn pending_call(
        &self,
        now: Nanos,
        tag: u64,
        set_target: Destination,
        request: &Request<'_>,
        deadline: Nanos,
    ) -> Pending {
        let (table, target) = match set_target {
            Destination::Table(table, target) | Destination::TableIfMoved(table, target) => {
                (Some(table), target)
            }
            Destination::UnservedTable(table) => (Some(table), self.coordinator()),
            Destination::Server(target) => (None, target),
            Destination::Coordinator => (None, self.coordinator()),
        };
        Pending {
            tag,
            target,
            table,
            repeats: RepeatRule::of(request),
            to_leader: matches!(set_target, Destination::Coordinator),
            begun: now,
            deadline,
            tries: 0,
            maybe_executed: false,
            given_up: false,
            unserved: false,
            held: false,
        }
    }

    /// Sends an operation, or makes it wait until its table is located.
    fn send_to(&mut self, now: Nanos, index: u32, set_target: Destination, request: &Request<'_>) {
        let target = self.calls.target(index);
        match set_target {
            Destination::UnservedTable(table) => self.calls.wait_for_server(now, index, table),
            Destination::TableIfMoved(table, _) => self.calls.locate_first(now, index, table),
            _ => match &mut self.gathered {
                Some(gathered) if request.may_be_in_batch() => gathered.push((target, index)),
                _ => self.ports[target.port].begin(now, Carried::One(index), &mut self.calls),
            },
        }
    }

    /// Begins a batch: operations on single objects that are [submitted](Self::submit) from now on
    /// wait for [`send_batch`](Self::send_batch), and then share a request to each server.
    pub fn begin_batch(&mut self) {
        self.gathered.get_or_insert_default();
    }

    /// Sends the operations that were submitted since [`begin_batch`](Self::begin_batch), with as
    /// few requests as the limits of a batch allow ([`MAX_BATCH`](sprat_wire::op::MAX_BATCH)). Each
    /// operation has its own answer, as if it had been sent alone.
    pub fn send_batch(&mut self, now: Nanos) {
        let mut gathered = self.gathered.take().unwrap_or_default();
        // A stable sort: operations on one server keep their order.
        gathered.sort_by_key(|(server, _)| *server);
        for group in gathered.chunk_by(|a, b| a.0 == b.0) {
            let operations: Vec<u32> = group.iter().map(|(_, index)| *index).collect();
            for carried in self.calls.divide(&operations) {
                self.ports[group[0].0.port].begin(now, carried, &mut self.calls);
            }
        }
    }

    /// Sends all requests that were submitted.
    pub fn flush(&mut self) {
        for port in &mut self.ports {
            port.flush();
        }
    }

    /// Receives frames, hands answers to `sink`, does what is due, and sends. Returns whether any
    /// frame arrived or any operation ended. If so, a caller that waits for an operation must poll
    /// again before it sleeps.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when a driver can no longer receive.
    pub fn poll(&mut self, now: Nanos, sink: AnswerSink<'_>) -> Result<bool, Error> {
        self.iterations = self.iterations.wrapping_add(1);
        self.calls.forget_answered();
        let all = self.iterations.is_multiple_of(IDLE_ITERATIONS);
        let in_progress = self.pending();
        let mut worked = false;
        let (mut places, mut counted, mut transacted) = (Vec::new(), Vec::new(), Vec::new());
        let mut scanned = Vec::new();
        let caller = sink;
        let sink = &mut |tag, answer: Result<Answer<'_>, Error>| match tag & OWN_TAGS {
            0 => caller(tag, answer),
            COUNT_TAG => counted.push((tag, answer.map(|answer| OwnAnswer::of(&answer)))),
            RANGE_TAG => scanned.push((tag, answer.map(|answer| OwnAnswer::of(&answer)))),
            TRANSACTION_TAG => {
                transacted.push((tag, answer.map(|answer| OwnAnswer::of(&answer))));
            }
            _ => places.push((
                tag,
                answer.map(|answer| (answer.status, Records::new(answer.body).table())),
            )),
        };
        for port in &mut self.ports {
            // A port without calls also has timers, for the sessions that it keeps, and callers
            // sleep until the earliest timer.
            if all || !port.is_idle() || port.next_deadline().is_some_and(|due| due <= now) {
                let mut deliver = AnswerDelivery { calls: &mut self.calls, sink };
                worked |= port.poll(now, &mut deliver)?;
            }
        }
        self.handle_refusals(sink);
        if let Some((from, named)) = self.calls.take_redirect()
            && from == self.coordinator()
        {
            self.switch_coordinator(&named);
        }
        while let Some(silent) = self.calls.take_silent() {
            self.tables.doubt(silent);
        }
        while let Some(index) = self.calls.take_due(now, sink) {
            if let Some(table) = self.calls.table(index) {
                if self.locating.contains(&table) {
                    // The tablet's server may be gone, and the coordinator is about to answer which
                    // server has it.
                    self.calls.wait_for_location(now, index);
                    continue;
                }
                match self.tables.get(table).map(|place| place.of(&self.calls.parsed(index))) {
                    Some(Some(target)) => self.calls.set_target(index, target),
                    Some(None) => {
                        self.calls.wait_for_server(now, index, table);
                        continue;
                    }
                    None => {
                        self.calls.end_dropped(now, index, sink);
                        continue;
                    }
                }
            }
            if self.calls.to_leader(index) {
                self.calls.set_target(index, self.coordinator());
            }
            let port = self.calls.target(index).port;
            self.ports[port].begin(now, Carried::One(index), &mut self.calls);
            self.ports[port].flush();
        }
        for (tag, place) in places {
            self.located(now, tag, place, caller);
        }
        for (tag, answer) in counted {
            self.count_answered(now, tag, answer, caller);
        }
        if !self.counts.is_empty() {
            self.poll_counts(now, caller);
        }
        if !scanned.is_empty() {
            for (tag, answer) in scanned {
                self.range_answered(now, tag, answer, caller);
            }
            self.flush();
        }
        self.poll_transactions(now, transacted, caller);
        if now >= self.check_old_at {
            self.check_old_at = now + ATTEMPT_TIMEOUT / 2;
            self.calls.doubt_old(now);
        }
        if self.calls.has_doubted() {
            self.send_locates(now);
        }
        Ok(worked || self.pending() < in_progress)
    }

    /// Returns whether the last [`poll`](Self::poll) took the answers to these operations from one
    /// response: all with the tags from `first` to `last`, of which there are `operations`. Then
    /// their server executed them one after the other, and nothing else in between; so what reads
    /// among them found was there at one moment.
    #[must_use]
    pub fn answered_at_once(&self, first: u64, last: u64, operations: usize) -> bool {
        self.calls.answered_at_once(first, last, operations)
    }

    /// Asks the coordinator for tables whose servers did not answer or no longer have the tablet.
    fn send_locates(&mut self, now: Nanos) {
        for table in self.calls.take_doubted() {
            if !self.locating.contains(&table) {
                self.send_locate(now, table);
            }
        }
        self.flush();
    }

    /// Asks the coordinator for a table, unless too many operations are in progress: the operation
    /// that needs the answer asks again later.
    fn send_locate(&mut self, now: Nanos, table: u32) {
        let request = Request::LocateTable { table };
        let (tag, deadline) = (LOCATE_TAG | u64::from(table), now + LOCATE_TIMEOUT);
        if self.begin(now, tag, Destination::Coordinator, &request, deadline).is_ok() {
            self.locating.insert(table);
            self.count_locates(table);
        }
    }

    /// Handles the coordinator's answer about where a table is, or the failure of that question.
    fn located(
        &mut self,
        now: Nanos,
        tag: u64,
        place: Result<(Status, Option<TableRecord>), Error>,
        sink: AnswerSink<'_>,
    ) {
        let table = u32::try_from(tag & !LOCATE_TAG).expect("a table's id");
        self.locating.remove(&table);
        let status = match place {
            Ok((Status::Ok, Some(record))) if self.learn(&record).is_ok() => {
                if let Some(place) = self.tables.get(table) {
                    self.calls.give_up_moved(now, table, place, sink);
                }
                Some(Status::Ok)
            }
            Ok((Status::NoSuchTable, _)) => {
                self.tables.forget(table);
                Some(Status::NoSuchTable)
            }
            // The operations try the same server again; if that fails, the client asks the
            // coordinator again. The client does this also when the coordinator names a server
            // whose host cannot be resolved for now, because operations on other tables must not
            // fail for that reason.
            Ok(_) | Err(_) => {
                self.tables.keep(table);
                None
            }
        };
        self.count_located(now, table, status, sink);
    }

    /// Sends an echo request of `bytes` bytes to the driver at the server of a table's first
    /// tablet. That driver answers without the server itself, and only drivers that bypass the
    /// kernel do. [`poll`](Self::poll) receives the answer, and [`take_pong`](Self::take_pong)
    /// returns it.
    ///
    /// # Errors
    /// [`Error::TableDropped`] when the table was dropped or this client has not opened it, and
    /// [`Error::Endpoint`] when the driver cannot send an echo request.
    pub fn ping(&mut self, table: u32, number: u32, bytes: usize) -> Result<(), Error> {
        let ServerHandle { port, peer } = self.first_server(table)?;
        self.ports[port].ping(peer.ip(), number, bytes)
    }

    /// Records when the next frame goes to the driver that reaches the server of a table's first
    /// tablet, and when the last frame comes from that driver. Call it when no other operation is
    /// in progress, so that these are the frames of the next request and its answer;
    /// [`request_times`](Self::request_times) returns these times.
    ///
    /// # Errors
    /// [`Error::TableDropped`] when the table was dropped or this client has not opened it.
    pub fn record_request_times(&mut self, table: u32) -> Result<(), Error> {
        let ServerHandle { port, .. } = self.first_server(table)?;
        self.ports[port].record_request_times();
        Ok(())
    }

    /// Returns the times that [`record_request_times`](Self::record_request_times) recorded.
    ///
    /// # Errors
    /// [`Error::TableDropped`] when the table was dropped or this client has not opened it.
    pub fn request_times(&mut self, table: u32) -> Result<RequestTimes, Error> {
        let ServerHandle { port, .. } = self.first_server(table)?;
        Ok(self.ports[port].request_times())
    }

    /// Returns the number of a ping that was answered, once.
    pub fn take_pong(&mut self) -> Option<u32> {
        self.ports.iter_mut().find_map(Port::take_pong)
    }

    /// Returns the time by which to call [`poll`](Self::poll) even if no frame arrives.
    #[must_use]
    pub fn next_deadline(&self) -> Nanos {
        let ports = self.ports.iter().filter_map(Port::next_deadline).min();
        let due = self.calls.next_due().min(self.next_count_deadline());
        let due = due.min(self.transactions.due());
        ports.unwrap_or(Nanos::NEVER).min(due)
    }

    /// Returns the RPC layer's counters, for each transport in use.
    pub fn rpc_counters(&self) -> impl Iterator<Item = &sprat_rpc::Counters> {
        self.ports.iter().map(Port::counters)
    }

    /// Returns the sources to sleep on while operations are in progress. They are valid until the
    /// next call of a method: see [`sprat_net::Driver::sources`].
    #[must_use]
    pub fn sources(&self) -> Sources<'_> {
        let mut sources = Sources::default();
        for port in self.ports.iter().filter(|port| !port.is_idle()) {
            port.driver().sources(&mut sources);
        }
        sources
    }
}

/// Checks a request against the limits before it is sent.
pub(crate) fn check(request: &Request<'_>) -> Result<(), Error> {
    if let Some((_, key)) = request.object()
        && key.len() > MAX_KEY
    {
        return Err(Error::KeyTooLarge(key.len()));
    }
    match *request {
        Request::Write { value, .. } | Request::Restore { value, .. }
            if value.len() > MAX_VALUE =>
        {
            Err(Error::ValueTooLarge(value.len()))
        }
        Request::ScanRange { query, .. } if query.longest_key() > query.max_key() => {
            Err(Error::KeyTooLarge(query.longest_key()))
        }
        Request::CreateIndex { index: [], .. } => Err(Error::BadIndex),
        Request::CreateTable { name, .. }
        | Request::DropTable { name }
        | Request::CreateIndex { table: name, .. }
        | Request::DropIndex { table: name, .. }
        | Request::FindTable { name }
            if !(1..=MAX_TABLE_NAME).contains(&name.len()) =>
        {
            Err(Error::BadTableName(name.to_owned()))
        }
        _ => Ok(()),
    }
}
