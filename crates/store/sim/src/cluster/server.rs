//! A server of a cluster, which crashes and restarts: its coordinator session, its node, and its
//! own clock.

use super::clock::Clock;
use super::settings::Settings;
use crate::client::TRANSPORT;
use crate::history::clock;
use crate::server::HASH_SEED;
use sprat_client::Core;
use sprat_disk::{MemControl, MemDisk};
use sprat_log::{Config, Durability, Log};
use sprat_net::{AnyDriver, Hub, Locators, Nanos};
use sprat_store::agent::{CoordinatorSession, Enlisted, SessionEnd};
use sprat_store::master::{Master, Outbox, inbox};
use sprat_store::member::ClusterNode;
use sprat_store::node::{Node, Service as _};
use sprat_store::replicas::{Options, Replicas};
use sprat_store::replication::Replicator;
use sprat_wire::op::ReplicaId;
use std::net::SocketAddr;
use std::time::Duration;

/// How long an iteration takes when there was something to do.
const TURN: Duration = Duration::from_micros(2);
/// How long a piece of idle work takes.
const IDLE_WORK: Duration = Duration::from_micros(20);

/// How long after a failure to open its disk a server is started again.
const RESTART: Duration = Duration::from_millis(50);

type ServerNode = Node<AnyDriver, ClusterNode<MemDisk, Replicas<MemDisk>>>;

/// A running process.
struct Process {
    core: Core,
    session: CoordinatorSession,
    outbox: Outbox,
    is_waiting: bool,
    /// The node, once the session has enlisted.
    node: Option<Box<ServerNode>>,
    wake: Nanos,
}

/// A server that crashes and restarts.
pub(super) struct Server {
    /// The address of the server's node; `control` is the address of its session.
    address: SocketAddr,
    control: SocketAddr,
    hub: Hub,
    coordinators: Locators,
    /// The server's disk.
    disk: MemControl,
    options: Options,
    /// The name of the server's rack; empty if servers are in no racks.
    rack: String,
    enlisted: Enlisted,
    process: Option<Process>,
    /// The time at which the server starts again, by the world's clock; `paused_until` is the time
    /// until which it is paused.
    pub(super) up_at: Nanos,
    pub(super) paused_until: Nanos,
    /// The time until which the server's disk is faulty, if it is.
    pub(super) disk_faulty_until: Option<Nanos>,
    clock: Clock,
    seed: u64,
}

impl Server {
    /// Creates a server that has never run.
    pub(super) fn new(
        settings: &Settings,
        hub: &Hub,
        addresses: (SocketAddr, SocketAddr),
        coordinators: &Locators,
        (clock, seed): (Clock, u64),
    ) -> Self {
        let (address, control) = addresses;
        let mut options = Options::new([1; 16], 1, 1000);
        options.segment_bytes = u32::try_from(settings.segment_bytes).expect("small");
        options.frame_bytes =
            (options.segment_bytes + options.segment_bytes / 8).next_multiple_of(4096);
        options.threads = 1;
        let disk = MemControl::new(seed);
        disk.set_latency(settings.work.latency);
        Self {
            address,
            control,
            hub: hub.clone(),
            coordinators: coordinators.clone(),
            disk,
            options,
            rack: String::new(),
            enlisted: Enlisted::default(),
            process: None,
            up_at: Nanos(0),
            paused_until: Nanos(0),
            disk_faulty_until: None,
            clock,
            seed,
        }
    }

    /// Puts the server into a rack.
    pub(super) fn in_rack(self, rack: String) -> Self {
        Self { rack, ..self }
    }

    /// Returns whether the server is in the same named rack as `other`.
    pub(super) fn shares_rack(&self, other: &Self) -> bool {
        !self.rack.is_empty() && self.rack == other.rack
    }

    /// Returns whether the server's process runs.
    pub(super) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Returns whether the server has applied this version of the coordinator's assignments, or a
    /// newer one.
    pub(super) fn serves(&self, version: u64) -> bool {
        self.process.as_ref().is_some_and(|process| process.outbox.applied() >= version)
    }

    /// Returns the id with which the server last enlisted; zero if it never has.
    pub(super) fn id(&self) -> u32 {
        self.enlisted.server
    }

    /// Returns the server's node, if it has one.
    pub(super) fn node(&self) -> Option<&ServerNode> {
        self.process.as_ref()?.node.as_deref()
    }

    /// Returns the replicator of its log.
    pub(super) fn replicator(&self) -> Option<&Replicator> {
        self.node()?.service().master().replicator()
    }

    /// Returns whether the server keeps a whole replica of a segment.
    pub(super) fn keeps(&self, master: u32, segment: u64) -> bool {
        let records = self.node().map(|node| node.service().replicas().records(master));
        records.is_some_and(|records| {
            records.iter().any(|record| record.segment == segment && record.sealed)
        })
    }

    /// Returns the server's disk.
    pub(super) fn disk(&self) -> &MemControl {
        &self.disk
    }

    /// Ends the fault of the server's disk, and restarts the process, which may have stopped or may
    /// wait for ever.
    pub(super) fn end_disk_fault(&mut self, now: Nanos) {
        self.disk_faulty_until = None;
        self.disk.clear_faults();
        self.disk.set_capacity(u64::MAX);
        if self.process.is_some() {
            self.crash(now, true);
        }
    }

    /// Flips a bit of a complete replica for which `may` returns true. Returns false when there is
    /// no such replica.
    pub(super) fn flip(&self, chance: u64, may: impl Fn(ReplicaId) -> bool) -> bool {
        let Some(node) = self.node() else { return false };
        let whole: Vec<_> =
            node.service().replicas().whole().filter(|&(replica, _)| may(replica)).collect();
        let count = whole.len().max(1) as u64;
        let Some((_, place)) = whole.get(usize::try_from(chance % count).expect("few")) else {
            return false;
        };
        let at = place.start + chance / count % (place.end - place.start);
        self.disk.flip(at, u32::try_from(chance >> 61).expect("three bits"));
        true
    }

    /// Describes which replicas of a master the server keeps.
    pub(super) fn describe_kept(&self, master: u32) -> String {
        self.node()
            .map_or("nothing now".to_owned(), |node| node.service().replicas().describe(master))
    }

    /// Describes the state of the server.
    pub(super) fn describe(&self, now: Nanos) -> String {
        let Some(process) = &self.process else { return format!("down until {}", self.up_at.0) };
        let Process { session, outbox, is_waiting, node, wake, .. } = process;
        let wake = self.clock.global(*wake);
        format!(
            "id {}, {:?}, node {}, asking {is_waiting}, applied {}, given {}, wake {:?}, paused \
             {}, now {}",
            self.enlisted.server,
            session.enlisted(),
            node.as_ref().map_or("none".to_owned(), |node| node.service().master().describe()),
            outbox.applied(),
            session.assigned_version(),
            wake.0,
            self.paused_until.0,
            now.0
        )
    }

    /// Describes the recoveries that the server takes part in, if there are any.
    pub(super) fn recoveries(&self) -> Option<String> {
        let words = self.node()?.service().master().describe();
        words.contains("'s table").then(|| format!("    at {}: {}", self.enlisted.server, words))
    }

    /// Ends the server without warning. With `process`, only the process ends, and the kernel still
    /// writes what it has.
    pub(super) fn crash(&mut self, up_at: Nanos, process: bool) {
        self.process = None;
        if process {
            self.disk.kill();
        } else {
            self.disk.crash();
        }
        self.up_at = up_at;
    }

    fn start(&mut self, now: Nanos) {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let driver = AnyDriver::from(self.hub.port(self.control).expect("the one before is gone"));
        let core = Core::with_drivers(vec![(TRANSPORT, driver)], &self.coordinators, self.seed)
            .expect("the transport is there");
        let locator =
            format!("{TRANSPORT}:host={},port={}", self.address.ip(), self.address.port());
        let session =
            CoordinatorSession::new(self.enlisted, super::COPIES, locator).in_rack(&self.rack);
        // The master's outbox replaces this one once there is a master.
        let (outbox, _) = inbox();
        self.process =
            Some(Process { core, session, outbox, is_waiting: false, node: None, wake: now });
    }

    /// Starts the server's node, with an empty log and the replicas on its disk. Returns `None` if
    /// the disk's contents cannot be opened.
    fn begin(&mut self, settings: &Settings, server: u32) -> Option<Box<ServerNode>> {
        let config = Config {
            seed: HASH_SEED,
            segment_bytes: settings.segment_bytes,
            ..Config::new(settings.memory, Durability::Tracked)
        };
        let replicator =
            Replicator::new(server, usize::from(super::COPIES), settings.segment_bytes, self.seed);
        let (outbox, commands) = inbox();
        // The server serves only while it has a lease.
        outbox.set_lease(Nanos(0));
        let master =
            Master::replicated(Log::new(config).expect("the settings fit"), replicator, commands)
                .with_time(clock(self.seed ^ u64::from(server)));
        let driver = AnyDriver::from(self.hub.port(self.address).expect("the one before is gone"));
        let disk = self.disk.open().expect("whoever had it open is gone");
        let (replicas, _) = Replicas::open(disk, &self.options).ok()?;
        let member = ClusterNode::new(master, replicas);
        self.process.as_mut().expect("it runs").outbox = outbox;
        Some(Box::new(Node::new(driver, member, &sprat_rpc::Config::default(), self.seed)))
    }

    /// Returns the time at which the server has something to do even if nothing arrives.
    pub(super) fn wake(&self) -> Nanos {
        let Some(process) = &self.process else { return self.up_at.max(self.paused_until) };
        let node = if process.node.is_some() { process.wake } else { Nanos::NEVER };
        let session = if process.is_waiting { process.core.next_deadline() } else { Nanos(0) };
        self.clock.global(node.min(session)).min(self.disk_due()).max(self.paused_until)
    }

    fn disk_due(&self) -> Nanos {
        self.disk.next_due().map_or(Nanos::NEVER, Nanos)
    }

    /// Runs one iteration of session and node. Returns why the session ended, if it did.
    pub(super) fn step(&mut self, now: Nanos, settings: &Settings) -> Option<SessionEnd> {
        if now < self.paused_until {
            return None;
        }
        if self.process.is_none() {
            if now < self.up_at {
                return None;
            }
            self.start(now);
        }
        self.disk.set_now(now.0);
        let local = self.clock.local(now);
        if let Some(end) = self.run_session(local) {
            return Some(end);
        }
        let process = self.process.as_mut().expect("it runs");
        let enlisted = process.session.enlisted();
        if process.node.is_none() && process.session.has_enlisted() {
            self.enlisted = enlisted;
            let Some(node) = self.begin(settings, enlisted.server) else {
                assert!(
                    self.disk_faulty_until.is_some(),
                    "a disk that only forgets what was not synced"
                );
                self.crash(now + RESTART, true);
                return None;
            };
            let process = self.process.as_mut().expect("it runs");
            (process.node, process.wake) = (Some(node), local);
        }
        let waiting = self.hub.waiting(self.address) > 0 || self.disk_due() <= now;
        let process = self.process.as_mut().expect("it runs");
        if let Some(node) = &mut process.node
            && (local >= process.wake || waiting)
        {
            let worked = node.turn(local).expect("a port in memory does not fail");
            process.wake = if worked {
                local + TURN
            } else if node.service_mut().work_idle() {
                local + IDLE_WORK
            } else {
                node.next_deadline()
            };
        }
        None
    }

    /// Runs an iteration of the session.
    fn run_session(&mut self, local: Nanos) -> Option<SessionEnd> {
        let Process { core, session, outbox, is_waiting, node, wake } =
            self.process.as_mut().expect("it runs");
        let mut ended = None;
        let mut left = false;
        if *is_waiting {
            let polled = core.poll(local, &mut |_, answer| {
                *is_waiting = false;
                match session.answered(answer.ok().as_ref(), outbox) {
                    Ok(worked) => left |= worked,
                    Err(end) => ended = Some(end),
                }
            });
            polled.expect("a port in memory does not fail");
            if session.take_deposed() {
                core.switch_coordinator("");
            }
        }
        if left {
            *wake = local; // as the master's bell would
        }
        // The session asks for assignments only once there is a master to apply them.
        if ended.is_none() && !*is_waiting && (node.is_some() || !session.has_enlisted()) {
            let _ = session.next_request(local, outbox);
            let patience = session.patience(self.coordinators.len());
            let request = session.next_request(local, outbox);
            *is_waiting = core.submit(local, 0, &request, local + patience).is_ok();
            core.flush();
        }
        ended
    }
}
