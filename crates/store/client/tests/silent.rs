//! A client whose server is silent, in virtual time: how long it waits before it asks the
//! coordinator for the new servers of that server's tables.

use sprat_client::Core;
use sprat_net::{AnyDriver, Driver as _, Hub, HubOptions, Locator, Locators, Nanos};
use sprat_rpc::{
    CallFailure, CallId, Config, Endpoint, Handler, Outcome, Repeat, Reply, RequestId, Response,
};
use sprat_wire::op::{
    Answer, Request, Status, TableRecord, TabletRecord, encode_answer, push_table,
};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use zerocopy::IntoBytes;

const STEP: Duration = Duration::from_micros(100);
const PATIENCE: Duration = Duration::from_secs(5);
const TABLES: u32 = 8;

/// Port numbers of the coordinator, of a server that never answers, and of a server that answers.
const COORDINATOR: u16 = 1;
const SILENT: u16 = 2;
const LIVELY: u16 = 3;
const CLIENT: u16 = 100;

fn address(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

fn locator(port: u16) -> String {
    format!("fast+udp:host=10.0.0.1,port={port}")
}

fn record(table: u32, port: u16) -> TableRecord {
    let tablets = vec![TabletRecord { first: 0, server: port.into(), locator: locator(port) }];
    TableRecord { id: table, name: format!("table {table}"), seed: 1, tablets }
}

/// Answers as the coordinator, which assigns all tables to one server, and as that server, which
/// has no objects.
struct Answers {
    has_all: Rc<Cell<u16>>,
    body: Vec<u8>,
    asked: u32,
}

impl Handler for Answers {
    type Body = ();

    fn request(&mut self, _: Nanos, _: RequestId, payload: &[u8]) -> Outcome<()> {
        self.asked += 1;
        let Ok((request, _)) = Request::parse_with_id(payload) else {
            panic!("the client sent no request")
        };
        self.body.clear();
        let status = match request {
            Request::LocateTable { table } => {
                push_table(&mut self.body, &record(table, self.has_all.get()));
                Status::Ok
            }
            _ => Status::NotFound,
        };
        let reply = Reply::new(encode_answer(status, false, 0, 0).as_bytes(), Repeat::Reexecute);
        Outcome::Reply(if self.body.is_empty() { reply } else { reply.with_body(()) })
    }

    fn gather(&self, (): ()) -> &[u8] {
        &self.body
    }

    fn release(&mut self, (): ()) {}

    fn completed(&mut self, _: Nanos, _: CallId, _: Result<Response<'_>, CallFailure>) {}
}

struct World {
    now: Nanos,
    hub: Hub,
    /// The coordinator, and the server that answers.
    nodes: Vec<(AnyDriver, Endpoint<()>, Answers)>,
    core: Core,
    /// The port of the server that has all tables, by the coordinator's answers.
    has_all: Rc<Cell<u16>>,
}

impl World {
    /// Makes a client that expects all tables at the silent server.
    fn new() -> Self {
        let hub = Hub::new(HubOptions::default());
        let port = |port| AnyDriver::from(hub.port(address(port)).expect("free"));
        let has_all = Rc::new(Cell::new(SILENT));
        let node = |number: u16| {
            let answers = Answers { has_all: Rc::clone(&has_all), body: Vec::new(), asked: 0 };
            (port(number), Endpoint::new(&Config::default(), number.into()), answers)
        };
        let nodes = [COORDINATOR, LIVELY].map(node).into();
        let coordinators: Locators = locator(COORDINATOR).parse().expect("a locator");
        let mut core = Core::with_drivers(vec![("fast+udp", port(CLIENT))], &coordinators, 7)
            .expect("a client");
        core.target(&locator(SILENT).parse::<Locator>().expect("a locator"))
            .expect("of that transport");
        (0..TABLES)
            .for_each(|table| core.learn(&record(table, SILENT)).expect("its locator is right"));
        Self { now: Nanos(0), hub, nodes, core, has_all }
    }

    /// Reads from a table, and returns how long that takes.
    fn read(&mut self, table: u32) -> Duration {
        let begun = self.now;
        let request = Request::Read { table, key: b"key" };
        self.core
            .submit(self.now, 1, &request, self.now + PATIENCE)
            .expect("the client knows the table");
        self.core.flush();
        let mut ended = None;
        while ended.is_none() {
            self.step();
            let sink = &mut |_, answer: Result<Answer<'_>, _>| {
                ended = Some(answer.map(|answer| answer.status))
            };
            self.core.poll(self.now, sink).expect("the driver works");
        }
        assert!(matches!(ended, Some(Ok(Status::NotFound))), "{ended:?}");
        self.now.since(begun)
    }

    fn step(&mut self) {
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

    fn coordinator_was_asked(&self) -> u32 {
        self.nodes[0].2.asked
    }
}

#[test]
fn a_silent_server_delays_one_table_and_not_all() {
    let mut world = World::new();
    world.has_all.set(LIVELY);
    let first = world.read(0);
    assert!(
        first >= Duration::from_millis(400),
        "{first:?}: too short: the server may only have been slow"
    );
    for table in 1..TABLES {
        let next = world.read(table);
        assert!(next < Duration::from_millis(10), "{next:?} for table {table}");
    }
    assert_eq!(world.coordinator_was_asked(), TABLES, "once for each table");
}

#[test]
fn an_unreplaced_silent_server_is_retried_with_short_timeouts() {
    let mut world = World::new();
    let has_all = Rc::clone(&world.has_all);
    // At first the coordinator knew no other server; then another took over.
    let request = Request::Read { table: 0, key: b"key" };
    world
        .core
        .submit(world.now, 1, &request, world.now + Duration::from_millis(450))
        .expect("the client knows the table");
    let mut ended = false;
    while !ended {
        world.step();
        world.core.poll(world.now, &mut |_, _| ended = true).expect("the driver works");
    }
    has_all.set(LIVELY);
    let next = world.read(0);
    assert!(next < Duration::from_millis(150), "{next:?}");
}

#[test]
fn a_server_that_answers_again_is_trusted_again() {
    let mut world = World::new();
    world.has_all.set(LIVELY);
    world.read(0);
    let asked = world.coordinator_was_asked();
    world.read(0);
    assert_eq!(world.coordinator_was_asked(), asked, "the table's present server answers");
}
