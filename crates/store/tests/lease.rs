//! A master answers only while its lease lasts: after that others may serve its tables.

use sprat_log::{Config as LogConfig, Durability, Log};
use sprat_net::{Driver as _, Hub, HubOptions, Mem, Nanos};
use sprat_rpc::{CallFailure, CallId, Config, Endpoint, SessionId};
use sprat_store::master::{Assigned, Command, Master, Outbox, inbox};
use sprat_store::node::Node;
use sprat_wire::op::{Answer, Condition, Request, Status};
use std::net::SocketAddr;
use std::time::Duration;
use zerocopy::IntoBytes as _;

#[path = "common/ended.rs"]
mod ended;

use ended::Ended;

const STEP: Duration = Duration::from_micros(50);
const LEASE: Duration = Duration::from_millis(400);
const TABLE: u32 = 1;

/// A master with a table, and somebody who asks it.
struct World {
    hub: Hub,
    node: Node<Mem, Master<sprat_disk::MemDisk>>,
    outbox: Outbox,
    driver: Mem,
    endpoint: Endpoint<()>,
    ended: Ended,
    session: SessionId,
    now: Nanos,
}

impl World {
    fn new() -> Self {
        let hub = Hub::new(HubOptions::default());
        let address = |last: u8| SocketAddr::from(([10, 0, 0, last], 1));
        let config = Config::default();
        let log = Log::new(LogConfig::new(8 << 20, Durability::Volatile)).unwrap();
        let (outbox, inbox) = inbox();
        assert!(outbox.send(Command::Assign(Box::new(Assigned::tables(1, vec![TABLE])))));
        let node = Node::new(hub.port(address(1)).unwrap(), Master::new(log, None, inbox), &config, 1);
        let mut endpoint = Endpoint::new(&config, 2);
        let mut driver = hub.port(address(2)).unwrap();
        let session = endpoint.connect(Nanos(0), address(1), driver.tx()).unwrap();
        Self { hub, node, outbox, driver, endpoint, ended: Ended::default(), session, now: Nanos(0) }
    }

    fn ask(&mut self, request: &Request<'_>) -> CallId {
        let (header, key, value) = request.parts();
        let deadline = self.now + Duration::from_secs(100);
        let parts = [header.as_bytes(), key, value];
        self.endpoint.call(self.now, self.session, &parts, deadline, self.driver.tx()).unwrap()
    }

    /// Whether a call is answered until then, rather than turned away; the answer is one that says that all is well.
    fn is_answered_until(&mut self, until: Nanos, call: CallId) -> bool {
        while self.now < until {
            self.now = self.now + STEP;
            let Self { hub, node, driver, endpoint, ended, now, .. } = self;
            hub.deliver_until(*now);
            node.turn(*now).unwrap();
            hub.deliver_until(*now);
            driver.receive(&mut |tx, from, frame| endpoint.receive(*now, from, frame, ended, tx)).unwrap();
            endpoint.poll(*now, ended, driver.tx());
            endpoint.flush(driver.tx());
            match ended.results.remove(&call) {
                Some(Ok(bytes)) => {
                    assert_eq!(Answer::parse(&bytes).unwrap().status, Status::Ok);
                    return true;
                }
                Some(Err(CallFailure::Overloaded { .. })) => return false,
                Some(Err(why)) => panic!("{why:?}"),
                None => {}
            }
        }
        false
    }
}

#[test]
fn whose_lease_is_over_answers_nothing_until_it_has_another() {
    let write = Request::Write { table: TABLE, key: b"key", condition: Condition::None, value: b"value" };
    let read = Request::Read { table: TABLE, key: b"key" };
    for request in [write, read] {
        let mut world = World::new();
        world.outbox.set_lease(Nanos(0) + LEASE);
        let first = world.ask(&write);
        assert!(world.is_answered_until(Nanos(0) + LEASE / 2, first), "it has a lease");
        let in_time = world.ask(&request);
        assert!(world.is_answered_until(Nanos(0) + LEASE / 2 + LEASE / 4, in_time), "it still has");
        world.now = Nanos(0) + LEASE;
        let late = world.ask(&request);
        assert!(!world.is_answered_until(Nanos(0) + LEASE * 3, late), "its lease is over");
        world.outbox.set_lease(world.now + LEASE);
        let again = world.ask(&request);
        assert!(world.is_answered_until(world.now + LEASE / 2, again), "it has another");
    }
}
