//! A cluster in virtual time: a coordinator, two servers that answer, one that never does, and a
//! client that expects all tables at the silent server.

use sprat_client::{Core, Error, TransactionAction, TransactionOperation};
use sprat_net::{AnyDriver, Driver as _, Hub, HubOptions, Locator, Locators, Nanos};
use sprat_rpc::{
    CallFailure, CallId, Config, Endpoint, Handler, Outcome, Repeat, Reply, RequestId, Response,
};
use sprat_wire::op::{
    Answer, Condition, Request, Status, TableRecord, TabletRecord, WhenFull, encode_answer,
    push_counter, push_table,
};
use sprat_wire::transaction::{Decision, OperationState, Preparation};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use zerocopy::IntoBytes;

pub(crate) const STEP: Duration = Duration::from_micros(100);
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
pub(crate) const TABLES: u32 = 8;

/// Ports of the coordinator, of a server that never answers, and of two that do.
const COORDINATOR: u16 = 1;
pub(crate) const SILENT: u16 = 2;
pub(crate) const LIVELY: u16 = 3;
pub(crate) const OTHER: u16 = 4;
const CLIENT: u16 = 100;

fn address(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

/// The port of a server that is being recovered.
pub(crate) const RECOVERED: u16 = OTHER;

/// The port of a server whose locator this client cannot use.
pub(crate) const FOREIGN: u16 = 9;

fn locator(port: u16) -> String {
    if port == FOREIGN {
        return "pigeon:host=10.0.0.1".into();
    }
    format!("fast+udp:host=10.0.0.1,port={port}")
}

/// The record of a table with a tablet at each of these ports; a tablet at port zero has no server.
fn record(table: u32, ports: &[u16]) -> TableRecord {
    let locator = |port| if port == 0 { String::new() } else { locator(port) };
    let tablet = |(first, &port): (u64, &u16)| TabletRecord {
        first: first << 60,
        server: port.into(),
        locator: locator(port),
    };
    let tablets = (0..).zip(ports).map(tablet).collect();
    let name = format!("table {table}");
    let (when_full, indexes) = (WhenFull::Refuse, Vec::new());
    TableRecord { id: table, name, seed: 1, when_full, ordered: false, indexes, tablets }
}

/// The answers of the coordinator, which knows the servers of all tables, and of a server. The
/// server finds no object, and counts as many objects as the number of its port. Only
/// [`LIVELY`] prepares operations of transactions; others refuse them.
struct Answers {
    port: u16,
    places: Rc<RefCell<Vec<u16>>>,
    body: Vec<u8>,
    asked: u32,
    /// The writes that the server was asked for: whether each says that it was sent before.
    writes: Vec<bool>,
    /// The server's answer to requests to abort operations. Without one, it is busy.
    aborts: Rc<Cell<Option<OperationState>>>,
}

impl Handler for Answers {
    type Body = ();

    fn request(&mut self, _: Nanos, _: RequestId, payload: &[u8]) -> Outcome<()> {
        self.asked += 1;
        let Ok((request, id)) = Request::parse_with_id(payload) else {
            panic!("the client sent no request")
        };
        self.body.clear();
        if let Request::Write { .. } = request {
            self.writes.push(id.expect("a write has an id").resent);
            if self.port == RECOVERED {
                // It has executed the write, and other servers recover its log.
                let busy = encode_answer(Status::Busy, true, 0, 500);
                return Outcome::Reply(Reply::new(busy.as_bytes(), Repeat::Retain));
            }
        }
        let mut number = u64::from(self.port);
        let status = match request {
            Request::Prepare { .. } if self.port == LIVELY => {
                number = Preparation::Prepared as u64;
                Status::Ok
            }
            Request::Prepare { .. } => Status::Aborted,
            Request::Decide { decision: Decision::Abort, .. } => {
                let Some(state) = self.aborts.get() else { return Outcome::Retry(1_000) };
                number = state as u64;
                Status::Ok
            }
            Request::Decide { .. } => Status::Ok,
            Request::LocateTable { table } => {
                push_table(&mut self.body, &record(table, &self.places.borrow()));
                Status::Ok
            }
            Request::TableStats { .. } if !self.places.borrow().contains(&self.port) => {
                Status::UnknownTable
            }
            Request::TableStats { .. } => {
                push_counter(&mut self.body, "bytes", 100 * u64::from(self.port));
                Status::Ok
            }
            Request::Write { .. } => Status::Ok,
            _ => Status::NotFound,
        };
        let header = encode_answer(status, false, 0, number);
        let reply = Reply::new(header.as_bytes(), Repeat::Reexecute);
        Outcome::Reply(if self.body.is_empty() { reply } else { reply.with_body(()) })
    }

    fn gather(&self, (): ()) -> &[u8] {
        &self.body
    }

    fn release(&mut self, (): ()) {}

    fn completed(&mut self, _: Nanos, _: CallId, _: Result<Response<'_>, CallFailure>) {}
}

pub(crate) struct World {
    pub(crate) now: Nanos,
    hub: Hub,
    /// The coordinator, and the servers that answer.
    nodes: Vec<(AnyDriver, Endpoint<()>, Answers)>,
    pub(crate) core: Core,
    /// The ports of the servers of each table's tablets, as the coordinator knows.
    places: Rc<RefCell<Vec<u16>>>,
    /// How servers answer requests to abort operations; not while this is `None`.
    aborts: Rc<Cell<Option<OperationState>>>,
}

impl World {
    /// Makes a client that expects all tables at the silent server.
    pub(crate) fn new() -> Self {
        let hub = Hub::new(HubOptions::default());
        let port = |port| AnyDriver::from(hub.port(address(port)).expect("free"));
        let places = Rc::new(RefCell::new(vec![SILENT]));
        let aborts = Rc::new(Cell::new(None));
        let node = |number: u16| {
            let (places, aborts) = (Rc::clone(&places), Rc::clone(&aborts));
            let (body, writes) = (Vec::new(), Vec::new());
            let answers = Answers { port: number, places, body, asked: 0, writes, aborts };
            (port(number), Endpoint::new(&Config::default(), number.into()), answers)
        };
        let nodes = [COORDINATOR, LIVELY, OTHER].map(node).into();
        let coordinators: Locators = locator(COORDINATOR).parse().expect("a locator");
        let mut core = Core::with_drivers(vec![("fast+udp", port(CLIENT))], &coordinators, 7)
            .expect("a client");
        core.target(&locator(SILENT).parse::<Locator>().expect("a locator"))
            .expect("the transport is in use");
        (0..TABLES)
            .for_each(|table| core.learn(&record(table, &[SILENT])).expect("the locator is valid"));
        Self { now: Nanos(0), hub, nodes, core, places, aborts }
    }

    /// Lets the coordinator know of these servers, one for each tablet.
    pub(crate) fn place(&self, ports: &[u16]) {
        *self.places.borrow_mut() = ports.to_vec();
    }

    /// Reads from a table, and returns how long that takes.
    pub(crate) fn read(&mut self, table: u32) -> Duration {
        let begun = self.now;
        let ended = self.ask(&Request::Read { table, key: b"key" }, PATIENCE, None);
        assert!(matches!(ended, Ok(Status::NotFound)), "{ended:?}");
        self.now.since(begun)
    }

    /// Writes to a table. Once a server was asked, the coordinator knows `next` as the table's
    /// server.
    pub(crate) fn write(
        &mut self,
        table: u32,
        patience: Duration,
        next: Option<u16>,
    ) -> Result<Status, Error> {
        let (condition, ttl) = (Condition::None, None);
        let write = Request::Write { table, key: b"key", value: b"value", condition, ttl };
        self.ask(&write, patience, next)
    }

    /// Sends a request, and waits for the answer. Once a server was asked to write, the coordinator
    /// knows `next` as the table's server.
    fn ask(
        &mut self,
        request: &Request<'_>,
        patience: Duration,
        next: Option<u16>,
    ) -> Result<Status, Error> {
        self.core
            .submit(self.now, 1, request, self.now + patience)
            .expect("the client knows the table");
        self.core.flush();
        let mut ended = None;
        while ended.is_none() {
            self.step();
            if self.nodes.iter().any(|(_, _, answers)| !answers.writes.is_empty())
                && let Some(next) = next
            {
                self.place(&[next]);
            }
            let sink = &mut |_, answer: Result<Answer<'_>, _>| {
                ended = Some(answer.map(|answer| answer.status))
            };
            self.core.poll(self.now, sink).expect("the driver works");
        }
        ended.expect("just seen")
    }

    /// Makes the client expect a table at a server, and the coordinator know of that.
    pub(crate) fn learn(&mut self, table: u32, port: u16) {
        self.learn_tablets(table, &[port]);
    }

    /// Makes the client expect a table's tablets at servers, and the coordinator know of that.
    pub(crate) fn learn_tablets(&mut self, table: u32, ports: &[u16]) {
        self.place(ports);
        self.core.learn(&record(table, ports)).expect("the locator is valid");
    }

    /// Lets servers answer requests to abort operations.
    pub(crate) fn answer_aborts(&self, state: OperationState) {
        self.aborts.set(Some(state));
    }

    /// Commits a transaction that writes these objects, without waiting for the end.
    pub(crate) fn commit(&mut self, objects: &[(u32, &[u8])]) {
        let operation = |&(table, key)| {
            let action = TransactionAction::Write(b"value", None);
            TransactionOperation { table, key, condition: Condition::None, action }
        };
        let operations: Vec<_> = objects.iter().map(operation).collect();
        let deadline = self.now + PATIENCE;
        let submitted = self.core.submit_transaction(self.now, 1, &operations, deadline);
        submitted.expect("the client knows the tables");
        self.core.flush();
    }

    /// Lets time pass. Returns how the transaction ended, if it did.
    pub(crate) fn ended(&mut self, time: Duration) -> Option<Result<Status, Error>> {
        let until = self.now + time;
        let mut ended = None;
        while ended.is_none() && self.now < until {
            self.step();
            let sink = &mut |_, answer: Result<Answer<'_>, _>| {
                ended = Some(answer.map(|answer| answer.status))
            };
            self.core.poll(self.now, sink).expect("the driver works");
        }
        ended
    }

    /// Returns the writes that a server was asked for: whether each says that it was sent before.
    pub(crate) fn writes(&self, port: u16) -> &[bool] {
        let node = self.nodes.iter().find(|(_, _, answers)| answers.port == port);
        &node.expect("a server").2.writes
    }

    pub(crate) fn step(&mut self) {
        self.now = self.now + STEP;
        self.hub.deliver_until(self.now);
        let now = self.now;
        for (driver, endpoint, answers) in &mut self.nodes {
            driver
                .receive(&mut |tx, from, frame| endpoint.receive(now, from, frame, answers, tx))
                .expect("the driver works");
            endpoint.poll(now, answers, driver.tx());
            endpoint.flush(driver.tx());
        }
        self.hub.deliver_until(self.now);
    }

    pub(crate) fn coordinator_was_asked(&self) -> u32 {
        self.nodes[0].2.asked
    }
}
