//! A master answers only while its lease lasts, because after that other servers may serve its
//! tables.

use crate::common::world;
use sprat_disk::MemDisk;
use sprat_log::{Config as LogConfig, Durability, Log};
use sprat_net::{Hub, HubOptions, Nanos};
use sprat_rpc::{CallFailure, CallId, Config, Endpoint};
use sprat_store::master::{Command, Master, MasterAssignment, Outbox, inbox};
use sprat_store::node::Node;
use sprat_wire::op::{Answer, Condition, Request, Status};
use std::time::Duration;

use world::{NODE, World, address};

const LEASE: Duration = Duration::from_millis(400);
const TABLE: u32 = 1;

/// Returns a master with a table, and the outbox that sets the master's lease.
fn world() -> (World<Master<MemDisk>>, Outbox) {
    let hub = Hub::new(HubOptions::default());
    let config = Config::default();
    let log = Log::new(LogConfig::new(8 << 20, Durability::Volatile)).unwrap();
    let (outbox, inbox) = inbox();
    assert!(outbox.send(Command::Assign(Box::new(MasterAssignment::tables(1, vec![TABLE])))));
    let node =
        Node::new(hub.port(address(NODE)).unwrap(), Master::new(log, None, inbox), &config, 1);
    (World::of(hub, node, Endpoint::new(&config, 2)), outbox)
}

/// Returns whether a call is answered before `until`; false also if the master turned it away.
/// Panics if the answer is an error.
fn is_answered_until(world: &mut World<Master<MemDisk>>, until: Nanos, call: CallId) -> bool {
    while world.now < until {
        world.step();
        match world.ended.results.remove(&call) {
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

#[test]
fn lease_expiry_stops_answers() {
    let write = Request::Write {
        table: TABLE,
        key: b"key",
        condition: Condition::None,
        value: b"value",
        ttl: None,
    };
    let read = Request::Read { table: TABLE, key: b"key" };
    for request in [write, read] {
        let (mut world, outbox) = world();
        outbox.set_lease(Nanos(0) + LEASE);
        let first = world.call(&write);
        assert!(
            is_answered_until(&mut world, Nanos(0) + LEASE / 2, first),
            "the master has a lease"
        );
        let in_time = world.call(&request);
        assert!(
            is_answered_until(&mut world, Nanos(0) + LEASE / 2 + LEASE / 4, in_time),
            "it still has"
        );
        world.now = Nanos(0) + LEASE;
        let late = world.call(&request);
        assert!(
            !is_answered_until(&mut world, Nanos(0) + LEASE * 3, late),
            "the master's lease is over"
        );
        outbox.set_lease(world.now + LEASE);
        let again = world.call(&request);
        let until = world.now + LEASE / 2;
        assert!(is_answered_until(&mut world, until, again), "the master has another lease");
    }
}
