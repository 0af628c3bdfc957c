//! Coordinators that lead, stand by and are deposed, in virtual time: the leases they grant, the
//! requests they refuse, and when they declare servers dead.

use sprat_client::{Core, ServerHandle};
use sprat_net::{AnyDriver, Hub, HubOptions, Locators, Nanos};
use sprat_store::agent::{CoordinatorSession, Enlisted, SessionEnd};
use sprat_store::coordinator::election::{LEADER_LEASE, TAKEOVER_GRACE};
use sprat_store::coordinator::{
    Catalog, Coordinator, DRIFT, FIRST_POLL_TIMEOUT, LEASE, LeaderLease, LeaderMailbox, LeaderTerm,
    Metadata, MetadataError, MetadataMemory, RENEWAL,
};
use sprat_store::master::inbox;
use sprat_store::node::Node;
use sprat_wire::op::{
    Answer, Assignment, ClusterSeen, Request, Status, TableOptions, encode_answer, push_counter,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use zerocopy::IntoBytes;

const STEP: Duration = Duration::from_millis(1);

/// Whether changes of the metadata succeed.
#[derive(Clone, Copy, Default)]
enum Availability {
    #[default]
    Open,
    Unavailable,
    Unknown,
}

/// Rows that only the coordinator with the latest term may change.
#[derive(Clone)]
struct Rows {
    shared: Rc<RefCell<(u64, MetadataMemory, Availability)>>,
    term: u64,
}

impl Metadata for Rows {
    fn load(&self) -> Result<BTreeMap<String, Vec<u8>>, MetadataError> {
        self.shared.borrow().1.load()
    }

    fn apply(&mut self, changes: &[(String, Option<Vec<u8>>)]) -> Result<(), MetadataError> {
        let (term, rows, availability) = &mut *self.shared.borrow_mut();
        let place = String::new();
        match availability {
            _ if *term != self.term => Err(MetadataError::Fenced { place }),
            Availability::Open => rows.apply(changes),
            Availability::Unavailable => {
                Err(MetadataError::Unavailable { place, cause: String::new() })
            }
            Availability::Unknown => Err(MetadataError::Unknown { place, cause: String::new() }),
        }
    }
}

struct World {
    now: Nanos,
    hub: Hub,
    rows: Rows,
    nodes: Vec<Node<AnyDriver, Coordinator<Rows>>>,
    mailboxes: Vec<LeaderMailbox<Rows>>,
    valid: Vec<LeaderLease>,
    core: Core,
    targets: Vec<ServerHandle>,
    /// Coordinators that are suspended.
    paused: Vec<bool>,
}

fn address(host: u16) -> SocketAddr {
    ([10, 0, 0, 1], host).into()
}

fn locators(count: usize) -> String {
    (0..count)
        .map(|index| format!("fast+udp:host=10.0.0.1,port={}", index + 1))
        .collect::<Vec<_>>()
        .join(",")
}

impl World {
    fn new(count: usize) -> Self {
        let hub = Hub::new(HubOptions::default());
        let port = |host| AnyDriver::from(hub.port(address(host)).unwrap());
        let mailboxes: Vec<_> = (0..count).map(|_| LeaderMailbox::default()).collect();
        let node = |index: usize| {
            let place = locators(count).parse::<Locators>().unwrap()[index].to_string();
            let coordinator = Coordinator::standby(mailboxes[index].clone(), place);
            Node::new(
                port(u16::try_from(index + 1).unwrap()),
                coordinator,
                &sprat_rpc::Config::default(),
                index as u64,
            )
        };
        let nodes = (0..count).map(node).collect();
        let all: Locators = locators(count).parse().unwrap();
        let mut core = Core::with_drivers(vec![("fast+udp", port(100))], &all, 7).unwrap();
        let targets = all.iter().map(|one| core.target(one).unwrap()).collect();
        let rows = Rows { shared: Rc::default(), term: 0 };
        let (valid, paused) = (vec![LeaderLease::default(); count], vec![false; count]);
        Self { now: Nanos(0), hub, rows, nodes, mailboxes, valid, core, targets, paused }
    }

    /// Makes a world with one coordinator, the only one of its cluster.
    fn alone() -> Self {
        Self::alone_from(|rows| Catalog::open(rows, 5).unwrap())
    }

    /// Makes a world with one coordinator, with this catalog.
    fn alone_from(catalog: impl FnOnce(Rows) -> Catalog<Rows>) -> Self {
        let mut world = Self::new(1);
        let coordinator = Coordinator::new(catalog(world.rows.clone()));
        let port = world.hub.port(address(50)).unwrap();
        world.nodes =
            vec![Node::new(AnyDriver::from(port), coordinator, &sprat_rpc::Config::default(), 1)];
        let place: Locators = "fast+udp:host=10.0.0.1,port=50".parse().unwrap();
        world.targets = vec![world.core.target(place.iter().next().unwrap()).unwrap()];
        world
    }

    /// Makes a coordinator the leader of the next term.
    fn appoint(&mut self, index: usize) {
        self.rows.shared.borrow_mut().0 += 1;
        let term = self.rows.shared.borrow().0;
        let catalog = Catalog::open(Rows { term, ..self.rows.clone() }, 5).unwrap();
        let valid = LeaderLease::default();
        valid.set(self.now + LEADER_LEASE);
        self.valid[index] = valid.clone();
        self.mailboxes[index].appoint(LeaderTerm { term, taken: self.now, catalog, valid });
        self.run(STEP);
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        self.hub.deliver_until(self.now);
        for (node, _) in self.nodes.iter_mut().zip(&self.paused).filter(|(_, paused)| !**paused) {
            node.turn(self.now).unwrap();
        }
        self.hub.deliver_until(self.now);
    }

    fn run(&mut self, lasts: Duration) {
        let until = self.now + lasts;
        while self.now < until {
            self.step();
        }
    }

    /// Sends a request to a coordinator; `None` if no reply comes within `patience`.
    fn ask(
        &mut self,
        index: usize,
        request: &Request<'_>,
        patience: Duration,
    ) -> Option<(Status, u64, Vec<u8>)> {
        self.core
            .submit_to(self.now, 1, self.targets[index], request, self.now + patience)
            .unwrap();
        self.core.flush();
        let mut ended = None;
        while ended.is_none() {
            self.step();
            let sink = &mut |_, answer: Result<Answer<'_>, _>| {
                ended = Some(
                    answer.ok().map(|answer| (answer.status, answer.number, answer.body.to_vec())),
                );
            };
            self.core.poll(self.now, sink).unwrap();
        }
        ended.unwrap()
    }

    fn enlist(&mut self, index: usize) -> u32 {
        let locator = "fast+udp:host=10.0.0.2,port=9";
        let request = Request::Enlist { server: 0, cluster: 0, copies: 2, locator, rack: "" };
        let (status, id, _) = self.ask(index, &request, Duration::from_secs(1)).unwrap();
        assert_eq!(status, Status::Ok);
        u32::try_from(id).unwrap()
    }

    /// Polls as a server that has version `known`. Returns the status and the version in the reply,
    /// and whether the server got a lease.
    fn poll(&mut self, index: usize, server: u32, known: u64) -> (Status, u64, bool) {
        let answer = self.ask(
            index,
            &Request::Assignments { server, known, seen: &ClusterSeen::default() },
            Duration::from_secs(1),
        );
        let (status, version, body) = answer.expect("an answer");
        (
            status,
            version,
            Assignment::parse(&body).is_some_and(|assignment| assignment.lease_micros > 0),
        )
    }

    fn is_alive(&self, index: usize, server: u32) -> bool {
        self.nodes[index].service().catalog().server(server).is_some_and(|known| !known.dead)
    }

    /// Runs until a server is declared dead, and returns how long that took.
    fn time_to_death(&mut self, index: usize, server: u32) -> Duration {
        let begun = self.now;
        while self.is_alive(index, server) {
            self.valid[index].set(self.now + LEADER_LEASE);
            self.step();
            assert!(
                self.now.since(begun) < FIRST_POLL_TIMEOUT * 2,
                "the server is never declared dead"
            );
        }
        self.now.since(begun)
    }
}

#[test]
fn a_standby_answers_only_who_leads() {
    let mut world = World::new(2);
    world.appoint(0);
    world.mailboxes[1].depose(Some((1, "tcp:host=10.9.9.9,port=1".into())));
    world.run(STEP);
    let leader = (Status::NotLeading, 1, b"tcp:host=10.9.9.9,port=1".to_vec());
    for request in [
        Request::ListTables,
        Request::FindTable { name: "x" },
        Request::CreateTable { name: "x", options: TableOptions::default() },
        Request::Assignments { server: 1, known: 1, seen: &ClusterSeen::default() },
        Request::Enlist {
            server: 0,
            cluster: 0,
            copies: 2,
            locator: "tcp:host=10.0.0.2,port=9",
            rack: "",
        },
        Request::WhoLeads,
    ] {
        assert_eq!(world.ask(1, &request, LEADER_LEASE), Some(leader.clone()), "{request:?}");
    }
    let (status, term, place) = world.ask(0, &Request::WhoLeads, LEADER_LEASE).unwrap();
    assert_eq!((status, term, place), (Status::Ok, 1, b"fast+udp:host=10.0.0.1,port=1".to_vec()));
}

/// A regression test. A coordinator that did not know yet that it was deposed gave a backup its old
/// catalog, before and after the cut of the servers in it; one of these had been replaced.
#[test]
fn a_deposed_leader_gives_no_copy_of_its_catalog() {
    let copy = Request::CopyCatalog { server: 0, seen: &ClusterSeen::default() };
    let soon = Duration::from_millis(20);
    let mut world = World::new(2);
    world.appoint(0);
    world.run(LEADER_LEASE / 2);
    world.appoint(1);
    let server = world.enlist(1);
    world.run(LEADER_LEASE / 4);
    let old = world.ask(0, &Request::ListTables, soon).expect("it still answers");
    assert_eq!(old.0, Status::Ok);
    assert_eq!(world.ask(0, &copy, soon), None, "it must find out first whether it leads");
    assert_eq!(world.ask(1, &copy, soon), None, "so must its successor");
    // The successor finds that it leads.
    world.valid[1].set(world.now + LEADER_LEASE + soon);
    let (status, version, bytes) = world.ask(1, &copy, soon).expect("it is confirmed");
    assert_eq!(status, Status::Ok);
    let catalog = Catalog::<MetadataMemory>::from_copy(&bytes).expect("a copy");
    assert!(catalog.version() == version && catalog.server(server).is_some());
    // A server asks with the version that it has seen.
    let of_server = Request::CopyCatalog { server, seen: &ClusterSeen::default() };
    world.run(LEADER_LEASE / 4);
    assert!(world.ask(1, &of_server, soon).is_some());
    // A copy that waits when the leader learns that it was deposed is refused.
    world.core.submit_to(world.now, 2, world.targets[0], &copy, world.now + LEADER_LEASE).unwrap();
    world.core.flush();
    world.run(STEP * 3);
    world.mailboxes[0].depose(None);
    let mut ended = None;
    while ended.is_none() {
        world.step();
        let sink = &mut |_, answer: Result<Answer<'_>, _>| {
            ended = Some(answer.map(|answer| answer.status))
        };
        world.core.poll(world.now, sink).unwrap();
    }
    assert!(matches!(ended, Some(Ok(Status::NotLeading))), "{ended:?}");
}

#[test]
fn an_expired_leader_grants_no_leases() {
    let mut world = World::new(1);
    world.appoint(0);
    let server = world.enlist(0);
    let (status, version, lease) = world.poll(0, server, 0);
    assert_eq!((status, lease), (Status::Ok, true));
    // A poll that is still waiting when the leader's lease ends gets `NotLeading`.
    world.valid[0].set(world.now + RENEWAL / 2);
    assert_eq!(world.poll(0, server, version).0, Status::NotLeading);
    assert_eq!(world.ask(0, &Request::WhoLeads, LEADER_LEASE).unwrap().0, Status::NotLeading);
    // The leader could not renew the servers' leases meanwhile. When it leads again, it must not
    // declare these servers dead.
    world.run(LEASE * 3);
    world.valid[0].set(world.now + LEADER_LEASE);
    world.run(STEP * 10);
    assert!(world.is_alive(0, server));
    assert!(world.poll(0, server, version).2);
    let took = world.time_to_death(0, server);
    assert!(took >= LEASE && took < LEASE + Duration::from_millis(20), "{took:?}");
}

/// A regression test. A coordinator with an older copy of the metadata refused its servers and then
/// declared them dead. That change raised the copy's version to the servers' version, so the older
/// copy was taken for the current one.
#[test]
fn metadata_shown_to_be_an_older_copy_stay_refused() {
    let mut world = World::alone();
    let server = world.enlist(0);
    let (_, version, lease) = world.poll(0, server, 0);
    assert!(lease);
    let cluster = world.nodes[0].service().catalog().cluster();
    let seen = ClusterSeen { cluster: cluster.into(), version: (version + 1).into() };
    let poll = Request::Assignments { server, known: version, seen: &seen };
    assert_eq!(world.ask(0, &poll, LEADER_LEASE).unwrap().0, Status::WrongCluster);
    world.run(FIRST_POLL_TIMEOUT * 2);
    assert!(world.is_alive(0, server), "the server is refused, not dead");
    let locator = "fast+udp:host=10.0.0.3,port=9";
    for (request, status) in [
        (
            Request::Enlist { server: 0, cluster: 0, copies: 2, locator, rack: "" },
            Status::WrongCluster,
        ),
        (
            Request::Assignments { server, known: 0, seen: &ClusterSeen::default() },
            Status::WrongCluster,
        ),
        (Request::CopyCatalog { server, seen: &ClusterSeen::default() }, Status::WrongCluster),
        (Request::CreateTable { name: "x", options: TableOptions::default() }, Status::Refused),
        (Request::FindTable { name: "x" }, Status::Refused),
        (Request::ListTables, Status::Refused),
        // If this request were refused, a running server would stop.
        (Request::Void { server, segment: 1 }, Status::NotLeading),
    ] {
        let (found, _, words) = world.ask(0, &request, LEADER_LEASE).unwrap();
        assert_eq!(found, status, "{request:?}");
        let words = String::from_utf8_lossy(&words).into_owned();
        assert!(
            status == Status::NotLeading || words.contains("they are an older copy"),
            "{request:?}: {words}"
        );
    }
    assert_eq!(world.nodes[0].service().catalog().version(), version, "nothing was changed");
}

/// A regression test. Metadata were rebuilt from a copy that lacked the end of a move, and the two
/// servers of the move dropped the tablet's objects without a word.
#[test]
fn servers_that_have_seen_more_than_rebuilt_metadata_are_refused() {
    let old = Catalog::open(MetadataMemory::default(), 5).unwrap();
    let copied = old.version();
    let again = |rows| Catalog::<Rows>::from_copy(&old.copy()).unwrap().rebuild(rows).unwrap();
    // The metadata keep the copy's version through later changes and starts.
    let later = |rows: Rows| {
        again(rows.clone()).create("t", TableOptions::of(1), &[1]).unwrap();
        Catalog::open(rows, 6).unwrap()
    };
    let poll = |known: u64, later_on: bool| {
        let mut world = if later_on { World::alone_from(later) } else { World::alone_from(again) };
        let server = world.enlist(0);
        let seen = ClusterSeen { cluster: 5.into(), version: known.into() };
        let poll = Request::Assignments { server, known: 0, seen: &seen };
        let (status, _, words) = world.ask(0, &poll, LEADER_LEASE).unwrap();
        let words = String::from_utf8_lossy(&words).into_owned();
        let next = world.ask(0, &Request::ListTables, LEADER_LEASE).unwrap().0;
        assert_eq!(next == Status::Refused, status == Status::WrongCluster, "{words}");
        (status, words)
    };
    let rebuilt = World::alone_from(again).nodes[0].service().catalog().version();
    for known in [0, copied, rebuilt] {
        assert_eq!(poll(known, false).0, Status::Ok, "{known}");
    }
    for (known, later_on) in [(copied + 1, false), (rebuilt - 1, false), (copied + 1, true)] {
        let (status, words) = poll(known, later_on);
        assert_eq!(status, Status::WrongCluster, "{known}");
        let expected = format!("were rebuilt from version {copied} of the tablet map, and server");
        assert!(words.contains(&expected), "{words}");
    }
}

#[test]
fn a_suspended_leader_does_not_declare_servers_dead() {
    let mut world = World::new(1);
    world.appoint(0);
    let server = world.enlist(0);
    let (_, version, _) = world.poll(0, server, 0);
    assert!(world.poll(0, server, version).2);
    world.paused[0] = true;
    world.run(LEASE * 3);
    world.paused[0] = false;
    world.run(STEP * 10);
    assert!(world.is_alive(0, server), "the coordinator was away, not the server");
    assert!(world.poll(0, server, version).2);
    assert!(world.time_to_death(0, server) >= LEASE);
}

/// Runs for a time; returns whether the request that is under way is answered with `Ok`.
fn is_granted(world: &mut World, time: Duration) -> bool {
    let mut granted = false;
    let until = world.now + time;
    while world.now < until {
        world.step();
        let sink = &mut |_, answer: Result<Answer<'_>, _>| {
            granted = answer.is_ok_and(|answer| answer.status == Status::Ok);
        };
        world.core.poll(world.now, sink).unwrap();
    }
    granted
}

/// A write of its metadata may hold a coordinator up for about the length of a lease.
#[test]
fn a_leader_that_stood_still_answers_polls_before_it_declares_servers_dead() {
    for is_early in [true, false] {
        let mut world = World::new(1);
        world.appoint(0);
        let server = world.enlist(0);
        let (_, version, _) = world.poll(0, server, 0);
        let poll = Request::Assignments { server, known: version, seen: &ClusterSeen::default() };
        let ask = |world: &mut World| {
            world.core.submit_to(world.now, 1, world.targets[0], &poll, Nanos::NEVER).unwrap();
            world.core.flush();
        };
        if is_early {
            ask(&mut world);
            world.run(STEP * 4);
        }
        world.paused[0] = true;
        world.run(RENEWAL);
        if !is_early {
            ask(&mut world);
        }
        world.run(LEASE);
        world.paused[0] = false;
        let granted = is_granted(&mut world, 2 * RENEWAL);
        assert!(granted && world.is_alive(0, server), "polled early: {is_early}");
    }
}

/// A server whose report waits until the coordinator has written its metadata cannot poll
/// meanwhile.
#[test]
fn a_leader_that_stood_still_lets_servers_poll_that_have_reported() {
    let mut world = World::new(1);
    world.appoint(0);
    let server = world.enlist(0);
    let (_, version, _) = world.poll(0, server, 0);
    assert!(world.poll(0, server, version).2);
    world.paused[0] = true;
    world.run(RENEWAL);
    let report = Request::Void { server, segment: 1 };
    world.core.submit_to(world.now, 1, world.targets[0], &report, Nanos::NEVER).unwrap();
    world.core.flush();
    world.run(LEASE);
    world.paused[0] = false;
    let is_recorded = is_granted(&mut world, RENEWAL);
    assert!(is_recorded && world.is_alive(0, server), "it could not poll");
    assert!(world.time_to_death(0, server) < 2 * LEASE, "it does not poll");
}

#[test]
fn a_poll_is_not_answered_by_a_clock_older_than_itself() {
    let mut world = World::new(1);
    world.appoint(0);
    let server = world.enlist(0);
    // The node reads its clock and is suspended. Long after, it handles a poll that arrived while
    // it was suspended.
    let stale = world.now;
    world.paused[0] = true;
    let poll = Request::Assignments { server, known: 0, seen: &ClusterSeen::default() };
    world.core.submit_to(stale, 1, world.targets[0], &poll, Nanos::NEVER).unwrap();
    world.core.flush();
    let connect = |world: &mut World, now: Nanos, granted: &mut bool| {
        world.hub.deliver_until(world.now);
        world.nodes[0].turn(now).unwrap();
        world.hub.deliver_until(world.now);
        let sink = &mut |_, answer: Result<Answer<'_>, _>| {
            *granted = answer.is_ok_and(|answer| answer.status == Status::Ok)
        };
        world.core.poll(now, sink).unwrap();
    };
    let mut granted = false;
    world.valid[0].set(stale + STEP);
    // Enough iterations of the node's loop for all frames of the handshake.
    (0..20).for_each(|_| connect(&mut world, stale, &mut granted));
    assert!(!granted, "the lease would count from a time that may be long past");
    (0..20).for_each(|_| connect(&mut world, stale + LEADER_LEASE, &mut granted));
    assert!(!granted, "the node may not lead any more");
}

#[test]
fn a_new_leader_waits_for_leases_of_its_predecessor() {
    let mut world = World::new(2);
    world.appoint(0);
    let server = world.enlist(0);
    let (_, version, _) = world.poll(0, server, 0);
    let taken = world.now;
    world.appoint(1);
    // The server polls the new leader, but loses the reply. Then it gets a lease from the old
    // leader, whose own lease is still valid.
    assert!(world.poll(1, server, version).2);
    assert!(world.valid[0].is_valid(world.now) && world.poll(0, server, version).2);
    let took = world.time_to_death(1, server);
    let since = world.now.since(taken);
    assert!(
        since >= TAKEOVER_GRACE && since >= LEADER_LEASE + LEASE + (LEADER_LEASE + LEASE) / DRIFT,
        "{took:?}, {since:?} after the takeover"
    );
}

#[test]
fn a_server_that_knows_the_new_leader_is_declared_dead_as_usual() {
    let mut world = World::new(2);
    world.appoint(0);
    let server = world.enlist(0);
    let (_, version, _) = world.poll(0, server, 0);
    world.appoint(1);
    let (_, new, lease) = world.poll(1, server, version);
    assert!(lease && new > version);
    // The server has applied the new leader's version, so it accepts nothing more from the old
    // leader.
    assert!(world.poll(1, server, new).2);
    let took = world.time_to_death(1, server);
    assert!(took >= LEASE && took < LEASE * 2, "{took:?}");
}

#[test]
fn a_deposed_leader_steps_down_at_its_first_change() {
    let mut world = World::new(2);
    world.appoint(0);
    let server = world.enlist(0);
    assert!(world.poll(0, server, 0).2);
    world.appoint(1);
    assert_eq!(
        world
            .ask(
                0,
                &Request::CreateTable { name: "x", options: TableOptions::default() },
                LEADER_LEASE
            )
            .unwrap()
            .0,
        Status::NotLeading
    );
    assert_eq!(world.mailboxes[0].take_resigned(), Some(1));
    assert_eq!(world.poll(0, server, 0).0, Status::NotLeading);
}

#[test]
fn a_change_with_unknown_outcome_ends_the_term_and_an_unavailable_one_waits() {
    let mut world = World::new(1);
    world.appoint(0);
    let server = world.enlist(0);
    let (_, version, _) = world.poll(0, server, 0);
    world.rows.shared.borrow_mut().2 = Availability::Unavailable;
    let answer = world.ask(
        0,
        &Request::CreateTable { name: "x", options: TableOptions::default() },
        Duration::from_millis(300),
    );
    assert_eq!(answer, None, "the client repeats the request until its time is over");
    assert!(world.poll(0, server, version).2, "servers still get leases");
    world.rows.shared.borrow_mut().2 = Availability::Unknown;
    assert_eq!(
        world
            .ask(
                0,
                &Request::CreateTable { name: "x", options: TableOptions::default() },
                LEADER_LEASE
            )
            .unwrap()
            .0,
        Status::NotLeading
    );
    assert_eq!(world.mailboxes[0].take_resigned(), Some(1));
    world.rows.shared.borrow_mut().2 = Availability::Open;
    world.appoint(0);
    assert!(world.poll(0, server, version).2, "the coordinator leads again, in another term");
}

fn assignment(version: u64) -> Vec<u8> {
    let mut body = Vec::new();
    Assignment { lease_micros: 400_000, next_server: 4, ..Assignment::default() }.encode(&mut body);
    [encode_answer(Status::Ok, false, 0, version).as_bytes(), &body].concat()
}

#[test]
fn a_server_accepts_nothing_from_an_earlier_leader() {
    let (outbox, _inbox) = inbox();
    let mut agent =
        CoordinatorSession::new(Enlisted::default(), 2, "tcp:host=10.0.0.2,port=9".into());
    let tell = |agent: &mut CoordinatorSession, now: u64, answer: &[u8]| {
        let _ = agent.next_request(Nanos(now), &outbox);
        let told = agent.answered(Answer::parse(answer).as_ref(), &outbox);
        (told, agent.take_deposed())
    };
    let mut body = Vec::new();
    push_counter(&mut body, "cluster", 5);
    push_counter(&mut body, "version", 7);
    let enlisted = [encode_answer(Status::Ok, false, 0, 3).as_bytes(), &body].concat();
    assert_eq!(tell(&mut agent, 0, &enlisted), (Ok(false), false));
    let unknown = |version| encode_answer(Status::NotFound, false, 0, version).as_bytes().to_vec();
    // An earlier leader may not know the server yet. Its `NotFound` does not mean that the server
    // was declared dead.
    assert_eq!(tell(&mut agent, 0, &unknown(6)), (Ok(false), true));
    assert_eq!(tell(&mut agent, 1_000, &assignment(9)), (Ok(true), false));
    assert_eq!(agent.assigned_version(), 9);
    assert_eq!(
        tell(&mut agent, 2_000, &assignment(8)),
        (Ok(false), true),
        "no table, no order, no lease"
    );
    assert_eq!(agent.assigned_version(), 9);
    assert_eq!(tell(&mut agent, 3_000, &assignment(9)).0, Ok(true));
    assert_eq!(tell(&mut agent, 4_000, &unknown(9)).0, Err(SessionEnd::Dead(3)));
}
