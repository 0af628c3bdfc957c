//! Bytes that are not requests, sent to masters and coordinators.

use crate::faults::world::{TABLE, World, master};
use proptest::prelude::*;
use sprat_disk::MemControl;
use sprat_store::backup::Durability;
use sprat_store::coordinator::{Catalog, Coordinator, MetadataMemory};
use sprat_store::node::Service;
use sprat_wire::op::{ClusterSeen, Condition, Request, Status, TableOptions};
use zerocopy::IntoBytes as _;

fn bytes_of(request: &Request<'_>) -> Vec<u8> {
    let (header, key, value) = request.parts();
    [header.as_bytes(), key, value].concat()
}

fn some_request() -> impl Strategy<Value = Vec<u8>> {
    let key = prop::collection::vec(any::<u8>(), 0..20);
    let value = prop::collection::vec(any::<u8>(), 0..40);
    (key, value, 0..3u32, any::<u64>(), 0..11usize).prop_map(|(key, value, table, number, kind)| {
        let condition = if number.is_multiple_of(2) {
            Condition::Exists
        } else {
            Condition::Version(number >> 20)
        };
        bytes_of(&match kind {
            0 => Request::Read { table, key: &key },
            1 => Request::Write { table, key: &key, value: &value, condition, ttl: None },
            2 => Request::Remove { table, key: &key, condition },
            3 => Request::IncrementI64 { table, key: &key, delta: number.cast_signed() },
            4 => Request::IncrementF64 { table, key: &key, delta: f64::from_bits(number) },
            5 => Request::Scan { table, after: Some(number) },
            6 => Request::TableStats { table },
            7 => Request::ServerStats,
            9 => Request::Echo { table, value: &value },
            8 => Request::CreateTable { name: "some", options: TableOptions::default() },
            _ => Request::DropTable { name: "some" },
        })
    })
}

/// Generates valid requests, requests with a few bytes changed or cut off, and noise.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let changed = (
        some_request(),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        any::<prop::sample::Index>(),
    )
        .prop_map(|(mut bytes, changes, cut)| {
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            bytes
        });
    prop_oneof![
        1 => some_request(),
        3 => changed,
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ]
}

/// Sends payloads, and checks that each is answered: with `Malformed` exactly if the payload does
/// not parse.
fn feed<S: Service>(world: &mut World<S>, payloads: &[Vec<u8>]) {
    for payload in payloads {
        let call = world.call(payload);
        let reply = world.wait(call);
        let parses = Request::parse(payload).is_ok();
        assert_eq!(reply.status == Status::Malformed, !parses, "{payload:?}: {reply:?}");
        if !parses {
            assert!(!reply.body.is_empty(), "it says why");
        }
    }
}

fn coordinator() -> World<Coordinator<MetadataMemory>> {
    let catalog = Catalog::open(MetadataMemory::default(), 5).expect("nothing to load");
    World::new(Coordinator::new(catalog), None)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn masters_answer_malformed_requests(payloads in prop::collection::vec(payload(), 1..60)) {
        let control = MemControl::new(1);
        let (master, _outbox) = master(&control, Durability::Sync).expect("it opens");
        let mut world = World::new(master, Some(control));
        feed(&mut world, &payloads);
        let (key, value) = (b"after all", b"well");
        let condition = Condition::None;
        let put = Request::Write { table: TABLE, key, value, condition, ttl: None };
        prop_assert_eq!(world.ask(&put).status, Status::Ok);
        prop_assert_eq!(world.ask(&Request::Read { table: TABLE, key }).body, value);
    }

    #[test]
    fn coordinators_answer_malformed_requests(
        payloads in prop::collection::vec(payload(), 1..60),
    ) {
        let mut world = coordinator();
        feed(&mut world, &payloads);
        prop_assert_eq!(world.ask(&Request::ListTables).status, Status::Ok);
    }
}

#[test]
fn each_role_says_so_when_it_is_taken_for_the_other() {
    let control = MemControl::new(1);
    let (master, _outbox) = master(&control, Durability::Sync).expect("it opens");
    let mut world = World::new(master, Some(control));
    for request in [
        Request::ListTables,
        Request::CreateTable { name: "t", options: TableOptions::default() },
        Request::Assignments { server: 1, known: 0, seen: &ClusterSeen::default() },
    ] {
        let reply = world.ask(&request);
        assert_eq!(reply.status, Status::WrongRole);
        assert!(String::from_utf8_lossy(&reply.body).contains("coordinator"));
    }
    assert_eq!(world.ask(&Request::Read { table: 99, key: b"k" }).status, Status::UnknownTable);

    let mut world = coordinator();
    let reply = world.ask(&Request::Read { table: 1, key: b"k" });
    assert_eq!(reply.status, Status::WrongRole);
    assert_eq!(
        world.ask(&Request::CreateTable { name: "t", options: TableOptions::default() }).status,
        Status::NoServer
    );
    assert_eq!(world.ask(&Request::FindTable { name: "t" }).status, Status::NoSuchTable);
    assert_eq!(
        world
            .ask(&Request::Assignments { server: 9, known: 0, seen: &ClusterSeen::default() })
            .status,
        Status::NotFound
    );
    let foreign = world.ask(&Request::Enlist {
        server: 1,
        cluster: 4711,
        copies: 0,
        locator: "tcp:host=127.0.0.1,port=1",
        rack: "",
    });
    assert_eq!(foreign.status, Status::WrongCluster);
}

#[test]
fn the_longest_objects_work_and_longer_ones_are_refused() {
    let control = MemControl::new(1);
    let (master, _outbox) = master(&control, Durability::Sync).expect("it opens");
    let mut world = World::new(master, Some(control));
    // With 8 MB of memory a segment has half a MB. A longer object never fits, and the reply must
    // say so.
    let (key, value) = (vec![b'k'; 65_535], vec![b'v'; 1 << 20]);
    let put = Request::Write {
        table: TABLE,
        key: &key,
        value: &value[..300_000],
        condition: Condition::None,
        ttl: None,
    };
    assert_eq!(world.ask(&put).status, Status::Ok);
    assert_eq!(world.ask(&Request::Read { table: TABLE, key: &key }).body.len(), 300_000);
    let put = Request::Write {
        table: TABLE,
        key: &key,
        value: &value,
        condition: Condition::None,
        ttl: None,
    };
    let reply = world.ask(&put);
    assert_ne!(reply.status, Status::Ok, "{:?}", reply.status);
    assert_eq!(
        world.ask(&Request::Read { table: TABLE, key: &key }).body.len(),
        300_000,
        "unharmed"
    );
    let mut over = bytes_of(&put);
    over.push(b'v');
    let call = world.call(&over);
    assert_eq!(world.wait(call).status, Status::Malformed);
}
