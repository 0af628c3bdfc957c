//! A log in which everything was removed is brought back twice: what it leaves are versions, and these never go back.
#![allow(unreachable_pub, missing_docs, reason = "a test is no library")]

use sprat_client::Core;
use sprat_disk::{MemControl, MemDisk};
use sprat_log::{Config, Durability, Log};
use sprat_net::{AnyDriver, Hub, HubOptions, Locator, Locators, Nanos};
use sprat_store::master::{Assigned, Command, Master, Outbox, inbox};
use sprat_store::member::Member as Both;
use sprat_store::node::{Node, Service as _};
use sprat_store::replicas::{Options, Replicas};
use sprat_store::replication::{Member, Replicator};
use sprat_wire::op::{Condition, RecoveryOrder, Request, Status};
use sprat_wire::tablet::Tablet;
use std::net::SocketAddr;
use std::time::Duration;

const TABLE: u32 = 1;
const TRANSPORT: &str = "fast+udp";

struct Server {
    node: Node<AnyDriver, Both<MemDisk, Replicas<MemDisk>>>,
    outbox: Outbox,
    min_open: u64,
}

struct World {
    now: Nanos,
    hub: Hub,
    /// By their ids, less one.
    servers: Vec<Option<Server>>,
    client: Core,
    version: u64,
}

fn address(server: u32) -> SocketAddr {
    ([10, 0, 0, 1], 1000 + u16::try_from(server).unwrap()).into()
}

impl World {
    fn new(count: u32, seed: u64) -> Self {
        let hub = Hub::new(HubOptions::default());
        let start = |id: u32| {
            let disk = MemControl::new(id.into()).open().unwrap();
            let (replicas, _) = Replicas::open(disk, &Options::new([1; 16], 1, 1000)).unwrap();
            let config = Config::new(sprat_log::MIN_MEMORY, Durability::Tracked);
            let replicator = Replicator::new(id, 1, config.segment_bytes, seed);
            let (outbox, commands) = inbox();
            let master = Master::replicated(Log::new(config).unwrap(), replicator, commands);
            let driver = AnyDriver::from(hub.port(address(id)).unwrap());
            let node = Node::new(driver, Both::new(master, replicas), &sprat_rpc::Config::default(), 1);
            Some(Server { node, outbox, min_open: 0 })
        };
        let servers = (1..=count).map(start).collect();
        let driver = AnyDriver::from(hub.port(address(100)).unwrap());
        let nobody: Locators = format!("{TRANSPORT}:host=10.0.0.1,port=99").parse().unwrap();
        let client = Core::over(vec![(TRANSPORT, driver)], &nobody, 1).unwrap();
        Self { now: Nanos(0), hub, servers, client, version: 0 }
    }

    /// `server` serves the table, or is to bring it back.
    fn assign(&mut self, server: u32, orders: &[RecoveryOrder]) {
        self.version += 1;
        let lives = |id: &u32| self.servers[*id as usize - 1].is_some();
        let ids = 1..=u32::try_from(self.servers.len()).unwrap();
        let members: Vec<_> =
            ids.clone().filter(lives).map(|server| Member { server, address: address(server), rack: server }).collect();
        for id in ids.clone().filter(lives).collect::<Vec<_>>() {
            let tablets = if id == server && orders.is_empty() { vec![Tablet::whole(TABLE)] } else { Vec::new() };
            let orders = if id == server { orders.to_vec() } else { Vec::new() };
            let masters = ids.clone().collect();
            let next_server = ids.end() + 1;
            let (version, members) = (self.version, members.clone());
            let assigned = Assigned { version, tablets, members, masters, next_server, orders, ..Assigned::default() };
            let outbox = &self.servers[id as usize - 1].as_ref().unwrap().outbox;
            assert!(outbox.send(Command::Assign(Box::new(assigned))));
        }
    }

    /// Goes on until something is there.
    fn until<T>(&mut self, mut what: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..1_000_000 {
            self.now = self.now + Duration::from_micros(20);
            self.hub.deliver_until(self.now);
            for server in self.servers.iter_mut().flatten() {
                server.node.turn(self.now).unwrap();
                server.node.service_mut().work_idle();
                if server.outbox.min_open() > server.min_open {
                    server.min_open = server.outbox.min_open();
                    assert!(server.outbox.send(Command::Voided(server.min_open)));
                }
            }
            if let Some(what) = what(self) {
                return what;
            }
        }
        panic!("it never comes");
    }

    /// Asks a server; the version that it answers.
    fn ask(&mut self, server: u32, request: &Request<'_>) -> u64 {
        let at = address(server);
        let locator: Locator = format!("{TRANSPORT}:host={},port={}", at.ip(), at.port()).parse().unwrap();
        let target = self.client.target(&locator).unwrap();
        self.client.submit_to(self.now, 0, target, request, self.now + Duration::from_secs(5)).unwrap();
        self.client.flush();
        self.until(|world| {
            let mut told = None;
            let polled = world.client.poll(world.now, &mut |_, answer| {
                let answer = answer.unwrap();
                assert_eq!(answer.status, Status::Ok);
                told = Some(answer.number);
            });
            polled.unwrap();
            told
        })
    }

    /// A server is gone, and another brings back what it had from segment `since` on; returns from where on that lies there.
    fn bring_back(&mut self, gone: u32, since: u64, by: u32) -> u64 {
        let min_open = self.servers[gone as usize - 1].take().expect("it lives").min_open;
        let tablets = vec![(Tablet::whole(TABLE), since)];
        let order = RecoveryOrder { id: self.version, master: gone, min_open, askers: 1, tablets };
        self.assign(by, &[order]);
        let since = self.until(|world| {
            let recovered = world.servers[by as usize - 1].as_ref().unwrap().outbox.take_recovered()?;
            (recovered.failure.is_empty()).then_some(recovered.since)
        });
        self.assign(by, &[]);
        since
    }
}

#[test]
fn versions_of_what_was_removed_survive_two_servers() {
    // Of some seeds, who brings it back keeps its log on a server that stays, and opens no other head for another reason.
    for seed in 1..=12 {
        let mut world = World::new(4, seed * 7919);
        world.assign(1, &[]);
        let condition = Condition::None;
        let write = Request::Write { table: TABLE, key: b"key", value: b"value", condition };
        for _ in 0..10 {
            world.ask(1, &write);
        }
        let removed = world.ask(1, &Request::Remove { table: TABLE, key: b"key", condition });
        assert!(removed >= 10, "{removed}");
        let since = world.bring_back(1, 0, 2);
        world.bring_back(2, since, 3);
        let anew = world.ask(3, &write);
        assert!(anew > removed, "seed {seed}: version {anew} comes after {removed}");
    }
}
