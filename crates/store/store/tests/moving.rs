//! A tablet that moves from one master to another while somebody works on it, in virtual time.

use crate::common::ended;
use proptest::prelude::*;
use sprat_disk::{MemControl, MemDisk};
use sprat_log::Config as LogConfig;
use sprat_net::{Driver as _, Hub, HubOptions, Mem, Nanos};
use sprat_rpc::{Config, Endpoint, SessionId};
use sprat_store::backup::Durability;
use sprat_store::master::{Assigned, Command, Master, Outbox, Recovered, inbox};
use sprat_store::node::{Node, Service as _};
use sprat_store::replication::Member;
use sprat_store::restart::{Tables, open, set_up};
use sprat_wire::once::OperationId;
use sprat_wire::op::{Answer, Condition, MoveOrder, Request, Status};
use sprat_wire::tablet::{Range, Tablet, position};
use sprat_wire::value::{IncrementError, NUMBER_BYTES};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use zerocopy::IntoBytes as _;

use ended::Ended;

const TABLE: u32 = 1;
const SEED: u64 = 77;
const STEP: Duration = Duration::from_micros(50);
const MANY_TURNS: usize = 40_000;

/// Keys, and how many of them there are before anything moves.
const KEYS: u16 = 600;
const VALUE: usize = 300;

fn address(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 1).into()
}

struct Server {
    node: Node<Mem, Master<MemDisk>>,
    outbox: Outbox,
    disk: MemControl,
    session: SessionId,
}

type Told = (Status, u64, Vec<u8>);

/// Two servers, and who works with them.
struct World {
    hub: Hub,
    servers: [Server; 2],
    driver: Mem,
    endpoint: Endpoint<()>,
    ended: Ended,
    now: Nanos,
    version: u64,
}

impl World {
    fn new() -> Self {
        let hub = Hub::new(HubOptions { mtu: 9000, reliable: true });
        let mut driver = hub.port(address(9)).expect("free");
        let mut endpoint = Endpoint::new(&Config { slots: 64, ..Config::default() }, 9);
        let mut server = |last: u8| {
            let config =
                LogConfig { seed: SEED, ..LogConfig::new(8 << 20, sprat_log::Durability::Tracked) };
            let (config, options) =
                set_up(config, 64 << 20, (1, 1), Durability::Buffered).expect("enough disk");
            let disk = MemControl::new(last.into());
            let (log, backup, _) =
                open(disk.open().expect("a disk"), &config, &options, &Tables::served(&[TABLE]))
                    .expect("it is new");
            let (outbox, inbox) = inbox();
            let master = Master::new(log, Some(backup), inbox);
            let node = Node::new(
                hub.port(address(last)).expect("free"),
                master,
                &Config::default(),
                last.into(),
            );
            let session = endpoint.connect(Nanos(0), address(last), driver.tx()).expect("few");
            Server { node, outbox, disk, session }
        };
        let servers = [server(1), server(2)];
        Self { hub, servers, driver, endpoint, ended: Ended::default(), now: Nanos(0), version: 0 }
    }

    /// Tells both what they have now, and what moves from the first to the second.
    fn assign(&mut self, tablets: [Vec<Tablet>; 2], moves: &[MoveOrder]) {
        self.version += 1;
        let members =
            [1, 2].map(|last| Member { server: last.into(), address: address(last), rack: 0 });
        for (at, tablets) in tablets.into_iter().enumerate() {
            let of = |is: bool| if is { moves.to_vec() } else { Vec::new() };
            let (leaving, arriving) = (of(at == 0), of(at == 1));
            let (version, members) = (self.version, members.to_vec());
            let assigned =
                Assigned { version, tablets, members, leaving, arriving, ..Assigned::default() };
            assert!(self.servers[at].outbox.send(Command::Assign(Box::new(assigned))));
        }
    }

    fn turn(&mut self) {
        self.now = self.now + STEP;
        let now = self.now;
        self.hub.deliver_until(now);
        for server in &mut self.servers {
            server.disk.set_now(now.0);
            server.node.turn(now).expect("a network in memory");
            server.node.service_mut().work_idle();
        }
        self.hub.deliver_until(now);
        let Self { driver, endpoint, ended, .. } = self;
        driver
            .receive(&mut |tx, from, frame| endpoint.receive(now, from, frame, ended, tx))
            .expect("memory");
        endpoint.poll(now, ended, driver.tx());
        endpoint.flush(driver.tx());
    }

    /// Asks a server, and waits as long as it takes; what it is to do meanwhile is done when a
    /// server puts it off.
    fn ask(
        &mut self,
        server: usize,
        request: &Request<'_>,
        id: Option<OperationId>,
        mut meanwhile: impl FnMut(&mut Self),
    ) -> Told {
        let (header, key, value) = request.parts();
        let header = if id.is_some() { header.with_id() } else { header };
        let id = id.map(|id| id.bytes().to_vec()).unwrap_or_default();
        let parts = [header.as_bytes(), &id, key, value];
        let deadline = self.now + Duration::from_secs(3600);
        let session = self.servers[server].session;
        let call = self
            .endpoint
            .call(self.now, session, &parts, deadline, self.driver.tx())
            .expect("one at a time");
        for _ in 0..MANY_TURNS {
            self.turn();
            meanwhile(self);
            if let Some(result) = self.ended.results.remove(&call) {
                let bytes = result.expect("both live");
                let answer = Answer::parse(&bytes).expect("an answer");
                return (answer.status, answer.number, answer.body.to_vec());
            }
        }
        panic!("no answer: {} / {}", self.describe(0), self.describe(1));
    }

    fn describe(&self, server: usize) -> String {
        self.servers[server].node.service().describe()
    }
}

/// What is asked of a key.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u16, u8),
    Remove(u16),
    Add(u16),
    /// Time passes.
    Turns(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..KEYS, any::<u8>()).prop_map(|(key, value)| Step::Write(key, value)),
        4 => (0..KEYS).prop_map(Step::Remove),
        2 => (0..40_u16).prop_map(|key| Step::Add(KEYS + key)),
        2 => (1..20_u8).prop_map(Step::Turns),
    ]
}

/// What somebody who works knows.
struct Work {
    world: World,
    /// Keys and their values; versions that were told, of what is gone too.
    objects: BTreeMap<Vec<u8>, Vec<u8>>,
    versions: BTreeMap<Vec<u8>, u64>,
    /// Operations that have an id, and what was answered.
    done: Vec<(Step, OperationId, Told)>,
    order: MoveOrder,
    /// What the second server has told.
    told: Option<Recovered>,
    /// It was handed over.
    is_over: bool,
}

impl Work {
    /// The server that has a key now.
    fn at(&self, key: &[u8]) -> usize {
        usize::from(self.is_over && self.order.tablet.range.contains(position(SEED, TABLE, key)))
    }

    /// Does as the coordinator would.
    fn coordinate(
        world: &mut World,
        told: &mut Option<Recovered>,
        is_over: &mut bool,
        order: MoveOrder,
    ) {
        *told = told.take().or_else(|| world.servers[1].outbox.take_recovered());
        if told.is_some() && !*is_over {
            *is_over = true;
            let left = Range::ALL
                .without([order.tablet.range])
                .into_iter()
                .map(|range| Tablet { table: TABLE, range });
            world.assign([left.collect(), vec![order.tablet]], &[]);
        }
    }

    fn ask(&mut self, step: Step, id: Option<OperationId>) -> Told {
        let (key, value) = match step {
            Step::Write(key, value) => (key, vec![value; VALUE]),
            Step::Remove(key) | Step::Add(key) => (key, Vec::new()),
            Step::Turns(_) => unreachable!("nothing is asked"),
        };
        let key = key.to_le_bytes();
        let request = match step {
            Step::Write(..) => Request::Write {
                table: TABLE,
                key: &key,
                value: &value,
                condition: Condition::None,
            },
            Step::Remove(_) => {
                Request::Remove { table: TABLE, key: &key, condition: Condition::None }
            }
            _ => Request::IncrementI64 { table: TABLE, key: &key, delta: 1 },
        };
        loop {
            let at = self.at(&key);
            let Self { world, told, is_over, order, .. } = self;
            let order = *order;
            let answer =
                world.ask(at, &request, id, |world| Self::coordinate(world, told, is_over, order));
            // It went elsewhere while this one waited.
            if answer.0 != Status::UnknownTable || self.at(&key) == at {
                return answer;
            }
        }
    }

    fn step(&mut self, step: Step) {
        if let Step::Turns(turns) = step {
            for _ in 0..turns {
                self.world.turn();
                let Self { world, told, is_over, order, .. } = self;
                Self::coordinate(world, told, is_over, *order);
            }
            return;
        }
        let id = OperationId {
            client: 5,
            slot: u16::try_from(self.done.len()).expect("few"),
            sequence: 1,
            resent: false,
        };
        let answer = self.ask(step, Some(id));
        self.done.push((step, id, answer.clone()));
        let (status, version, body) = answer;
        let key = match step {
            Step::Write(key, _) | Step::Remove(key) | Step::Add(key) => key.to_le_bytes().to_vec(),
            Step::Turns(_) => unreachable!("above"),
        };
        let was = match step {
            Step::Write(_, value) => self.objects.insert(key.clone(), vec![value; VALUE]),
            Step::Add(_) => {
                let before = self
                    .objects
                    .get(&key)
                    .map_or(0, |value| i64::from_le_bytes(value[..].try_into().expect("8")));
                assert_eq!(body, (before + 1).to_le_bytes(), "it counts once");
                self.objects.insert(key.clone(), body)
            }
            _ => self.objects.remove(&key),
        };
        match step {
            Step::Remove(_) => {
                assert_eq!(status, if was.is_some() { Status::Ok } else { Status::NotFound })
            }
            _ => {
                assert_eq!(status, Status::Ok);
                let before = self.versions.insert(key, version);
                assert!(
                    before.is_none_or(|before| before < version),
                    "{step:?}: {before:?}, then {version}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 60, ..ProptestConfig::default() })]
    #[test]
    fn nobody_notices_that_a_tablet_moves(
        before in prop::collection::vec(step(), 0..40), during in prop::collection::vec(step(), 60..160),
        parts in 1..4_u64, part in 0..4_usize,
    ) {
        let mut world = World::new();
        world.assign([vec![Tablet::whole(TABLE)], Vec::new()], &[]);
        let ranges = Range::ALL.parts(parts);
        let tablet = Tablet { table: TABLE, range: ranges[part % ranges.len()] };
        let order = MoveOrder { id: 3, tablet, from: 1, to: 2 };
        let (objects, versions) = (BTreeMap::new(), BTreeMap::new());
        let mut work = Work { world, objects, versions, done: Vec::new(), order, told: None, is_over: false };
        for key in 0..KEYS {
            let key = key.to_le_bytes();
            let request = Request::Write { table: TABLE, key: &key, value: &[1; VALUE], condition: Condition::None };
            let (status, version, _) = work.world.ask(0, &request, None, |_| {});
            prop_assert_eq!(status, Status::Ok);
            work.objects.insert(key.to_vec(), vec![1; VALUE]);
            work.versions.insert(key.to_vec(), version);
        }
        before.into_iter().for_each(|step| work.step(step));
        // One of which only the versions to come tell that it was ever there.
        (0..9).for_each(|value| work.step(Step::Write(7, value)));
        work.step(Step::Remove(7));
        work.world.assign([vec![Tablet::whole(TABLE)], Vec::new()], &[order]);
        let all = during.len();
        let mut while_moving = 0;
        for step in during {
            while_moving += usize::from(!work.is_over);
            work.step(step);
        }
        prop_assert!(while_moving > 5, "{while_moving} of {all} while it moved");
        for _ in 0..MANY_TURNS {
            if work.is_over {
                break;
            }
            work.step(Step::Turns(1));
        }
        prop_assert!(work.is_over, "{}", work.world.describe(1));
        let told = work.told.clone().expect("it is over");
        prop_assert_eq!((told.order, told.failure.as_str()), (3, ""));
        work.step(Step::Turns(20));
        // Whatever was done is known where it went, and not done again. (Of what changed nothing nothing is kept.)
        for (step, id, answer) in work.done.clone() {
            if answer.0 != Status::Ok {
                continue;
            }
            prop_assert_eq!(work.ask(step, Some(OperationId { resent: true, ..id })), answer, "{:?} {:?}", step, id);
        }
        for key in 0..KEYS + 40 {
            let key = key.to_le_bytes();
            let request = Request::Read { table: TABLE, key: &key };
            let (status, _, value) = work.world.ask(work.at(&key), &request, None, |_| {});
            let found = (status == Status::Ok).then_some(value);
            prop_assert_eq!(found.as_ref(), work.objects.get(&key[..]), "{:?}", key);
            let other = work.world.ask(1 - work.at(&key), &request, None, |_| {});
            prop_assert_eq!(other.0, Status::UnknownTable, "one of them has it");
            if work.objects.get(&key[..]).is_some_and(|value| value.len() == NUMBER_BYTES) {
                let double = Request::IncrementF64 { table: TABLE, key: &key, delta: 1.0 };
                let (status, why, _) = work.world.ask(work.at(&key), &double, None, |_| {});
                let refused = (status, IncrementError::of_code(why));
                prop_assert_eq!(refused, (Status::NotANumber, IncrementError::IsInteger), "its type came along");
            }
        }
        // Each counts what it has, also without the table's beginning. What has left may not yet be
        // freed.
        let here = work.objects.keys().filter(|key| work.at(key) == 1).count() as u64;
        let (status, objects, _) = work.world.ask(1, &Request::TableStats { table: TABLE }, None, |_| {});
        prop_assert_eq!((status, objects), (Status::Ok, here));
        // Versions go on behind what is gone.
        for key in 0..KEYS {
            work.step(Step::Write(key, 9));
        }
    }
}
