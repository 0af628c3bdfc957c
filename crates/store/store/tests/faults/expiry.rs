//! Objects that expire, as clients see them: with crashes, restarts and slow clocks.

use crate::faults::world::{TABLE, World, master};
use sprat_disk::{MemControl, MemDisk};
use sprat_log::EXPIRED_AT_ONCE;
use sprat_store::backup::Durability;
use sprat_store::master::Master;
use sprat_wire::expiry::Ttl;
use sprat_wire::op::{Condition, Items, Request, Status};
use std::time::Duration;

fn start(control: &MemControl) -> World<Master<MemDisk>> {
    let (master, _outbox) = master(control, Durability::Sync).expect("it opens");
    World::new(master, Some(control.clone()))
}

fn put<'a>(key: &'a [u8], value: &'a [u8], millis: u64) -> Request<'a> {
    let ttl = Ttl::of_millis(millis).ok();
    Request::Write { table: TABLE, key, value, condition: Condition::None, ttl }
}

fn read(key: &[u8]) -> Request<'_> {
    Request::Read { table: TABLE, key }
}

fn set_ttl(key: &[u8], millis: u64) -> Request<'_> {
    let ttl = Ttl::of_millis(millis).ok();
    Request::SetTtl { table: TABLE, key, condition: Condition::None, ttl }
}

#[test]
fn an_object_is_there_until_it_expires() {
    let mut world = start(&MemControl::new(1));
    let version = world.ask(&put(b"key", b"value", 60_000)).number;
    let reply = world.ask(&read(b"key"));
    assert_eq!(reply.body, b"value");
    let left = reply.ttl.expect("it expires").millis();
    assert!((59_000..=60_000).contains(&left), "{left}");
    world.pass(59_000);
    assert_eq!(world.ask(&read(b"key")).status, Status::Ok);
    world.pass(1000);
    assert_eq!(world.ask(&read(b"key")).status, Status::NotFound);
    let absent = Request::Write {
        table: TABLE,
        key: b"key",
        value: b"again",
        condition: Condition::Absent,
        ttl: None,
    };
    assert!(world.ask(&absent).number > version, "the version grows");
    assert_eq!(world.ask(&read(b"key")).ttl, None);
}

#[test]
fn a_time_to_live_is_set_changed_and_removed() {
    let mut world = start(&MemControl::new(1));
    let first = world.ask(&put(b"key", b"value", 0)).number;
    let second = world.ask(&set_ttl(b"key", 1000));
    assert_eq!((second.status, second.number), (Status::Ok, first + 1));
    world.ask(&set_ttl(b"key", 5000));
    world.pass(2000);
    assert_eq!(world.ask(&read(b"key")).body, b"value");
    world.ask(&set_ttl(b"key", 0));
    world.pass(10_000);
    assert_eq!(
        (world.ask(&read(b"key")).body, world.ask(&read(b"key")).ttl),
        (b"value".to_vec(), None)
    );
    assert_eq!(world.ask(&set_ttl(b"none", 1)).status, Status::NotFound);
    let version = Condition::Version(first);
    let stale = Request::SetTtl { table: TABLE, key: b"key", condition: version, ttl: None };
    assert_eq!(world.ask(&stale).status, Status::Conflict);
    // An increment leaves the time of expiry as it is; a write without one removes it.
    let add = Request::IncrementI64 { table: TABLE, key: b"count", delta: 5 };
    world.ask(&add);
    world.ask(&set_ttl(b"count", 1000));
    world.pass(900);
    assert_eq!(world.ask(&add).body, 10i64.to_le_bytes());
    world.pass(200);
    assert_eq!(world.ask(&add).body, 5i64.to_le_bytes(), "it began at zero again");
}

#[test]
fn conditions_changes_and_scans_find_no_expired_object() {
    let mut world = start(&MemControl::new(1));
    for key in [b"a", b"b", b"c", b"d", b"e"] {
        world.ask(&put(key, b"value", 1000));
    }
    world.ask(&put(b"f", b"stays", 0));
    let requests = [
        Request::Remove { table: TABLE, key: b"a", condition: Condition::None },
        Request::Remove { table: TABLE, key: b"b", condition: Condition::Exists },
        Request::Scan { table: TABLE, after: None },
    ];
    let calls: Vec<_> = requests.iter().map(|request| world.begin(request)).collect();
    // The requests leave the client now, and arrive in the iteration in which the objects expire,
    // before it removes any.
    world.turn();
    world.now = world.now + Duration::from_secs(1);
    let replies: Vec<_> = calls.into_iter().map(|call| world.wait(call)).collect();
    assert_eq!(replies[0].status, Status::NotFound);
    assert_eq!(replies[1].status, Status::Conflict);
    let keys: Vec<_> = Items::new(&replies[2].body, 1).map(|item| item.unwrap().key).collect();
    assert_eq!(keys, [b"f"]);
    world.pass(1);
    assert_eq!(world.ask(&Request::TableStats { table: TABLE }).number, 1);
}

#[test]
fn what_was_found_missing_stays_missing_when_the_next_clock_is_slow() {
    for scans in [false, true] {
        let control = MemControl::new(1);
        let mut world = start(&control);
        for key in 0..50u8 {
            world.ask(&put(&[key], b"value", 60_000));
        }
        world.ask(&put(b"stays", b"value", 100_000));
        world.pass(60_000);
        if scans {
            world.ask(&Request::Scan { table: TABLE, after: None });
        } else {
            assert_eq!(world.ask(&read(&[7])).status, Status::NotFound);
        }
        drop(world);
        control.crash();
        // The clock of this start begins at zero again.
        let mut world = start(&control);
        assert_eq!(world.ask(&read(&[7])).status, Status::NotFound);
        let left = world.ask(&read(b"stays")).ttl.expect("it expires").millis();
        assert!((38_000..=40_000).contains(&left), "the time goes on from the record: {left}");
    }
}

#[test]
fn memory_comes_back_without_requests() {
    let mut world = start(&MemControl::new(1));
    let value = [1; 1000];
    for key in 0..4000u16 {
        let millis = 1000 + u64::from(key) % 1000;
        assert_eq!(world.ask(&put(&key.to_le_bytes(), &value, millis)).status, Status::Ok);
    }
    world.pass(2000);
    for _ in 0..4000 / EXPIRED_AT_ONCE + 2 {
        world.turn();
    }
    let stats = world.node.service().log().stats();
    assert_eq!((stats.objects, stats.expiring), (0, 0));
    for key in 0..4000u16 {
        assert_eq!(world.ask(&put(&key.to_le_bytes(), &value, 0)).status, Status::Ok);
    }
}
