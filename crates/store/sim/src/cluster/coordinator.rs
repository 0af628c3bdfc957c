//! A coordinator of a cluster, which crashes and restarts. It runs alone, or as one of several that
//! share an [`Etcd`](super::etcd).

use super::clock::Clock;
use super::etcd::{Rows, Shared};
use crate::client::TRANSPORT;
use crate::server::HASH_SEED;
use sprat_client::Core;
use sprat_net::{AnyDriver, Hub, Locator, Locators, Nanos};
use sprat_store::coordinator::election::{
    Election, ElectionAction, LeaderRecord, PingReply, SILENCE,
};
use sprat_store::coordinator::{Catalog, Coordinator, ElectionBridge, LeaderMailbox};
use sprat_store::node::Node;
use sprat_wire::op::{Request, Status};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Bound of the time that etcd usually takes to answer, in microseconds.
const USUAL: u64 = 3_000;
/// Bound of the time that etcd takes for one operation in 50, in microseconds.
const SLOW: u64 = 400_000;
/// Time after which the coordinator gives up an operation.
const GIVEN_UP: Duration = Duration::from_secs(1);

/// The longest sleep of the election's thread.
const MAX_SLEEP: Duration = Duration::from_millis(25);

type CoordinatorNode = Node<AnyDriver, Coordinator<Rows>>;

/// The answer that an election waits for.
enum Awaited {
    Read { sent: Nanos, at: Nanos, found: Option<Option<LeaderRecord>> },
    Claim { sent: Nanos, at: Nanos, outcome: Option<Option<u64>> },
    Pong,
}

/// The part of a process that runs the election.
struct Candidate {
    election: Election,
    bridge: ElectionBridge<Rows>,
    core: Core,
    awaited: Option<Awaited>,
    wake: Nanos,
}

struct Process {
    node: Box<CoordinatorNode>,
    candidate: Option<Candidate>,
}

/// A coordinator that crashes and restarts.
pub(super) struct SimCoordinator {
    /// The address of its node; `control` is the address of its election.
    address: SocketAddr,
    control: SocketAddr,
    hub: Hub,
    etcd: Shared,
    /// Whether there are other coordinators.
    several: bool,
    process: Option<Process>,
    /// The time at which the coordinator starts again; `paused_until` is the time until which it is
    /// paused.
    pub(super) up_at: Nanos,
    pub(super) paused_until: Nanos,
    /// Until when it cannot reach etcd.
    pub(super) cut_until: Nanos,
    open: Rc<Cell<bool>>,
    clock: Clock,
    seed: u64,
}

/// Returns the locator of an address.
pub(super) fn locator(at: SocketAddr) -> Locator {
    format!("{TRANSPORT}:host={},port={}", at.ip(), at.port()).parse().expect("a locator")
}

impl SimCoordinator {
    /// Creates a coordinator that has never run.
    pub(super) fn new(
        hub: &Hub,
        (address, control): (SocketAddr, SocketAddr),
        etcd: &Shared,
        several: bool,
        (clock, seed): (Clock, u64),
    ) -> Self {
        Self {
            address,
            control,
            hub: hub.clone(),
            etcd: Rc::clone(etcd),
            several,
            process: None,
            up_at: Nanos(0),
            paused_until: Nanos(0),
            cut_until: Nanos(0),
            open: Rc::new(Cell::new(true)),
            clock,
            seed,
        }
    }

    /// Ends the coordinator without warning. It starts again at `up_at`.
    pub(super) fn crash(&mut self, up_at: Nanos) {
        self.process = None;
        self.up_at = up_at;
    }

    /// Returns the coordinator if it leads.
    pub(super) fn leading(&self, now: Nanos) -> Option<&Coordinator<Rows>> {
        let service = self.process.as_ref()?.node.service();
        service.leads(self.clock.local(now)).then_some(service)
    }

    fn draw(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.seed
    }

    fn start(&mut self) -> Result<Process, String> {
        let driver = AnyDriver::from(self.hub.port(self.address).expect("the one before is gone"));
        let here = locator(self.address);
        let (life, seed) = (self.draw() | 1, self.draw());
        let (service, candidate) = if self.several {
            let mailbox = LeaderMailbox::default();
            let control =
                AnyDriver::from(self.hub.port(self.control).expect("the one before is gone"));
            let core =
                Core::with_drivers(vec![(TRANSPORT, control)], &Locators::from(here.clone()), seed);
            let candidate = Candidate {
                election: Election::new(life, here.to_string()),
                bridge: ElectionBridge::new(mailbox.clone()),
                core: core.expect("the transport is there"),
                awaited: None,
                wake: Nanos(0),
            };
            (Coordinator::standby(mailbox, here.to_string()), Some(candidate))
        } else {
            (
                Coordinator::new(Catalog::open_standalone(
                    Rows::new(&self.etcd, None, &self.open),
                    HASH_SEED,
                    life,
                )?),
                None,
            )
        };
        Ok(Process {
            node: Box::new(Node::new(driver, service, &sprat_rpc::Config::default(), seed)),
            candidate,
        })
    }

    /// Returns the time at which the coordinator has something to do even if nothing arrives.
    pub(super) fn wake(&self) -> Nanos {
        let Some(Process { node, candidate }) = &self.process else {
            return self.up_at.max(self.paused_until);
        };
        let election =
            candidate.as_ref().map_or(Nanos::NEVER, |candidate| match candidate.awaited {
                Some(Awaited::Pong) => candidate.core.next_deadline(),
                _ => candidate.wake,
            });
        self.clock.global(node.next_deadline().min(election)).max(self.paused_until)
    }

    /// Runs one iteration of the coordinator's node and of its election.
    pub(super) fn step(&mut self, now: Nanos) -> Result<(), String> {
        if now < self.paused_until {
            return Ok(());
        }
        self.open.set(now >= self.cut_until);
        if self.process.is_none() {
            if now < self.up_at {
                return Ok(());
            }
            self.process = Some(self.start()?);
        }
        let local = self.clock.local(now);
        let Self { process, hub, etcd, open, address, .. } = self;
        let Process { node, candidate } = process.as_mut().expect("it runs");
        let mut rings = false;
        if let Some(candidate) = candidate {
            rings = candidate.step(local, etcd, open);
        }
        if rings || hub.waiting(*address) > 0 || node.next_deadline() <= local {
            node.turn(local).expect("a port in memory does not fail");
        }
        Ok(())
    }
}

impl Candidate {
    /// Continues the election; returns whether the coordinator has an update to handle.
    fn step(&mut self, now: Nanos, etcd: &Shared, open: &Rc<Cell<bool>>) -> bool {
        self.bridge.relay(now, &mut self.election);
        self.take(now);
        if self.awaited.is_none() {
            self.begin(now, etcd, open.get());
        }
        let catalog = |term| Catalog::open(Rows::new(etcd, Some(term), open), HASH_SEED);
        self.bridge.publish(now, &mut self.election, catalog)
    }

    /// Handles the answer that the election waits for, if it has arrived.
    fn take(&mut self, now: Nanos) {
        match self.awaited.take() {
            Some(Awaited::Read { sent, at, found }) if at <= now => {
                self.election.read(sent, now, found)
            }
            Some(Awaited::Claim { sent, at, outcome }) if at <= now => {
                self.election.claimed(sent, now, outcome)
            }
            Some(Awaited::Pong) => {
                let mut ended = None;
                let polled = self.core.poll(now, &mut |_, answer| {
                    ended = Some(answer.ok().map(|answer| PingReply {
                        leads: answer.status == Status::Ok,
                        term: answer.number,
                    }));
                });
                polled.expect("a port in memory does not fail");
                match ended {
                    Some(pong) => self.election.pinged(now, pong),
                    None => self.awaited = Some(Awaited::Pong),
                }
            }
            other => self.awaited = other,
        }
    }

    /// Begins the next operation of the election.
    fn begin(&mut self, now: Nanos, etcd: &Shared, open: bool) {
        let etcd = &mut *etcd.borrow_mut();
        let takes = if etcd.chance(50) == 0 { SLOW } else { USUAL };
        let at = now + Duration::from_micros(etcd.chance(takes));
        let given_up = now + GIVEN_UP;
        self.awaited = match self.election.next(now) {
            ElectionAction::Read if open => {
                Some(Awaited::Read { sent: now, at, found: Some(etcd.holder()) })
            }
            ElectionAction::Read => Some(Awaited::Read { sent: now, at: given_up, found: None }),
            ElectionAction::Claim { over } => {
                let (life, locator) = self.election.identity();
                // Even if the connection is cut, a claim may arrive; even if it is open, the answer
                // may be lost.
                let arrives = open || etcd.chance(4) == 0;
                let outcome = arrives.then(|| etcd.claim(over, life, locator));
                let heard = open && etcd.chance(30) > 0;
                let at = if heard { at } else { given_up };
                Some(Awaited::Claim { sent: now, at, outcome: outcome.filter(|_| heard) })
            }
            ElectionAction::Ping { locator } => {
                let target =
                    locator.parse().ok().and_then(|locator| self.core.target(&locator).ok());
                let target = target.expect("locators of the simulator are good");
                let begun = self.core.submit_to(now, 0, target, &Request::WhoLeads, now + SILENCE);
                begun.expect("nothing else is under way");
                self.core.flush();
                Some(Awaited::Pong)
            }
            ElectionAction::WaitUntil(until) => {
                self.wake = until.min(now + MAX_SLEEP);
                return;
            }
        };
        self.wake = match &self.awaited {
            Some(Awaited::Read { at, .. } | Awaited::Claim { at, .. }) => *at,
            _ => Nanos::NEVER,
        };
    }
}
