//! Access by role: every request, by every role, to a coordinator and to a node that keeps objects
//! and replicas.

use crate::common::world;
use sprat_key::{Grant, Identity, Rights, Role, Root, Terms};
use sprat_log::{Config as LogConfig, Durability, Log};
use sprat_net::{Figure, Hub, HubOptions, Nanos};
use sprat_rpc::{
    CallFailure, CallId, Config, Credentials, Endpoint, Handler, Outcome, Repeat, Reply, RequestId,
    Response,
};
use sprat_store::coordinator::{Catalog, Coordinator, MetadataMemory};
use sprat_store::master::{Command, KnownServers, Master, MasterAssignment, inbox};
use sprat_store::member::{ClusterNode, ReplicaStore};
use sprat_store::node::{Node, Service};
use sprat_wire::op::{
    Answer, BackupRequest, BatchItems, ClusterSeen, Condition, Records, RecoveredPart, ReplicaId,
    Request, Status, TableOptions, WatchCursor, encode_answer, push_item,
};
use std::sync::{Arc, OnceLock};
use zerocopy::IntoBytes as _;

use world::{NODE, World, address};

/// The senders: one without an identity, and one of each role. The client may read the table `seen`
/// and write `mine`.
const SENDERS: [Option<Role>; 4] =
    [None, Some(Role::Admin), Some(Role::Server), Some(Role::Client)];

fn identities() -> &'static [Arc<Identity>; 3] {
    static ALL: OnceLock<[Arc<Identity>; 3]> = OnceLock::new();
    ALL.get_or_init(|| {
        let root = Root::generate().unwrap();
        [Role::Admin, Role::Server, Role::Client].map(|role| {
            let grant = |pattern: &str, rights| Grant { pattern: pattern.into(), rights };
            let grants = match role {
                Role::Client => vec![grant("seen", Rights::Read), grant("mine", Rights::Write)],
                _ => Vec::new(),
            };
            Arc::new(
                root.issue(&Terms { role, name: "one".into(), grants, valid: (0, 1 << 40) })
                    .unwrap(),
            )
        })
    })
}

fn credentials(role: Role, seed: u8) -> Credentials {
    let all = identities();
    let identity = all.iter().find(|identity| identity.role() == role).unwrap();
    Credentials::new(Arc::clone(identity), &[seed; 32], 1000)
}

/// A node, and a caller with a role.
struct Caller<S: Service>(World<S>);

impl<S: Service> Caller<S> {
    fn new(service: S, who: Option<Role>) -> Self {
        let hub = Hub::new(HubOptions { mtu: 9000, reliable: true });
        let config = Config::default();
        let mut node = Node::new(hub.port(address(NODE)).unwrap(), service, &config, 1);
        let mut endpoint = Endpoint::new(&config, 2);
        if let Some(role) = who {
            node = node.secured(&config, credentials(Role::Server, 1));
            endpoint = endpoint.secured(&config, credentials(role, 2));
        }
        Self(World::of(hub, node, endpoint))
    }

    /// Returns the reply's status and body, or `None` if no reply comes within a second.
    fn ask(&mut self, request: &Request<'_>) -> Option<(Status, Vec<u8>)> {
        let call = self.0.call(request);
        for _ in 0..20_000 {
            self.0.step();
            if let Some(result) = self.0.ended.results.remove(&call) {
                let bytes = result.expect("an answer");
                let answer = Answer::parse(&bytes).unwrap();
                return Some((answer.status, answer.body.to_vec()));
            }
        }
        None
    }

    fn status(&mut self, request: &Request<'_>) -> Option<Status> {
        self.ask(request).map(|(status, _)| status)
    }
}

/// For each of [`SENDERS`], whether it may send a request.
type May = [bool; 4];

const ALL: May = [true; 4];
const ADMIN: May = [true, true, false, false];
const SERVER: May = [true, false, true, false];
const NO_CLIENT: May = [true, true, true, false];

#[test]
fn a_coordinator_checks_roles() {
    let replica = ReplicaId { master: 1, segment: 1 };
    let replica = BackupRequest::Free { replica };
    let brought = RecoveredPart { order: 1.into(), since: 1.into() };
    let cases = [
        (Request::CreateTable { name: "more", options: TableOptions::default() }, ADMIN),
        (Request::DropTable { name: "mine" }, ADMIN),
        (Request::FindTable { name: "seen" }, ALL),
        (Request::FindTable { name: "mine" }, ALL),
        (Request::FindTable { name: "other" }, NO_CLIENT),
        (Request::FindTable { name: "there is none" }, NO_CLIENT),
        (Request::ListTables, ALL),
        (Request::ListServers, NO_CLIENT),
        (Request::WhoLeads, ALL),
        (Request::ServerStats, NO_CLIENT),
        (
            Request::Enlist {
                server: 0,
                cluster: 0,
                copies: 0,
                locator: "tcp:host=127.0.0.1,port=1",
                rack: "",
            },
            SERVER,
        ),
        (Request::Assignments { server: 1, known: 0, seen: &ClusterSeen::default() }, SERVER),
        (Request::CopyCatalog { server: 1, seen: &ClusterSeen::default() }, NO_CLIENT),
        (Request::Void { server: 1, segment: 1 }, SERVER),
        (Request::Recovered { server: 1, part: &brought, failure: "", no_room: false }, SERVER),
        (Request::Loads { server: 1, capacity: 1, loads: &[] }, SERVER),
        (Request::Backup(replica), SERVER),
    ];
    for (at, who) in SENDERS.into_iter().enumerate() {
        let mut catalog = Catalog::open(MetadataMemory::default(), 7).unwrap();
        let server = catalog.enlist(0, ("tcp:host=127.0.0.1,port=1", ""), 0).unwrap();
        let ids = ["seen", "mine", "other"]
            .map(|name| catalog.create(name, TableOptions::of(1), &[server]).unwrap().id);
        let mut world = Caller::new(Coordinator::new(catalog), who);
        for (request, may) in cases {
            let status = world.status(&request);
            assert_eq!(
                status != Some(Status::Denied),
                may[at],
                "{request:?} by {who:?}: {status:?}"
            );
        }
        // `LocateTable` reports a table that the sender may not see as missing.
        let located = |world: &mut Caller<_>, table| world.status(&Request::LocateTable { table });
        let other = if may_see_all(who) { Status::Ok } else { Status::NoSuchTable };
        assert_eq!(located(&mut world, ids[0]), Some(Status::Ok));
        assert_eq!(located(&mut world, ids[2]), Some(other), "{who:?}");
        assert_eq!(located(&mut world, 77), Some(Status::NoSuchTable));
        let (_, body) = world.ask(&Request::ListTables).unwrap();
        let mut records = Records::new(&body);
        let names: Vec<_> =
            std::iter::from_fn(|| records.table()).map(|table| table.name).collect();
        assert_eq!(
            names.iter().any(|name| name == "other"),
            may_see_all(who),
            "{who:?}: {names:?}"
        );
        assert!(names.iter().any(|name| name == "seen"));
    }
}

fn may_see_all(who: Option<Role>) -> bool {
    who != Some(Role::Client)
}

/// Keeps nothing, and answers `Ok` to everything.
struct Agreeable;

impl Handler for Agreeable {
    type Body = u32;

    fn request(&mut self, _: Nanos, _: RequestId, _: &[u8]) -> Outcome<u32> {
        Outcome::Reply(Reply::new(
            encode_answer(Status::Ok, false, 0, 0).as_bytes(),
            Repeat::Retain,
        ))
    }

    fn gather(&self, _: u32) -> &[u8] {
        &[]
    }

    fn release(&mut self, _: u32) {}

    fn completed(&mut self, _: Nanos, _: CallId, _: Result<Response<'_>, CallFailure>) {}
}

impl Service for Agreeable {
    fn poll(&mut self, _: Nanos) -> bool {
        false
    }

    fn take_ready(&mut self) -> Option<(RequestId, Outcome<u32>)> {
        None
    }

    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
}

impl ReplicaStore for Agreeable {
    fn set_servers(&mut self, _: KnownServers) {}

    fn report_figures(&self) -> Vec<Figure> {
        Vec::new()
    }
}

#[test]
fn a_node_checks_roles() {
    let replica = ReplicaId { master: 1, segment: 1 };
    let (seen, mine, other) = (1, 2, 3);
    for who in SENDERS {
        let log = Log::new(LogConfig::new(8 << 20, Durability::Volatile)).unwrap();
        let (outbox, inbox) = inbox();
        let names = [(seen, "seen"), (mine, "mine"), (other, "other")]
            .map(|(id, name)| (id, name.to_owned()));
        let assigned = MasterAssignment {
            names: names.into(),
            ..MasterAssignment::tables(1, vec![seen, mine, other])
        };
        assert!(outbox.send(Command::Assign(Box::new(assigned))));
        let master: Master<sprat_disk::MemDisk> = Master::new(log, None, inbox);
        let mut world = Caller::new(ClusterNode::new(master, Agreeable), who);
        let client = who == Some(Role::Client);
        let or = |denied, fine| if client { denied } else { fine };
        for (table, reads, writes) in [
            (seen, Status::Ok, or(Status::Denied, Status::Ok)),
            (mine, Status::Ok, Status::Ok),
            // To a client without rights to a table, the table looks like a missing one.
            (other, or(Status::UnknownTable, Status::Ok), or(Status::UnknownTable, Status::Ok)),
            (77, Status::UnknownTable, Status::UnknownTable),
        ] {
            let condition = Condition::None;
            let found = if reads == Status::Ok { Status::NotFound } else { reads };
            let cases = [
                (Request::Read { table, key: b"none" }, found),
                (Request::Scan { table, after: None }, reads),
                (Request::Watch { table, position: 0, from: &WatchCursor::default() }, reads),
                (Request::TableStats { table }, reads),
                (Request::Echo { table, value: b"x" }, reads),
                (Request::Write { table, key: b"k", value: b"v", condition, ttl: None }, writes),
                (Request::IncrementI64 { table, key: b"n", delta: 1 }, writes),
                (Request::IncrementF64 { table, key: b"f", delta: 1.0 }, writes),
                (Request::Remove { table, key: b"k", condition }, writes),
            ];
            for (request, expected) in cases {
                assert_eq!(world.status(&request), Some(expected), "{request:?} by {who:?}");
            }
        }
        let mut items = Vec::new();
        for table in [seen, mine, other] {
            let (header, key, value) = Request::Echo { table, value: b"x" }.parts();
            push_item(&mut items, &[header.as_bytes(), key, value]);
            let write = Request::Write {
                table,
                key: b"b",
                value: b"v",
                condition: Condition::None,
                ttl: None,
            };
            let (header, key, value) = write.parts();
            push_item(&mut items, &[header.as_bytes(), key, value]);
        }
        let (_, body) =
            world.ask(&Request::Batch { items: BatchItems::parse(&items).unwrap() }).unwrap();
        let statuses = BatchItems::parse(&body).unwrap();
        let statuses: Vec<_> = statuses.map(|item| Answer::parse(item).unwrap().status).collect();
        // The server refuses an item that is no operation on an object, also from an administrator.
        let bad = Status::Malformed;
        let denied = or(Status::Denied, Status::Ok);
        let hidden = or(Status::UnknownTable, Status::Ok);
        assert_eq!(statuses, [bad, denied, bad, Status::Ok, bad, hidden], "{who:?}");
        assert_eq!(world.status(&Request::ServerStats), Some(or(Status::Denied, Status::Ok)));
        let keeps = who.is_none() || who == Some(Role::Server);
        for request in [
            BackupRequest::Write {
                replica,
                offset: 0,
                sealed: false,
                replacement: false,
                edition: 0,
                bytes: b"x",
            },
            BackupRequest::Free { replica },
            BackupRequest::Fence { master: 1 },
            BackupRequest::Lease { master: 1 },
            BackupRequest::Read { replica, offset: 0 },
        ] {
            let expected = if keeps { Status::Ok } else { Status::Denied };
            assert_eq!(
                world.status(&Request::Backup(request)),
                Some(expected),
                "{request:?} by {who:?}"
            );
        }
    }
}
