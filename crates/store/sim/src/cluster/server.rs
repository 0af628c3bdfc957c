//! A server of a cluster: its agent and its node, their lives, and a clock of its own.

use super::clock::Clock;
use super::settings::Settings;
use crate::client::TRANSPORT;
use crate::server::HASH_SEED;
use sprat_client::Core;
use sprat_disk::{MemControl, MemDisk};
use sprat_log::{Config, Durability, Log};
use sprat_net::{AnyDriver, Hub, Locators, Nanos};
use sprat_store::agent::{Agent, Enlisted, Gone};
use sprat_store::master::{Master, Outbox, inbox};
use sprat_store::member::Member;
use sprat_store::node::{Node, Service as _};
use sprat_store::replicas::{Options, Replicas};
use sprat_store::replication::Replicator;
use sprat_wire::op::ReplicaId;
use std::net::SocketAddr;
use std::time::Duration;

/// Time that a turn takes when there was something to do, and a piece of idle work.
const TURN: Duration = Duration::from_micros(2);
const IDLE_WORK: Duration = Duration::from_micros(20);

/// When somebody tries again to start a server that could not open its disk.
const RESTART: Duration = Duration::from_millis(50);

type ServerNode = Node<AnyDriver, Member<MemDisk, Replicas<MemDisk>>>;

/// What runs.
struct Process {
    core: Core,
    agent: Agent,
    outbox: Outbox,
    asking: bool,
    /// Once it has enlisted.
    node: Option<Box<ServerNode>>,
    wake: Nanos,
}

/// A server, through its lives.
pub(super) struct Server {
    /// Where its node and its agent are.
    address: SocketAddr,
    control: SocketAddr,
    hub: Hub,
    coordinators: Locators,
    /// Its disk.
    disk: MemControl,
    options: Options,
    /// Its rack's name; empty where racks have none.
    rack: String,
    enlisted: Enlisted,
    process: Option<Process>,
    /// When it starts again, and until when it stands still, by the world's clock.
    pub(super) up_at: Nanos,
    pub(super) paused_until: Nanos,
    /// Its disk is not as it should be until then.
    pub(super) spoilt_until: Option<Nanos>,
    clock: Clock,
    seed: u64,
}

impl Server {
    /// One that never ran.
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
            spoilt_until: None,
            clock,
            seed,
        }
    }

    /// The same in a rack.
    pub(super) fn in_rack(self, rack: String) -> Self {
        Self { rack, ..self }
    }

    /// Whether it stands in the same rack as another.
    pub(super) fn shares_rack(&self, other: &Self) -> bool {
        !self.rack.is_empty() && self.rack == other.rack
    }

    /// Whether its process runs.
    pub(super) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Whether it serves what the coordinator has it serve.
    pub(super) fn serves(&self, version: u64) -> bool {
        self.process.as_ref().is_some_and(|process| process.outbox.applied() >= version)
    }

    /// Its id, if it has enlisted.
    pub(super) fn id(&self) -> u32 {
        self.enlisted.server
    }

    /// Its node.
    pub(super) fn node(&self) -> Option<&ServerNode> {
        self.process.as_ref()?.node.as_deref()
    }

    /// What keeps its log on others.
    pub(super) fn replicator(&self) -> Option<&Replicator> {
        self.node()?.service().master().replicator()
    }

    /// Whether it keeps a whole replica of a segment.
    pub(super) fn keeps(&self, master: u32, segment: u64) -> bool {
        let records = self.node().map(|node| node.service().keeper().records(master));
        records.is_some_and(|records| {
            records.iter().any(|record| record.segment == segment && record.sealed)
        })
    }

    /// Its disk.
    pub(super) fn disk(&self) -> &MemControl {
        &self.disk
    }

    /// Its disk is as it should be again, and its process is begun anew: it may have given it up,
    /// or wait for ever.
    pub(super) fn mend(&mut self, now: Nanos) {
        self.spoilt_until = None;
        self.disk.spare();
        self.disk.set_capacity(u64::MAX);
        if self.process.is_some() {
            self.crash(now, true);
        }
    }

    /// Flips a bit of a replica that is whole, and that it may; false when there is none.
    pub(super) fn flip(&self, chance: u64, may: impl Fn(ReplicaId) -> bool) -> bool {
        let Some(node) = self.node() else { return false };
        let whole: Vec<_> =
            node.service().keeper().whole().filter(|&(replica, _)| may(replica)).collect();
        let count = whole.len().max(1) as u64;
        let Some((_, place)) = whole.get(usize::try_from(chance % count).expect("few")) else {
            return false;
        };
        let at = place.start + chance / count % (place.end - place.start);
        self.disk.flip(at, u32::try_from(chance >> 61).expect("three bits"));
        true
    }

    /// What it keeps of a server.
    pub(super) fn describe_kept(&self, master: u32) -> String {
        self.node()
            .map_or("nothing now".to_owned(), |node| node.service().keeper().describe(master))
    }

    /// How it stands.
    pub(super) fn describe(&self, now: Nanos) -> String {
        let Some(process) = &self.process else { return format!("down until {}", self.up_at.0) };
        let Process { agent, outbox, asking, node, wake, .. } = process;
        let wake = self.clock.global(*wake);
        format!(
            "id {}, {:?}, node {}, asking {asking}, applied {}, given {}, wake {:?}, paused {}, now {}",
            self.enlisted.server,
            agent.enlisted(),
            node.as_ref().map_or("none".to_owned(), |node| node.service().master().describe()),
            outbox.applied(),
            agent.given(),
            wake.0,
            self.paused_until.0,
            now.0
        )
    }

    /// What it brings back, in words.
    pub(super) fn recoveries(&self) -> Option<String> {
        let words = self.node()?.service().master().describe();
        words.contains("'s table").then(|| format!("    at {}: {}", self.enlisted.server, words))
    }

    /// Ends it without warning. `process`: the kernel lives on, and writes what it has.
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
        let agent = Agent::new(self.enlisted, super::COPIES, locator).in_rack(&self.rack);
        // Replaced by the master's, when there is one.
        let (outbox, _) = inbox();
        self.process = Some(Process { core, agent, outbox, asking: false, node: None, wake: now });
    }

    /// Its node begins: an empty log, and what its disk keeps for others.
    fn begin(&mut self, settings: &Settings, server: u32) -> Option<Box<ServerNode>> {
        let config = Config {
            seed: HASH_SEED,
            segment_bytes: settings.segment_bytes,
            ..Config::new(settings.memory, Durability::Tracked)
        };
        let replicator =
            Replicator::new(server, usize::from(super::COPIES), settings.segment_bytes, self.seed);
        let (outbox, commands) = inbox();
        // It serves nothing before it is told to, and not for longer than it is told.
        outbox.set_lease(Nanos(0));
        let master =
            Master::replicated(Log::new(config).expect("the settings fit"), replicator, commands);
        let driver = AnyDriver::from(self.hub.port(self.address).expect("the one before is gone"));
        let disk = self.disk.open().expect("whoever had it open is gone");
        let (replicas, _) = Replicas::open(disk, &self.options).ok()?;
        let member = Member::new(master, replicas);
        self.process.as_mut().expect("it runs").outbox = outbox;
        Some(Box::new(Node::new(driver, member, &sprat_rpc::Config::default(), self.seed)))
    }

    /// When it has something to do although nothing arrives.
    pub(super) fn wake(&self) -> Nanos {
        let Some(process) = &self.process else { return self.up_at.max(self.paused_until) };
        let node = if process.node.is_some() { process.wake } else { Nanos::NEVER };
        let agent = if process.asking { process.core.next_deadline() } else { Nanos(0) };
        self.clock.global(node.min(agent)).min(self.disk_due()).max(self.paused_until)
    }

    fn disk_due(&self) -> Nanos {
        self.disk.next_due().map_or(Nanos::NEVER, Nanos)
    }

    /// One turn of agent and node; returns why it ended, if it did.
    pub(super) fn step(&mut self, now: Nanos, settings: &Settings) -> Option<Gone> {
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
        if let Some(gone) = self.ask(local) {
            return Some(gone);
        }
        let process = self.process.as_mut().expect("it runs");
        let enlisted = process.agent.enlisted();
        if process.node.is_none() && process.agent.has_enlisted() {
            self.enlisted = enlisted;
            let Some(node) = self.begin(settings, enlisted.server) else {
                assert!(
                    self.spoilt_until.is_some(),
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

    /// The agent's part.
    fn ask(&mut self, local: Nanos) -> Option<Gone> {
        let Process { core, agent, outbox, asking, node, wake } =
            self.process.as_mut().expect("it runs");
        let mut gone = None;
        let mut left = false;
        if *asking {
            let polled = core.poll(local, &mut |_, answer| {
                *asking = false;
                match agent.answered(answer.ok().as_ref(), outbox) {
                    Ok(worked) => left |= worked,
                    Err(end) => gone = Some(end),
                }
            });
            polled.expect("a port in memory does not fail");
            if agent.take_strayed() {
                core.switch_coordinator("");
            }
        }
        if left {
            *wake = local; // the master's bell
        }
        // It asks for assignments when there is a master to have them.
        if gone.is_none() && !*asking && (node.is_some() || !agent.has_enlisted()) {
            let _ = agent.next(local, outbox);
            let patience = agent.patience(self.coordinators.len());
            let request = agent.next(local, outbox);
            *asking = core.submit(local, 0, &request, local + patience).is_ok();
            core.flush();
        }
        gone
    }
}
