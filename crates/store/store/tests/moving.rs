//! A tablet that moves from one master to another while a client works on it, in virtual time.

use crate::common::ended;
use proptest::prelude::*;
use sprat_disk::{MemControl, MemDisk};
use sprat_log::Config as LogConfig;
use sprat_net::{Driver as _, Hub, HubOptions, Mem, Nanos};
use sprat_rpc::{Config, Endpoint, SessionId};
use sprat_store::backup::Durability;
use sprat_store::master::{Command, Master, MasterAssignment, Outbox, RecoveryResult, inbox};
use sprat_store::node::{Node, Service as _};
use sprat_store::replication::BackupServer;
use sprat_store::restart::{LogTables, OpenedLog, configure, open};
use sprat_wire::elements::{CollectionId, CollectionKind};
use sprat_wire::once::OperationId;
use sprat_wire::op::{Answer, Condition, MoveOrder, Request, Status};
use sprat_wire::tablet::{Range, Tablet, position};
use sprat_wire::transaction::{Decision, OperationState, Participant, Plan, TransactionAction};
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

/// Number of keys that exist before anything moves.
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

type Reply = (Status, u64, Vec<u8>);

/// Two servers, and a client of both.
struct World {
    hub: Hub,
    servers: [Server; 2],
    driver: Mem,
    endpoint: Endpoint<()>,
    ended: Ended,
    now: Nanos,
    version: u64,
    /// The tables whose objects give way when memory is full.
    evicting: Vec<u32>,
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
                configure(config, 64 << 20, (1, 1), Durability::Buffered).expect("enough disk");
            let disk = MemControl::new(last.into());
            let OpenedLog { log, backup, .. } = open(
                disk.open().expect("a disk"),
                &config,
                &options,
                &LogTables::served(&[TABLE]),
                0,
            )
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
        Self {
            hub,
            servers,
            driver,
            endpoint,
            ended: Ended::default(),
            now: Nanos(0),
            version: 0,
            evicting: Vec::new(),
        }
    }

    /// Assigns tablets to both servers, and moves from the first to the second.
    fn assign(&mut self, tablets: [Vec<Tablet>; 2], moves: &[MoveOrder]) {
        self.version += 1;
        let members = [1, 2].map(|last| BackupServer {
            server: last.into(),
            address: address(last),
            rack: 0,
        });
        for (at, tablets) in tablets.into_iter().enumerate() {
            let of = |is: bool| if is { moves.to_vec() } else { Vec::new() };
            let (leaving, arriving) = (of(at == 0), of(at == 1));
            let (version, members) = (self.version, members.to_vec());
            let assigned = MasterAssignment {
                version,
                tablets,
                members,
                leaving,
                arriving,
                evicting: self.evicting.clone(),
                ..MasterAssignment::default()
            };
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

    /// Sends a request to a server, and waits for the reply; calls `meanwhile` after each
    /// iteration.
    fn ask(
        &mut self,
        server: usize,
        request: &Request<'_>,
        id: Option<OperationId>,
        mut meanwhile: impl FnMut(&mut Self),
    ) -> Reply {
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

/// An operation on a key, or a pause.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u16, u8),
    Remove(u16),
    Add(u16),
    /// Loop iterations without an operation.
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

/// The client's state: what it has written, and the replies that it got.
struct Client {
    world: World,
    /// The value of each key, as the client has written it.
    objects: BTreeMap<Vec<u8>, Vec<u8>>,
    versions: BTreeMap<Vec<u8>, u64>,
    /// Operations with ids, and their answers.
    done: Vec<(Step, OperationId, Reply)>,
    order: MoveOrder,
    /// The result that the second server has reported.
    result: Option<RecoveryResult>,
    /// Whether the tablet was handed over.
    is_over: bool,
}

impl Client {
    /// Returns the index of the server that has a key now.
    fn at(&self, key: &[u8]) -> usize {
        usize::from(self.is_over && self.order.tablet.range.contains(position(SEED, TABLE, key)))
    }

    /// Plays the coordinator: hands the tablet over when the second server has reported that it has
    /// everything.
    fn coordinate(
        world: &mut World,
        result: &mut Option<RecoveryResult>,
        is_over: &mut bool,
        order: MoveOrder,
    ) {
        *result = result.take().or_else(|| world.servers[1].outbox.take_recovery_result());
        if let Some(RecoveryResult { failure, .. }) = result
            && !*is_over
        {
            assert_eq!(failure, "", "the tablet stays where it is");
            *is_over = true;
            let left = Range::ALL
                .without([order.tablet.range])
                .into_iter()
                .map(|range| Tablet { table: TABLE, range });
            world.assign([left.collect(), vec![order.tablet]], &[]);
        }
    }

    /// Plays the coordinator until the tablet has moved.
    fn finish(world: &mut World, order: MoveOrder) {
        let (mut result, mut is_over) = (None, false);
        for _ in 0..MANY_TURNS {
            world.turn();
            Self::coordinate(world, &mut result, &mut is_over, order);
            if is_over {
                return;
            }
        }
        panic!("it does not move: {}", world.describe(1));
    }

    fn ask(&mut self, step: Step, id: Option<OperationId>) -> Reply {
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
                ttl: None,
            },
            Step::Remove(_) => {
                Request::Remove { table: TABLE, key: &key, condition: Condition::None }
            }
            _ => Request::IncrementI64 { table: TABLE, key: &key, delta: 1 },
        };
        loop {
            let at = self.at(&key);
            let Self { world, result, is_over, order, .. } = self;
            let order = *order;
            let answer = world
                .ask(at, &request, id, |world| Self::coordinate(world, result, is_over, order));
            // The tablet was handed over while this request waited.
            if answer.0 != Status::UnknownTable || self.at(&key) == at {
                return answer;
            }
        }
    }

    fn step(&mut self, step: Step) {
        if let Step::Turns(turns) = step {
            for _ in 0..turns {
                self.world.turn();
                let Self { world, result, is_over, order, .. } = self;
                Self::coordinate(world, result, is_over, *order);
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
    #![proptest_config(ProptestConfig {
        cases: 24,
        max_shrink_iters: 60,
        ..ProptestConfig::default()
    })]
    #[test]
    fn moving_tablets_are_invisible_to_clients(
        before in prop::collection::vec(step(), 0..40),
        during in prop::collection::vec(step(), 60..160),
        parts in 1..4_u64, part in 0..4_usize,
    ) {
        let mut world = World::new();
        world.assign([vec![Tablet::whole(TABLE)], Vec::new()], &[]);
        let ranges = Range::ALL.parts(parts);
        let tablet = Tablet { table: TABLE, range: ranges[part % ranges.len()] };
        let order = MoveOrder { id: 3, tablet, from: 1, to: 2 };
        let (objects, versions) = (BTreeMap::new(), BTreeMap::new());
        let mut client = Client {
            world,
            objects,
            versions,
            done: Vec::new(),
            order,
            result: None,
            is_over: false,
        };
        for key in 0..KEYS {
            let key = key.to_le_bytes();
            let request = Request::Write {
                table: TABLE,
                key: &key,
                value: &[1; VALUE],
                condition: Condition::None, ttl: None
            };
            let (status, version, _) = client.world.ask(0, &request, None, |_| {});
            prop_assert_eq!(status, Status::Ok);
            client.objects.insert(key.to_vec(), vec![1; VALUE]);
            client.versions.insert(key.to_vec(), version);
        }
        before.into_iter().for_each(|step| client.step(step));
        // Writes key 7 several times and removes it: only the version of a later write shows that
        // the key existed.
        (0..9).for_each(|value| client.step(Step::Write(7, value)));
        client.step(Step::Remove(7));
        client.world.assign([vec![Tablet::whole(TABLE)], Vec::new()], &[order]);
        let all = during.len();
        let mut while_moving = 0;
        for step in during {
            while_moving += usize::from(!client.is_over);
            client.step(step);
        }
        prop_assert!(while_moving > 5, "{while_moving} of {all} while it moved");
        for _ in 0..MANY_TURNS {
            if client.is_over {
                break;
            }
            client.step(Step::Turns(1));
        }
        prop_assert!(client.is_over, "{}", client.world.describe(1));
        let result = client.result.clone().expect("it is over");
        prop_assert_eq!((result.order, result.failure.as_str()), (3, ""));
        client.step(Step::Turns(20));
        // The new server knows every operation that was executed, and does not execute it again.
        // (Operations that changed nothing leave no completion.)
        for (step, id, answer) in client.done.clone() {
            if answer.0 != Status::Ok {
                continue;
            }
            let resent = client.ask(step, Some(OperationId { resent: true, ..id }));
            prop_assert_eq!(resent, answer, "{:?} {:?}", step, id);
        }
        for key in 0..KEYS + 40 {
            let key = key.to_le_bytes();
            let request = Request::Read { table: TABLE, key: &key };
            let (status, _, value) = client.world.ask(client.at(&key), &request, None, |_| {});
            let found = (status == Status::Ok).then_some(value);
            prop_assert_eq!(found.as_ref(), client.objects.get(&key[..]), "{:?}", key);
            let other = client.world.ask(1 - client.at(&key), &request, None, |_| {});
            prop_assert_eq!(other.0, Status::UnknownTable, "only one server has the key");
            if client.objects.get(&key[..]).is_some_and(|value| value.len() == NUMBER_BYTES) {
                let double = Request::IncrementF64 { table: TABLE, key: &key, delta: 1.0 };
                let (status, why, _) = client.world.ask(client.at(&key), &double, None, |_| {});
                let refused = (status, IncrementError::of_code(why));
                let expected = (Status::NotANumber, IncrementError::IsInteger);
                prop_assert_eq!(refused, expected, "the value kept its type");
            }
        }
        // Each server counts its own objects, even if the table's beginning is on another server.
        // The first server possibly still has the objects that have moved away.
        let here = client.objects.keys().filter(|key| client.at(key) == 1).count() as u64;
        let request = Request::TableStats { table: TABLE };
        let (status, objects, _) = client.world.ask(1, &request, None, |_| {});
        prop_assert_eq!((status, objects), (Status::Ok, here));
        // The versions of new objects are above those of removed ones.
        for key in 0..KEYS {
            client.step(Step::Write(key, 9));
        }
    }
}

/// One operation is prepared before the move begins, one while the tablet moves, and one is decided
/// meanwhile.
#[test]
fn prepared_operations_move_with_their_tablet() {
    let mut world = World::new();
    world.assign([vec![Tablet::whole(TABLE)], Vec::new()], &[]);
    let participant = |key: &[u8], slot| Participant {
        table: TABLE,
        position: position(SEED, TABLE, key),
        id: OperationId { client: 6, slot, sequence: 1, resent: false },
    };
    let prepare = |world: &mut World, key: &[u8], slot| {
        let participant = participant(key, slot);
        let plan = Plan::encode(TransactionAction::Write(b"new", None), &[participant]);
        let plan = Plan::parse(&plan).expect("valid");
        let request = Request::Prepare { table: TABLE, key, condition: Condition::Absent, plan };
        assert_eq!(world.ask(0, &request, Some(participant.id), |_| {}).0, Status::Ok);
    };
    let decide = |world: &mut World, server, key: &[u8], slot, decision| {
        let Participant { table, position, id } = participant(key, slot);
        let request = Request::Decide { table, position, id: &id.bytes(), decision };
        let (status, state, _) = world.ask(server, &request, None, |_| {});
        assert_eq!(status, Status::Ok);
        OperationState::of(state)
    };
    prepare(&mut world, b"before", 0);
    prepare(&mut world, b"decided", 1);
    let order = MoveOrder { id: 3, tablet: Tablet::whole(TABLE), from: 1, to: 2 };
    world.assign([vec![Tablet::whole(TABLE)], Vec::new()], &[order]);
    prepare(&mut world, b"during", 2);
    let committed = decide(&mut world, 0, b"decided", 1, Decision::Commit);
    assert_eq!(committed, Some(OperationState::Committed));
    Client::finish(&mut world, order);
    for (key, slot) in [(&b"before"[..], 0), (b"during", 2)] {
        let state = decide(&mut world, 1, key, slot, Decision::Vote);
        assert_eq!(state, Some(OperationState::Prepared), "slot {slot}");
        let state = decide(&mut world, 1, key, slot, Decision::Commit);
        assert_eq!(state, Some(OperationState::Committed));
    }
    let state = decide(&mut world, 1, b"decided", 1, Decision::Vote);
    assert_eq!(state, Some(OperationState::Committed));
    for key in [&b"before"[..], b"decided", b"during"] {
        let read = world.ask(1, &Request::Read { table: TABLE, key }, None, |_| {});
        assert_eq!((read.0, &read.2[..]), (Status::Ok, &b"new"[..]));
    }
}

/// Elements of collections lie at the first position of a place. Half of the table moves, while
/// some elements are written.
#[test]
fn elements_of_collections_move_with_their_tablet() {
    let mut world = World::new();
    let [lower, upper] =
        [0, 1].map(|half| Tablet { table: TABLE, range: Range::ALL.parts(2)[half] });
    world.assign([vec![lower, upper], Vec::new()], &[]);
    let element = |place: u64, name: u64| {
        let id = CollectionId::new(CollectionKind::Hash, place << 48, 0).expect("a small number");
        id.element(&name.to_le_bytes())
    };
    let put = |world: &mut World, place: u64, name: u64| {
        let (key, value) = (element(place, name), &[7; VALUE][..]);
        let (table, value_type, version, ttl) = (TABLE, None, 1, None);
        let restore = Request::Restore { table, key: &key, value, value_type, version, ttl };
        world.ask(0, &restore, None, |_| {}).0
    };
    for name in 0..300 {
        for place in [0, 0x7fff, 0x8000] {
            assert_eq!(put(&mut world, place, name), Status::Ok);
        }
    }
    let order = MoveOrder { id: 3, tablet: lower, from: 1, to: 2 };
    world.assign([vec![lower, upper], Vec::new()], &[order]);
    for name in 300..320 {
        assert_eq!(put(&mut world, 0x7fff, name), Status::Ok);
    }
    Client::finish(&mut world, order);
    let (status, _, counters) = world.ask(1, &Request::ServerStats, None, |_| {});
    assert_eq!(status, Status::Ok);
    let name = b"collection_elements";
    let at = counters.windows(name.len()).position(|part| part == name).expect("a counter");
    let count = counters[at + name.len()..].first_chunk().expect("a number");
    assert_eq!(u64::from_le_bytes(*count), 300 + 320);
}

/// Objects are evicted at the old server that the new one has got already. A client that found them
/// missing must not find them again.
#[test]
fn what_is_evicted_while_its_tablet_moves_stays_missing() {
    const OBJECTS: u32 = 565;
    let mut world = World::new();
    world.evicting = vec![TABLE];
    world.assign([vec![Tablet::whole(TABLE)], Vec::new()], &[]);
    let order = MoveOrder { id: 3, tablet: Tablet::whole(TABLE), from: 1, to: 2 };
    let (mut result, mut is_over) = (None, false);
    // Returns the status, and whether the tablet has moved.
    let mut ask = |world: &mut World, request: &Request<'_>| loop {
        let at = usize::from(is_over);
        let answer = world.ask(at, request, None, |world| {
            Client::coordinate(world, &mut result, &mut is_over, order);
        });
        // The tablet was handed over while this request waited.
        if answer.0 != Status::UnknownTable || usize::from(is_over) == at {
            break (answer.0, is_over);
        }
    };
    let value = vec![7; 10_000];
    let condition = Condition::None;
    let mut missing = Vec::new();
    let mut number = 0_u32;
    loop {
        if number == OBJECTS {
            world.assign([vec![Tablet::whole(TABLE)], Vec::new()], &[order]);
        }
        let key = number.to_le_bytes();
        let write = Request::Write { table: TABLE, key: &key, value: &value, condition, ttl: None };
        let (status, has_moved) = ask(&mut world, &write);
        assert_eq!(status, Status::Ok);
        if has_moved {
            break;
        }
        for turn in 0..8 {
            let key = ((number * 11 + turn * 97) % (number + 1)).to_le_bytes();
            if ask(&mut world, &Request::Read { table: TABLE, key: &key }).0 == Status::NotFound {
                missing.push(key);
            }
        }
        // Changes must not come faster than they can be sent.
        (0..20).for_each(|_| world.turn());
        number += 1;
        assert!(number < 100 * OBJECTS, "{}", world.describe(1));
    }
    assert!(missing.len() > 10, "{} of {number} objects were missing", missing.len());
    for key in missing {
        let read = Request::Read { table: TABLE, key: &key };
        assert_eq!(ask(&mut world, &read), (Status::NotFound, true), "{key:?}");
    }
}
