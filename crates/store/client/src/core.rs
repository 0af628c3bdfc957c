//! The client without clock, thread or waiting: operations in, answers out.
//!
//! [`Core`] knows which server a table is with, keeps sessions to servers, and sends an operation
//! again when that is safe: when it surely was not executed, when executing it twice changes
//! nothing, or when it has an id by which it is known again. Everything else that fails is
//! reported, with whether it may have been executed.

use crate::calls::{ATTEMPT, Calls, Deliver, Pending, Repeats, Sink};
use crate::error::Error;
use crate::member::Member;
use crate::places::{Place, Places};
use crate::port::{Passed, Port};
use crate::target::Target;
use sprat_key::Identity;
use sprat_net::{AnyDriver, Driver as _, DriverRole, Locator, Locators, Nanos, Sources};
use sprat_wire::op::{Answer, Records, Request, Status, TableRecord};
use sprat_wire::{MAX_KEY, MAX_TABLE_NAME, MAX_VALUE};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Coordinators of a cluster that a client knows of.
pub const MAX_COORDINATORS: usize = 8;

/// Transports used at once: the coordinator's and the servers'.
pub const MAX_PORTS: usize = 4;

/// Turns in which a port without calls is passed over before it is looked at once.
const IDLE_TURNS: u32 = 1024;

/// Tags of our own questions; operations have none with this bit.
const PLACE: u64 = 1 << 63;

/// How long the coordinator may take to say where a table is.
const PLACE_PATIENCE: Duration = Duration::from_secs(1);

/// Who is to be asked.
#[derive(Clone, Copy)]
enum Aim {
    /// Whoever has the tablet of this table, which is this server as far as known.
    Table(u32, Target),
    /// The same, but that server was silent, and it was not asked since who has the tablet.
    Perhaps(u32, Target),
    /// The same, while nobody has it.
    Nobody(u32),
    /// This server.
    At(Target),
    /// The coordinator that leads.
    Coordinator,
}

/// A client that takes operations and frames and hands out answers, when it is called and not
/// otherwise.
pub struct Core {
    ports: Vec<Port>,
    calls: Calls,
    coordinators: Vec<Target>,
    /// The one of them that leads, as far as known.
    leader: usize,
    /// Our own end, of transports that must be told.
    local: Option<Locator>,
    /// Who we are, if others want to know.
    member: Option<Member>,
    tables: Places,
    /// Tables whose place is being asked for.
    asked: HashSet<u32>,
    /// Coordinators that refuse connections, while no other has answered; `None`: they are waited
    /// for.
    refused: Option<Vec<Target>>,
    /// When operations that wait for long are looked for.
    look_at: Nanos,
    seed: u64,
    turns: u32,
}

impl Core {
    /// A client of the cluster whose coordinators are there, one of which leads. Sends nothing yet.
    /// `seed` is drawn for this client: it is known by it to servers, which keep what its
    /// operations came to. `local` is its own end, for a transport that has to be told what it
    /// is: see [`DriverRole::Connect`]. With an `identity` it speaks only to that cluster's members;
    /// its time zero is then now.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when a coordinator's transport cannot be opened or its name is unknown,
    /// or there are more than [`MAX_COORDINATORS`].
    pub fn new(
        coordinators: &Locators,
        local: Option<Locator>,
        identity: Option<&Arc<Identity>>,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut core = Self::empty(seed);
        core.local = local;
        core.member = identity.map(Member::new).transpose()?;
        core.find_coordinators(coordinators)?;
        Ok(core)
    }

    /// As [`new`](Self::new), with a driver that is open already: for the simulator.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over(
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
            tables: Places::default(),
            asked: HashSet::new(),
            refused: Some(Vec::new()),
            look_at: Nanos(0),
            seed,
            turns: 0,
        }
    }

    fn add_port(&mut self, transport: &'static str, driver: AnyDriver) -> Result<(), Error> {
        let seed = self.seed.wrapping_add(self.ports.len() as u64);
        let credentials = self.member.as_ref().map(Member::credentials).transpose()?;
        self.ports.push(Port::new(transport, driver, seed, credentials));
        Ok(())
    }

    /// The server at a locator, its transport opened if need be.
    ///
    /// # Errors
    /// [`Error::Endpoint`].
    pub fn target(&mut self, locator: &Locator) -> Result<Target, Error> {
        let endpoint = |reason: &dyn std::fmt::Display| {
            Error::Endpoint(format!("cannot reach `{locator}`: {reason}"))
        };
        let peer = *locator
            .resolve()
            .map_err(|cause| endpoint(&cause))?
            .first()
            .ok_or_else(|| endpoint(&"its name has no address"))?;
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
        Ok(Target { port, peer })
    }

    /// Has operations wait, as long as they may, for coordinators that refuse connections: those of
    /// a cluster that is being started. Otherwise, until one has answered, operations fail with
    /// [`Error::ConnectionRefused`] once all have refused.
    pub fn wait_for_coordinators(&mut self) {
        self.refused = None;
    }

    /// Ends operations for a coordinator when all coordinators refuse connections and none has ever
    /// answered this client. One that has answered before is being restarted, or others take over:
    /// then the client goes on trying.
    fn heed_refusals(&mut self, sink: Sink<'_>) {
        let refusals = (0..).zip(&mut self.ports);
        let refusals = refusals.flat_map(|(port, of)| {
            std::iter::from_fn(|| of.take_refusal()).map(move |peer| (port, peer))
        });
        let refusals: Vec<Target> = refusals.map(|(port, peer)| Target { port, peer }).collect();
        let Some(refused) = self.refused.as_mut().filter(|_| !self.calls.has_heard()) else {
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

    /// The coordinator that leads, as far as known.
    #[must_use]
    pub fn coordinator(&self) -> Target {
        self.coordinators[self.leader]
    }

    /// Asks another coordinator from here on: the one whose locator is `named`, or else the next.
    pub fn move_on(&mut self, named: &str) {
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

    /// Learns where a table is, so that operations on it can be submitted.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when a server's locator is of no use.
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
        self.tables.learn(table.id, Place { seed: table.seed, tablets, stale: false });
        Ok(())
    }

    /// All servers that serve something of a table; `None` while there is nobody for some of it.
    ///
    /// # Errors
    /// [`Error::TableDropped`].
    pub fn everybody(&mut self, table: u32) -> Result<Option<Vec<Target>>, Error> {
        Ok(self.tables.get(table).ok_or(Error::TableDropped(table))?.everybody())
    }

    /// The server of a table's beginning, or the coordinator while there is none.
    fn beginning(&mut self, table: u32) -> Result<Target, Error> {
        let place = self.tables.get(table).ok_or(Error::TableDropped(table))?;
        Ok(place.tablets[0].1.unwrap_or_else(|| self.coordinator()))
    }

    /// Operations under way.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.calls.len()
    }

    /// Submits an operation; its answer will come with `tag`, by `deadline` at the latest. It
    /// leaves with the next [`poll`](Self::poll) or [`flush`](Self::flush), together with
    /// others.
    ///
    /// # Errors
    /// At once, and then nothing was submitted: limits, an unknown table,
    /// [`Error::TooManyPending`].
    #[inline]
    ///
    /// # Panics
    /// When the tag's highest bit is set: that is for the client's own questions.
    pub fn submit(
        &mut self,
        now: Nanos,
        tag: u64,
        request: &Request<'_>,
        deadline: Nanos,
    ) -> Result<(), Error> {
        assert!(tag & PLACE == 0, "the highest bit of a tag is the client's own");
        let aim = match request.table() {
            Some(table) => {
                let place = self.tables.get(table).ok_or(Error::TableDropped(table))?;
                match place.of(request) {
                    Some(target) if place.stale && self.calls.is_silent(target) => {
                        Aim::Perhaps(table, target)
                    }
                    Some(target) => Aim::Table(table, target),
                    None => Aim::Nobody(table),
                }
            }
            None => Aim::Coordinator,
        };
        self.begin(now, tag, aim, request, deadline)
    }

    /// As [`submit`](Self::submit), to a server of the caller's choice, and to no other.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_to(
        &mut self,
        now: Nanos,
        tag: u64,
        target: Target,
        request: &Request<'_>,
        deadline: Nanos,
    ) -> Result<(), Error> {
        self.begin(now, tag, Aim::At(target), request, deadline)
    }

    fn begin(
        &mut self,
        now: Nanos,
        tag: u64,
        aim: Aim,
        request: &Request<'_>,
        deadline: Nanos,
    ) -> Result<(), Error> {
        check(request)?;
        let repeats = Repeats::of(request);
        let (table, target) = match aim {
            Aim::Table(table, target) | Aim::Perhaps(table, target) => (Some(table), target),
            Aim::Nobody(table) => (Some(table), self.coordinator()),
            Aim::At(target) => (None, target),
            Aim::Coordinator => (None, self.coordinator()),
        };
        let pending = Pending {
            tag,
            target,
            table,
            repeats,
            roams: matches!(aim, Aim::Coordinator),
            begun: now,
            deadline,
            tries: 0,
            perhaps: false,
            given_up: false,
            sought: false,
        };
        let index = self.calls.add(pending, request)?;
        match aim {
            Aim::Nobody(table) => self.calls.seek(now, index, table),
            Aim::Perhaps(table, _) => self.calls.ask_first(now, index, table),
            _ => self.ports[target.port].begin(now, index, &mut self.calls),
        }
        Ok(())
    }

    /// Sends what was submitted.
    pub fn flush(&mut self) {
        for port in &mut self.ports {
            port.flush();
        }
    }

    /// Takes what has arrived, hands answers to `sink`, does what is due, and sends. Returns
    /// whether anything arrived or ended: whoever waits for an operation looks again before it
    /// rests.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when a driver can no longer receive.
    pub fn poll(&mut self, now: Nanos, sink: Sink<'_>) -> Result<bool, Error> {
        self.turns = self.turns.wrapping_add(1);
        let all = self.turns.is_multiple_of(IDLE_TURNS);
        let under_way = self.calls.len();
        let mut worked = false;
        let mut places = Vec::new();
        let caller = sink;
        let sink = &mut |tag, answer: Result<Answer<'_>, Error>| match tag & PLACE {
            0 => caller(tag, answer),
            _ => places.push((
                tag,
                answer.map(|answer| (answer.status, Records::new(answer.body).table())),
            )),
        };
        for port in &mut self.ports {
            // One that is only kept for what may come has timers too, and callers sleep until the
            // earliest.
            if all || !port.is_idle() || port.next_deadline().is_some_and(|due| due <= now) {
                let mut deliver = Deliver { calls: &mut self.calls, sink };
                worked |= port.turn(now, &mut deliver)?;
            }
        }
        self.heed_refusals(sink);
        if let Some((from, named)) = self.calls.take_strayed()
            && from == self.coordinator()
        {
            self.move_on(&named);
        }
        while let Some(silent) = self.calls.take_silent() {
            self.tables.doubt(silent);
        }
        while let Some(index) = self.calls.take_due(now, sink) {
            if let Some(table) = self.calls.table(index) {
                if self.asked.contains(&table) {
                    // Where it was it may be no more, and whoever knows is about to say so.
                    self.calls.hold(now, index);
                    continue;
                }
                match self.tables.get(table).map(|place| place.of(&self.calls.parsed(index))) {
                    Some(Some(target)) => self.calls.aim(index, target),
                    Some(None) => {
                        self.calls.seek(now, index, table);
                        continue;
                    }
                    None => {
                        self.calls.end_dropped(now, index, sink);
                        continue;
                    }
                }
            }
            if self.calls.roams(index) {
                self.calls.aim(index, self.coordinator());
            }
            let port = self.calls.target(index).port;
            self.ports[port].begin(now, index, &mut self.calls);
            self.ports[port].flush();
        }
        for (tag, place) in places {
            self.settle(now, tag, place, caller)?;
        }
        if now >= self.look_at {
            self.look_at = now + ATTEMPT / 2;
            self.calls.doubt_old(now);
        }
        if self.calls.has_doubts() {
            self.ask_places(now);
        }
        Ok(worked || self.calls.len() < under_way)
    }

    /// Asks the coordinator where tables are whose servers have not answered, or do not serve them.
    fn ask_places(&mut self, now: Nanos) {
        for table in self.calls.take_doubts() {
            if !self.asked.insert(table) {
                continue;
            }
            let request = Request::LocateTable { table };
            let (tag, deadline) = (PLACE | u64::from(table), now + PLACE_PATIENCE);
            if self.begin(now, tag, Aim::Coordinator, &request, deadline).is_err() {
                self.asked.remove(&table); // too much is under way; the next failure asks again
            }
        }
        self.flush();
    }

    /// The coordinator has answered where a table is, or has not.
    fn settle(
        &mut self,
        now: Nanos,
        tag: u64,
        place: Result<(Status, Option<TableRecord>), Error>,
        sink: Sink<'_>,
    ) -> Result<(), Error> {
        let table = u32::try_from(tag & !PLACE).expect("a table's id");
        self.asked.remove(&table);
        match place {
            Ok((Status::Ok, Some(record))) => {
                self.learn(&record)?;
                if let Some(place) = self.tables.get(table) {
                    self.calls.give_up(now, table, place, sink);
                }
                Ok(())
            }
            Ok((Status::NoSuchTable, _)) => {
                self.tables.forget(table);
                Ok(())
            }
            // Whoever asked tries again where it was, and then it is asked again.
            Ok(_) | Err(_) => {
                self.tables.keep(table);
                Ok(())
            }
        }
    }

    /// Has the driver at a table's server send an echo of `bytes` bytes, past the server itself: of
    /// transports that bypass the kernel. [`poll`](Self::poll) takes it in.
    ///
    /// # Errors
    /// [`Error::TableDropped`]; [`Error::Endpoint`] when the driver does not do that.
    pub fn ping(&mut self, table: u32, number: u32, bytes: usize) -> Result<(), Error> {
        let Target { port, peer } = self.beginning(table)?;
        self.ports[port].ping(peer.ip(), number, bytes)
    }

    /// Has it noted when the next request to a table's server leaves for the driver, and when its
    /// answer comes from there.
    ///
    /// # Errors
    /// [`Error::TableDropped`].
    pub fn note_passing(&mut self, table: u32) -> Result<(), Error> {
        let Target { port, .. } = self.beginning(table)?;
        self.ports[port].note_passing();
        Ok(())
    }

    /// When that was.
    ///
    /// # Errors
    /// [`Error::TableDropped`].
    pub fn passed(&mut self, table: u32) -> Result<Passed, Error> {
        let Target { port, .. } = self.beginning(table)?;
        Ok(self.ports[port].passed())
    }

    /// The number of a ping that came back.
    pub fn take_pong(&mut self) -> Option<u32> {
        self.ports.iter_mut().find_map(Port::take_pong)
    }

    /// When [`poll`](Self::poll) has something to do although nothing arrives.
    #[must_use]
    pub fn next_deadline(&self) -> Nanos {
        let ports = self.ports.iter().filter_map(Port::next_deadline).min();
        ports.unwrap_or(Nanos::NEVER).min(self.calls.next_due())
    }

    /// What the RPC layer has counted, for each transport in use.
    pub fn rpc_counters(&self) -> impl Iterator<Item = &sprat_rpc::Counters> {
        self.ports.iter().map(Port::counters)
    }

    /// What to sleep on while operations are under way, until the next call: see
    /// [`sprat_net::Driver::sources`].
    #[must_use]
    pub fn sources(&self) -> Sources<'_> {
        let mut sources = Sources::default();
        for port in self.ports.iter().filter(|port| !port.is_idle()) {
            port.driver().sources(&mut sources);
        }
        sources
    }
}

/// What is wrong with a request before anybody is asked.
pub(crate) fn check(request: &Request<'_>) -> Result<(), Error> {
    if let Some((_, key)) = request.object()
        && key.len() > MAX_KEY
    {
        return Err(Error::KeyTooLarge(key.len()));
    }
    match *request {
        Request::Write { value, .. } if value.len() > MAX_VALUE => {
            Err(Error::ValueTooLarge(value.len()))
        }
        Request::CreateTable { name, .. }
        | Request::DropTable { name }
        | Request::FindTable { name }
            if !(1..=MAX_TABLE_NAME).contains(&name.len()) =>
        {
            Err(Error::BadTableName(name.to_owned()))
        }
        _ => Ok(()),
    }
}
