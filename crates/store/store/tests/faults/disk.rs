//! A disk fails under a master. Acknowledged changes stay, and no reply says that an unacknowledged
//! change was made.

use crate::faults::world::{Reply, TABLE, World, master};
use proptest::prelude::*;
use sprat_disk::{Fault, Latency, MemControl, MemDisk};
use sprat_rpc::CallId;
use sprat_store::backup::Durability;
use sprat_store::master::Master;
use sprat_wire::op::{Condition, Items, Request, Status};
use std::collections::BTreeMap;

fn start(control: &MemControl, durability: Durability) -> World<Master<MemDisk>> {
    let (master, _outbox) = master(control, durability).expect("it opens");
    World::new(master, Some(control.clone()))
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request::Write { table: TABLE, key, value, condition: Condition::None, ttl: None }
}

fn read(key: &[u8]) -> Request<'_> {
    Request::Read { table: TABLE, key }
}

fn remove(key: &[u8]) -> Request<'_> {
    Request::Remove { table: TABLE, key, condition: Condition::None }
}

#[track_caller]
fn assert_stopped(reply: &Reply, reason: &str) {
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert_eq!(reply.status, Status::WritesStopped, "{reply:?}");
    assert!(text.contains(reason), "{text:?} does not say {reason:?}");
}

#[test]
fn a_failed_write_stops_writes_and_is_never_read() {
    for (fault, reason) in [(Fault::Io, "Input/output error"), (Fault::NoSpace, "No space left")] {
        let control = MemControl::new(1);
        let mut world = start(&control, Durability::Sync);
        let first = world.ask(&put(b"kept", b"first"));
        assert_eq!(first.status, Status::Ok);
        assert_eq!(world.ask(&put(b"there", b"before")).status, Status::Ok);

        control.fail(0, fault);
        let failing = world.begin(&put(b"kept", b"second"));
        let early = world.begin(&read(b"kept"));
        let reply = world.wait(failing);
        assert_stopped(&reply, reason);
        assert_stopped(&reply, "memory");
        // The first read arrived before the failure, and the second arrives after it. The second
        // value must be in neither reply.
        let early = world.wait(early);
        assert!(early.status == Status::WritesStopped || early.body == b"first", "{early:?}");
        assert_stopped(&world.ask(&read(b"kept")), reason);
        for change in [put(b"other", b"x"), remove(b"there"), put(b"kept", b"third")] {
            assert_stopped(&world.ask(&change), reason);
        }
        let delta = Request::IncrementI64 { table: TABLE, key: b"number", delta: 1 };
        assert_stopped(&world.ask(&delta), reason);
        assert_stopped(&world.ask(&Request::Scan { table: TABLE, after: None }), reason);
        // Objects that are on disk can still be read.
        assert_eq!(world.ask(&read(b"there")).body, b"before");
        assert_eq!(world.ask(&read(b"never")).status, Status::NotFound);
        assert!(world.node.service().stopped().is_some_and(|why| why.contains(reason)));

        drop(world);
        control.crash();
        let mut world = start(&control, Durability::Sync);
        let kept = world.ask(&read(b"kept"));
        assert!(kept.body == b"first" || kept.body == b"second", "{kept:?}");
        assert_eq!(world.ask(&read(b"there")).body, b"before");
        assert_eq!(world.ask(&read(b"other")).status, Status::NotFound);
        assert_eq!(
            world.ask(&put(b"kept", b"fourth")).status,
            Status::Ok,
            "a restart takes writes again"
        );
    }
}

#[test]
fn failed_removals_are_not_acknowledged() {
    let control = MemControl::new(2);
    let mut world = start(&control, Durability::Sync);
    assert_eq!(world.ask(&put(b"a", b"1")).status, Status::Ok);
    control.fail(0, Fault::Io);
    let call = world.begin(&remove(b"a"));
    assert_stopped(&world.wait(call), "Input/output error");
    // The object is gone from memory but may still be on the disk. The master can report neither
    // that the object exists nor that it does not.
    assert_stopped(&world.ask(&read(b"a")), "Input/output error");
    let condition = Request::Write {
        table: TABLE,
        key: b"a",
        value: b"2",
        condition: Condition::Absent,
        ttl: None,
    };
    assert_stopped(&world.ask(&condition), "Input/output error");
}

#[test]
fn hanging_writes_are_not_revealed() {
    let control = MemControl::new(3);
    let mut world = start(&control, Durability::Sync);
    assert_eq!(world.ask(&put(b"a", b"old")).status, Status::Ok);
    assert_eq!(world.ask(&put(b"b", b"other")).status, Status::Ok);
    control.fail(0, Fault::Hang);
    let write = world.begin(&put(b"a", b"new"));
    let reads =
        [world.begin(&read(b"a")), world.begin(&Request::Scan { table: TABLE, after: None })];
    for _ in 0..2000 {
        world.turn();
    }
    assert_eq!(world.take(write), None);
    for call in reads {
        assert_eq!(world.take(call), None, "a read revealed a write that may be lost");
    }
    assert_eq!(world.ask(&read(b"b")).body, b"other", "others go on");
}

#[test]
fn a_reading_disk_that_fails_stops_the_start_and_changes_nothing() {
    let control = MemControl::new(4);
    let mut world = start(&control, Durability::Sync);
    assert_eq!(world.ask(&put(b"a", b"1")).status, Status::Ok);
    drop(world);
    control.crash();
    let before = control.contents();
    control.set_capacity(before.len() as u64);
    // The log has no space to grow: it can be read, but takes no writes.
    let mut world = start(&control, Durability::Sync);
    assert_eq!(world.ask(&read(b"a")).body, b"1");
    drop(world);
    control.set_capacity(u64::MAX);
    control.crash();
    let mut world = start(&control, Durability::Sync);
    assert_eq!(world.ask(&read(b"a")).body, b"1");
    assert_eq!(world.ask(&put(b"a", b"2")).status, Status::Ok);
}

/// A disk fills up under a master. The master refuses writes for that reason, and nothing else
/// fails. Removals make space without a restart, and so does a larger disk.
#[test]
fn a_full_disk_can_be_emptied() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let control = MemControl::new(5);
        control.set_capacity(10 << 20);
        let mut world = start(&control, durability);
        let value = vec![7; 60_000];
        let key = |number: u32| number.to_le_bytes();
        let fill = |world: &mut World<Master<MemDisk>>, from: u32| {
            let mut next = from;
            let refused = loop {
                let reply = world.ask(&put(&key(next), &value));
                if reply.status != Status::Ok {
                    break reply;
                }
                next += 1;
                assert!(next < from + 500, "the disk gets full");
            };
            let text = String::from_utf8_lossy(&refused.body).into_owned();
            assert!(
                refused.status == Status::DiskFull && text.contains("disk is full"),
                "{refused:?} {text}"
            );
            next
        };
        let full = fill(&mut world, 0);
        assert!(full > 10, "{full}");
        let mut there = full;
        for round in 1..10 {
            for number in 0..there {
                assert_eq!(
                    world.ask(&remove(&key(number))).status,
                    Status::Ok,
                    "{number}, round {round}"
                );
            }
            for _ in 0..2000 {
                world.turn(); // idle, it cleans
            }
            there = fill(&mut world, 0);
            assert!(there > full / 2, "round {round}: room for {there} of {full}");
            for number in 0..there {
                assert_eq!(world.ask(&read(&key(number))).body, value);
            }
        }
        assert!(world.node.service().stopped().is_none());
        control.set_capacity(u64::MAX);
        for _ in 0..60_000 {
            world.turn(); // three seconds
        }
        for number in 0..there {
            assert_eq!(world.ask(&remove(&key(number))).status, Status::Ok);
        }
        for number in 1000..1000 + full {
            assert_eq!(
                world.ask(&put(&key(number), &value)).status,
                Status::Ok,
                "there is space again"
            );
        }
    }
}

/// A change that was not yet acknowledged, and the value that it gives its key.
struct PendingChange {
    call: CallId,
    key: u8,
    value: Option<Vec<u8>>,
}

/// Runs one history: changes until the disk fails, then a restart after a crash or a kill. All
/// acknowledged changes must be there. Changes that were never requested must not be there.
fn history(seed: u64, fault: Fault, after: u64, durability: Durability, power: bool) {
    let control = MemControl::new(seed);
    control.set_latency(Latency { base: 20_000, durable: 80_000, jitter: 100_000 });
    let mut world = start(&control, durability);
    control.fail(after, fault);
    let mut random = seed;
    let mut draw = move || {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    // By key, the value that was acknowledged last.
    let mut certain: BTreeMap<u8, Option<Vec<u8>>> = BTreeMap::new();
    let mut under_way: Vec<PendingChange> = Vec::new();
    let mut stopped = 0;
    for _ in 0..6000 {
        let key = u8::try_from(draw() % 40).expect("small");
        if under_way.len() < 12 && under_way.iter().all(|change| change.key != key) {
            let len = usize::try_from(if draw().is_multiple_of(8) {
                draw() % 60_000
            } else {
                draw() % 300
            })
            .expect("small");
            let value = (!draw().is_multiple_of(5))
                .then(|| vec![u8::try_from(draw() % 256).expect("a byte"); len]);
            let call = match &value {
                Some(value) => world.begin(&put(&[key], value)),
                None => world.begin(&remove(&[key])),
            };
            under_way.push(PendingChange { call, key, value });
        }
        world.turn();
        let mut rest = Vec::new();
        for change in under_way.drain(..) {
            match world.take(change.call) {
                None => rest.push(change),
                Some(reply) if reply.status == Status::WritesStopped => {
                    stopped += 1;
                    rest.push(change);
                }
                Some(reply) => {
                    assert!(
                        stopped == 0 || reply.status != Status::Ok,
                        "acknowledged after the disk had failed"
                    );
                    assert!(matches!(reply.status, Status::Ok | Status::NotFound), "{reply:?}");
                    certain.insert(change.key, change.value);
                }
            }
        }
        under_way = rest;
        if stopped > 0 || world.node.service().stopped().is_some() {
            break;
        }
    }
    // Acknowledged values can still be read, except those of keys with an unacknowledged change.
    let hidden: Vec<u8> = under_way.iter().map(|change| change.key).collect();
    let quiet = world.node.service().stopped().is_some();
    for (key, value) in certain.iter().filter(|(key, _)| !hidden.contains(key)) {
        let reply = quiet.then(|| world.ask(&read(&[*key])));
        match (reply, value) {
            (Some(reply), Some(value)) => {
                assert_eq!((reply.status, &reply.body), (Status::Ok, value))
            }
            // The object is not there. After a failed removal no read can be sure of that, so the
            // master may also reply `WritesStopped`.
            (Some(reply), None) => {
                assert!(
                    matches!(reply.status, Status::NotFound | Status::WritesStopped),
                    "{reply:?}"
                )
            }
            (None, _) => {}
        }
    }
    drop(world);
    if power {
        control.crash()
    } else {
        control.kill()
    }
    let mut world = start(&control, durability);
    let reply = world.ask(&Request::Scan { table: TABLE, after: None });
    assert_eq!(reply.status, Status::Ok);
    let mut found: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    for key in 0..40 {
        let reply = world.ask(&read(&[key]));
        if reply.status == Status::Ok {
            found.insert(key, reply.body);
        }
    }
    for key in 0..40 {
        let is = found.get(&key);
        let was = certain.get(&key).cloned().flatten();
        let change = under_way.iter().find(|change| change.key == key);
        let lawful = is == was.as_ref() || change.is_some_and(|change| is == change.value.as_ref());
        assert!(
            lawful,
            "key {key}: {:?} B are there, promised were {:?} B",
            is.map(Vec::len),
            was.map(|was| was.len())
        );
    }
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![Just(Fault::Io), Just(Fault::NoSpace), Just(Fault::Hang)]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        max_shrink_iters: 50,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn acknowledged_writes_survive_disk_faults(
        seed: u64, fault in fault(), after in 0u64..400, power: bool,
    ) {
        history(seed, fault, after, Durability::Sync, power);
    }

    #[test]
    fn with_buffered_durability_a_kill_loses_nothing_either(
        seed: u64, fault in fault(), after in 0u64..400,
    ) {
        history(seed, fault, after, Durability::Buffered, false);
    }
}

#[test]
fn scans_reveal_only_durable_objects() {
    let control = MemControl::new(9);
    control.set_latency(Latency { base: 0, durable: 5_000_000, jitter: 0 });
    let mut world = start(&control, Durability::Sync);
    let write = world.begin(&put(b"k", b"v"));
    let scan = world.begin(&Request::Scan { table: TABLE, after: None });
    let (mut written_at, mut scanned_at) = (None, None);
    for turn in 0..1000 {
        world.turn();
        if written_at.is_none() && world.take(write).is_some() {
            written_at = Some(turn);
        }
        if scanned_at.is_none()
            && let Some(reply) = world.take(scan)
        {
            let count = Items::new(&reply.body, 1).flatten().count();
            assert_eq!(count, 1, "the scan was sent after the write");
            scanned_at = Some(turn);
        }
    }
    assert!(written_at.expect("done") > 50, "the disk is slow here");
    assert!(scanned_at.expect("done") >= written_at.expect("done"));
}
