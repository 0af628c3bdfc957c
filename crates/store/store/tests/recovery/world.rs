//! Servers that keep replicas for each other, and a caller that sends them requests and plays the
//! coordinator.

use crate::recovery::ended::Ended;
use sprat_disk::{MemControl, MemDisk};
use sprat_log::{Config, Durability, Log};
use sprat_net::{AnyDriver, Delivery, Driver as _, Hub, HubOptions, Mem, Nanos};
use sprat_rpc::{CallId, Config as RpcConfig, Endpoint, SessionId};
use sprat_store::master::{Command, Master, MasterAssignment, Outbox, inbox};
use sprat_store::member::ClusterNode as Both;
use sprat_store::node::{Node, Service as _};
use sprat_store::replicas::{Options, Replicas};
use sprat_store::replication::{BackupServer, Replicator};
use sprat_wire::once::OperationId;
use sprat_wire::op::{Answer, MoveOrder, RecoveryOrder, Request, Status};
use sprat_wire::tablet::{Tablet, position};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use zerocopy::IntoBytes as _;

pub(crate) const TABLE: u32 = 1;

const STEP: Duration = Duration::from_micros(20);

/// Bytes of a backup's frame beyond those of a segment. Some hundred small writes use them up.
const SPARE_BYTES: u32 = 4096;

/// The MTU. Frames of this length are probes of it.
const MTU: usize = 9000;

/// The largest frame, apart from probes, that a slow server sends at once.
pub(crate) const SHORT_FRAME: usize = 1000;

const MANY_TURNS: usize = 1_000_000;

struct Server {
    node: Node<AnyDriver, Both<MemDisk, Replicas<MemDisk>>>,
    outbox: Outbox,
    min_open: u64,
    session: SessionId,
}

pub(crate) struct World {
    now: Nanos,
    hub: Hub,
    servers: BTreeMap<u32, Server>,
    /// Addresses of the servers that cannot be reached.
    cut: Rc<RefCell<BTreeSet<SocketAddr>>>,
    /// A server, and how long its frames of more than [`SHORT_FRAME`] bytes take.
    slow: Rc<Cell<Option<(SocketAddr, Duration)>>>,
    driver: Mem,
    endpoint: Endpoint<()>,
    ended: Ended,
    version: u64,
    next_server: u32,
}

fn address(server: u32) -> SocketAddr {
    ([10, 0, 0, 1], 1000 + u16::try_from(server).unwrap()).into()
}

fn of_log() -> Config {
    Config::new(sprat_log::MIN_MEMORY, Durability::Tracked)
}

/// The position of a key in the table.
pub(crate) fn key_position(key: &[u8]) -> u64 {
    position(of_log().seed, TABLE, key)
}

impl World {
    /// Makes servers 1 to `count`, each with `copies` replicas of its log on others.
    pub(crate) fn new(count: u32, copies: usize, seed: u64) -> Self {
        let hub = Hub::new(HubOptions { mtu: MTU, ..HubOptions::default() });
        let cut: Rc<RefCell<BTreeSet<SocketAddr>>> = Rc::default();
        let slow: Rc<Cell<Option<(SocketAddr, Duration)>>> = Rc::default();
        let (known, delay) = (Rc::clone(&cut), Rc::clone(&slow));
        hub.set_policy(move |flight| {
            let is_cut = [flight.from, flight.to].iter().any(|end| known.borrow().contains(end));
            let is_slow = |(server, _): &(SocketAddr, Duration)| {
                *server == flight.from && (SHORT_FRAME + 1..MTU).contains(&flight.frame.len())
            };
            match delay.get().filter(is_slow) {
                _ if is_cut => Delivery::Drop,
                Some((_, delay)) => Delivery::Deliver(delay),
                None => Delivery::Deliver(Duration::from_micros(2)),
            }
        });
        let (now, config) = (Nanos(0), RpcConfig::default());
        let mut driver = hub.port(address(100)).unwrap();
        let mut endpoint = Endpoint::new(&config, 2);
        let mut start = |id: u32| {
            let disk = MemControl::new(id.into()).open().unwrap();
            let of_log = of_log();
            let segment_bytes = u32::try_from(of_log.segment_bytes).unwrap();
            let frame_bytes = segment_bytes + SPARE_BYTES;
            let options = Options { segment_bytes, frame_bytes, ..Options::new([1; 16], 1, 1000) };
            let (replicas, _) = Replicas::open(disk, &options).unwrap();
            let replicator = Replicator::new(id, copies, of_log.segment_bytes, seed);
            let (outbox, commands) = inbox();
            let master = Master::replicated(Log::new(of_log).unwrap(), replicator, commands);
            let port = AnyDriver::from(hub.port(address(id)).unwrap());
            let node = Node::new(port, Both::new(master, replicas), &config, 1);
            let session = endpoint.connect(now, address(id), driver.tx()).expect("there is room");
            (id, Server { node, outbox, min_open: 0, session })
        };
        let servers = (1..=count).map(&mut start).collect();
        let (ended, next_server) = (Ended::default(), count + 1);
        Self { now, hub, servers, cut, slow, driver, endpoint, ended, version: 0, next_server }
    }

    /// Assigns tablets and recovery orders to `server`, and nothing to the others.
    pub(crate) fn assign(&mut self, server: u32, tablets: &[Tablet], orders: &[RecoveryOrder]) {
        self.assign_all(server, tablets, orders, &[]);
    }

    /// Assigns a tablet to `server`, from which it is to move away.
    pub(crate) fn assign_leaving(&mut self, server: u32, order: MoveOrder) {
        self.assign_all(server, &[order.tablet], &[], &[order]);
    }

    fn assign_all(
        &mut self,
        server: u32,
        tablets: &[Tablet],
        orders: &[RecoveryOrder],
        leaving: &[MoveOrder],
    ) {
        self.version += 1;
        let is_member = |server: &&u32| !self.cut.borrow().contains(&address(**server));
        let member =
            |&server: &u32| BackupServer { server, address: address(server), rack: server };
        let members: Vec<_> = self.servers.keys().filter(is_member).map(member).collect();
        for (&id, node) in &self.servers {
            let (tablets, orders, leaving) = match id == server {
                true => (tablets.to_vec(), orders.to_vec(), leaving.to_vec()),
                false => Default::default(),
            };
            let (version, members, next_server) = (self.version, members.clone(), self.next_server);
            let masters = (1..next_server).collect();
            let assigned = MasterAssignment {
                version,
                tablets,
                members,
                masters,
                next_server,
                orders,
                leaving,
                ..MasterAssignment::default()
            };
            assert!(node.outbox.send(Command::Assign(Box::new(assigned))));
        }
    }

    /// Cuts a server off from the network, or connects it again.
    pub(crate) fn cut(&mut self, server: u32, is_cut: bool) {
        let mut cut = self.cut.borrow_mut();
        let changed =
            if is_cut { cut.insert(address(server)) } else { cut.remove(&address(server)) };
        assert!(changed, "server {server} is already in that state");
    }

    /// Stops a server. Returns the lowest segment whose open replicas count.
    pub(crate) fn stop(&mut self, server: u32) -> u64 {
        self.servers.remove(&server).expect("it lives").min_open
    }

    /// Runs until `find` returns something.
    #[track_caller]
    fn until<T>(&mut self, mut find: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..MANY_TURNS {
            self.now = self.now + STEP;
            let now = self.now;
            self.hub.deliver_until(now);
            for server in self.servers.values_mut() {
                server.node.turn(now).unwrap();
                server.node.service_mut().work_idle();
                if server.outbox.min_open() > server.min_open {
                    server.min_open = server.outbox.min_open();
                    assert!(server.outbox.send(Command::Voided(server.min_open)));
                }
            }
            let Self { driver, endpoint, ended, .. } = self;
            driver
                .receive(&mut |tx, from, frame| endpoint.receive(now, from, frame, ended, tx))
                .expect("memory");
            endpoint.poll(now, ended, driver.tx());
            endpoint.flush(driver.tx());
            if let Some(found) = find(self) {
                return found;
            }
        }
        panic!("it never comes");
    }

    /// Delays what a server sends, except short frames and probes.
    pub(crate) fn slow_down(&self, server: u32, delay: Duration) {
        self.slow.set(Some((address(server), delay)));
    }

    /// Sends a request to a server. Returns the number and body of the reply, or the reply's status
    /// if that is not `Ok`.
    #[track_caller]
    pub(crate) fn ask(
        &mut self,
        server: u32,
        request: &Request<'_>,
        id: Option<OperationId>,
    ) -> Result<(u64, Vec<u8>), Status> {
        let call = self.begin(server, request, id);
        self.end(call)
    }

    /// Sends a request to a server.
    #[track_caller]
    pub(crate) fn begin(
        &mut self,
        server: u32,
        request: &Request<'_>,
        id: Option<OperationId>,
    ) -> CallId {
        let (header, key, value) = request.parts();
        let header = if id.is_some() { header.with_id() } else { header };
        let id = id.map(|id| id.bytes().to_vec()).unwrap_or_default();
        let ttl = request.ttl_bytes().map(|ttl| ttl.to_vec()).unwrap_or_default();
        let parts = [header.as_bytes(), &id, &ttl, key, value];
        let deadline = self.now + Duration::from_secs(3600);
        let session = self.servers[&server].session;
        let call = self.endpoint.call(self.now, session, &parts, deadline, self.driver.tx());
        call.expect("few at a time")
    }

    /// Waits for the reply to a request. Returns its number and body, or its status if that is not
    /// `Ok`.
    #[track_caller]
    pub(crate) fn end(&mut self, call: CallId) -> Result<(u64, Vec<u8>), Status> {
        let bytes = self.until(|world| world.ended.results.remove(&call)).expect("both live");
        let answer = Answer::parse(&bytes).expect("an answer");
        match answer.status {
            Status::Ok => Ok((answer.number, answer.body.to_vec())),
            status => Err(status),
        }
    }

    /// Waits for the end of a server's next attempt to recover tablets. Returns the segment of
    /// the server's log at which the tablets begin: only entries in this segment and later ones
    /// count. If the attempt failed, returns why.
    #[track_caller]
    pub(crate) fn recovered(&mut self, by: u32) -> Result<u64, String> {
        let recovered = self.until(|world| world.servers[&by].outbox.take_recovery_result());
        if recovered.failure.is_empty() { Ok(recovered.since) } else { Err(recovered.failure) }
    }
}
