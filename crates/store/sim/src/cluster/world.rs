//! The loop of a cluster: time, network, coordinators, servers, clients and faults, in a fixed
//! order.

mod phases;

use self::phases::Phase;
use super::backup::{BackupClient, BackupContext};
use super::clock::Clock;
use super::coordinator::{SimCoordinator, locator};
use super::etcd::{Etcd, Rows, Shared as Register};
use super::faults::{self, Fault};
use super::server::Server;
use super::settings::Settings;
use super::watch::WatchClient;
use crate::check;
use crate::client::{Client, ClientContext, TRANSPORT};
use crate::faults::{NetworkConditions, policy};
use crate::history::{History, Response, Value};
use crate::random::Random;
use crate::report::{Failure, Summary, run_seed};
use crate::server::HASH_SEED;
use crate::trace::Trace;
use sprat_net::{AnyDriver, Hub, Locators, Nanos};
use sprat_store::coordinator::{Coordinator, LEASE};
use sprat_wire::index::new_index;
use sprat_wire::op::{MoveOrder, ReplicaId, Request, TableOptions, TableRecord};
use sprat_wire::tablet::{Range, Tablet};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// The shortest time that one iteration of the loop takes.
const STEP: Duration = Duration::from_micros(1);

/// Virtual time after which a history counts as stuck, in addition to twice the span of its work.
const STUCK: Duration = Duration::from_secs(180);

/// Bound of the random interval at which the clients' tablet maps are refreshed if a coordinator
/// leads, in nanoseconds.
const MAP_AGE: u64 = 300_000_000;

/// When each coordinator, server and client has something to do even if nothing arrives, as
/// computed in its last iteration. Computing all these times at each step would be most of the cost
/// of a history.
#[derive(Default)]
struct Wakes {
    coordinators: Vec<Nanos>,
    servers: Vec<Nanos>,
    clients: Vec<Nanos>,
}

/// A cluster, its clients, and the faults that hit them.
pub struct World {
    settings: Settings,
    trace: Rc<RefCell<Trace>>,
    random: Random,
    now: Nanos,
    hub: Hub,
    wakes: Wakes,
    weather: Rc<RefCell<NetworkConditions>>,
    etcd: Register,
    coordinators: Vec<SimCoordinator>,
    /// Version and term of the map that were recorded last.
    version: u64,
    term: u64,
    moves: Vec<MoveOrder>,
    servers: Vec<Server>,
    clients: Vec<Client>,
    /// The administrator's client, which creates tables and makes other changes.
    admin: sprat_client::Core,
    created_tables: usize,
    is_busy: bool,
    /// Number of names that tables have had.
    table_names: usize,
    /// The tables as clients know them; `refresh_at` is when this list is refreshed.
    tables: Vec<TableRecord>,
    edition: u64,
    refresh_at: Nanos,
    backup: BackupClient,
    watch: WatchClient,
    faults: VecDeque<(Nanos, Fault)>,
    cuts: Vec<(Nanos, Vec<(SocketAddr, SocketAddr)>)>,
    history: History,
    nonsense: Option<String>,
    /// When the only coordinator was down and its last leases had ended.
    alone: Vec<(Nanos, Nanos)>,
    phase: Phase,
    /// The server that was lost for good after all segments had their replicas, if one was.
    lost: Option<usize>,
    summary: Summary,
}

/// Runs the history of a seed and checks it.
///
/// # Errors
/// [`Failure`] describes what is wrong with the history.
pub fn run(seed: u64) -> Result<(Summary, Trace), Box<Failure>> {
    run_seed(seed, true, None, |trace| World::new(seed, None, trace).finish())
}

/// Runs and checks a history with `operations` operations.
///
/// # Errors
/// [`Failure`] describes what is wrong with the history.
pub fn run_long(seed: u64, operations: u64) -> Result<(Summary, Trace), Box<Failure>> {
    run_seed(seed, true, Some(operations), |trace| {
        World::new(seed, Some(operations), trace).finish()
    })
}

/// The server whose disk flips bits. It flips them only in replicas that another server has too,
/// since logs survive only the loss of one replica.
const FLIPS: usize = 0;

/// Number of racks in histories in which servers are in racks.
const RACKS: usize = 2;

/// Numbers of tablets for new tables; zero means as many as there are servers.
const TABLETS: [u32; 4] = [0, 1, 7, 2];

/// Number of backups that are made one after the other. They take little, since each copies only
/// what the one before has not, and few of them cut the logs while a transaction is under way.
const BACKUPS: u32 = 5;

/// First ports: of the administrator, of the clients that make backups and watch a table, of
/// coordinators and their elections, of servers' nodes and their sessions, and of clients.
const ADMIN: u16 = 2;
const BACKUP: u16 = 3;
const WATCH: u16 = 4;
const COORDINATORS: u16 = 10;
const ELECTIONS: u16 = 20;
const NODES: u16 = 100;
const AGENTS: u16 = 200;
const CLIENTS: u16 = 300;

fn address(host: u16) -> SocketAddr {
    ([10, 0, 0, 1], host).into()
}

fn host_address(from: u16, index: usize) -> SocketAddr {
    address(from + u16::try_from(index).expect("few"))
}

impl World {
    /// Creates the world of a seed, with `operations` operations; if that is `None`, the seed
    /// decides how many.
    ///
    /// # Panics
    /// When the settings do not fit together.
    #[must_use]
    pub fn new(seed: u64, operations: Option<u64>, trace: Rc<RefCell<Trace>>) -> Self {
        let mut random = Random::new(seed);
        let settings = Settings::draw(&mut random).with_clocks(seed);
        let settings = match operations {
            Some(operations) => settings.lengthened(operations),
            None => settings,
        };
        trace.borrow_mut().note(Nanos(0), format_args!("seed {seed}: {settings:?}"));
        let weather = Rc::new(RefCell::new(NetworkConditions::new(&mut random, false)));
        let hub = Hub::new(settings.work.network);
        hub.set_policy(policy(&weather));
        let etcd = Etcd::shared(random.draw());
        let all: Vec<_> = (0..settings.coordinators)
            .map(|index| locator(host_address(COORDINATORS, index)).to_string())
            .collect();
        let coordinator: Locators = all.join(",").parse().expect("locators");
        let drift = i64::try_from(settings.drift).expect("small");
        let clock = |random: &mut Random| {
            let clock = Clock::new(drift * (i64::try_from(random.below(3)).expect("small") - 1));
            (clock, random.draw())
        };
        let new_coordinator = |index| {
            let addresses = (host_address(COORDINATORS, index), host_address(ELECTIONS, index));
            SimCoordinator::new(
                &hub,
                addresses,
                &etcd,
                settings.coordinators > 1,
                clock(&mut random),
            )
        };
        let coordinators = (0..settings.coordinators).map(new_coordinator).collect();
        let server = |index| {
            let addresses = (host_address(NODES, index), host_address(AGENTS, index));
            // In every other history servers are in racks.
            let rack = if seed.is_multiple_of(2) {
                String::new()
            } else {
                format!("rack-{}", index % RACKS)
            };
            Server::new(&settings, &hub, addresses, &coordinator, clock(&mut random)).in_rack(rack)
        };
        let servers = (0..settings.servers).map(server).collect();
        let client = |index| {
            let life = index as u64 + 1;
            Client::new(&hub, index, host_address(CLIENTS, index), life, &coordinator, &mut random)
        };
        let clients = (0..settings.work.clients).map(client).collect();
        let driver = AnyDriver::from(hub.port(address(ADMIN)).expect("a free port"));
        let admin = sprat_client::Core::with_drivers(
            vec![(TRANSPORT, driver)],
            &coordinator,
            random.draw(),
        );
        let faults = faults::plan(&settings, &mut random).into();
        let number = settings.work.clients;
        let seed = random.draw();
        let backup = BackupClient::new(&hub, number, address(BACKUP), &coordinator, seed);
        let number = number + 1;
        let watch = WatchClient::new(&hub, number, address(WATCH), &coordinator, &mut random);
        let mut history = History::default();
        history.clocks_differ = settings.is_beyond();
        Self {
            settings,
            trace,
            random,
            now: Nanos(0),
            hub,
            wakes: Wakes::default(),
            weather,
            etcd,
            coordinators,
            version: 0,
            term: 0,
            moves: Vec::new(),
            servers,
            clients,
            admin: admin.expect("the transport is there"),
            created_tables: 0,
            is_busy: false,
            table_names: 0,
            tables: Vec::new(),
            edition: 0,
            refresh_at: Nanos::NEVER,
            backup,
            watch,
            faults,
            cuts: Vec::new(),
            history,
            nonsense: None,
            alone: Vec::new(),
            phase: Phase::Begin,
            lost: None,
            summary: Summary { histories: 1, ..Summary::default() },
        }
    }

    /// Adds what a server has done to the summary, before its process ends.
    fn count(&mut self, index: usize) {
        let Some(node) = self.servers[index].node() else { return };
        let cleaner = node.service().master().log().stats().cleaner;
        self.summary.cleaned += cleaner.combined_segments + cleaner.compacted_segments;
        self.summary.healed += self.servers[index]
            .replicator()
            .map_or(0, |replicator| replicator.counts().re_replicated);
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.trace.borrow_mut().note(self.now, what);
    }

    /// Runs the history to its end, and checks the responses.
    ///
    /// # Errors
    /// Describes what is wrong.
    pub fn finish(mut self) -> Result<Summary, String> {
        self.recompute_wakes();
        while !self.iterate()? {
            self.advance()?;
        }
        (0..self.servers.len()).for_each(|index| self.count(index));
        self.summary.backups = self.backup.made;
        self.summary.reports = self.watch.changes;
        let checked = check::check(&self.history, HASH_SEED, self.settings.work.keys)
            .map_err(|wrong| wrong.to_string())?;
        let weather = self.weather.borrow();
        self.trace.borrow_mut().count(weather.digest);
        let operations = self.history.operations.iter();
        let answered = operations.filter(|operation| operation.response != Response::Unknown);
        let alone = answered.clone().filter(|operation| {
            let within = |&(from, to): &_| operation.began >= from && operation.ended <= to;
            self.alone.iter().any(within)
        });
        Ok(Summary {
            operations: self.history.operations.len() as u64,
            alone: alone.count() as u64,
            answered: answered.count() as u64,
            transactions: self.history.transactions.len() as u64,
            committed: self.history.committed(),
            pages: self.history.pages.len() as u64,
            frames: weather.frames,
            frames_lost: weather.lost,
            undecided: checked.undecided,
            time: self.now.since(Nanos(0)),
            ..self.summary
        })
    }

    /// Does what is due now. Returns whether the history has ended.
    fn iterate(&mut self) -> Result<bool, String> {
        self.hub.deliver_until(self.now);
        while self.phase == Phase::Work
            && self.faults.front().is_some_and(|&(at, _)| at <= self.now)
        {
            let (_, fault) = self.faults.pop_front().expect("just seen");
            self.inject(fault);
            self.recompute_wakes();
        }
        self.end_expired_faults();
        self.run_coordinators()?;
        for index in 0..self.servers.len() {
            let hears = self.hub.waiting(host_address(NODES, index))
                + self.hub.waiting(host_address(AGENTS, index))
                > 0;
            if self.wakes.servers[index] > self.now && !hears {
                continue;
            }
            let ended = self.servers[index].step(self.now, &self.settings);
            self.wakes.servers[index] = self.servers[index].wake();
            if let Some(gone) = ended {
                self.note(format_args!("server {index} ends: {gone}"));
                let up_at = self.now + self.random.micros(1_000, 100_000);
                self.servers[index].crash(up_at, true);
                self.wakes.servers[index] = up_at;
                self.summary.stops += 1;
            }
        }
        self.make_tables();
        self.refresh_tables();
        let Self { settings, history, tables, edition, nonsense, now, wakes, .. } = self;
        if let Some(first) = tables.first() {
            let mut trace = self.trace.borrow_mut();
            let work = &settings.work;
            let (trace, edition) = (&mut *trace, *edition);
            let mut shared = ClientContext {
                settings: work,
                history,
                trace,
                ballast: first,
                tables,
                edition,
                nonsense,
            };
            for (index, client) in self.clients.iter_mut().enumerate() {
                if wakes.clients[index] <= *now
                    || self.hub.waiting(host_address(CLIENTS, index)) > 0
                {
                    client.step(*now, &mut shared);
                    wakes.clients[index] = client.wake(work);
                }
            }
            // With clocks that drift further than leases allow, what a server shows may be stale.
            let watch = &mut self.watch;
            let is_due = watch.wake() <= *now
                || watch.lacks(edition)
                || self.hub.waiting(address(WATCH)) > 0;
            if is_due && !settings.is_beyond() {
                watch.step(*now, &mut shared);
            }
        }
        self.run_backup();
        match self.nonsense.take() {
            Some(nonsense) => Err(nonsense),
            None => {
                let phase = self.phase;
                let ends = self.next_phase()?;
                if self.phase != phase {
                    self.recompute_wakes();
                }
                Ok(ends)
            }
        }
    }

    /// Advances time to the next event.
    fn advance(&mut self) -> Result<(), String> {
        let Wakes { coordinators, servers, clients } = &self.wakes;
        let clients = clients.iter().filter(|_| !self.tables.is_empty());
        let fault = self.faults.front().filter(|_| self.phase == Phase::Work).map(|&(at, _)| at);
        let others = [self.hub.next_delivery(), fault, Some(self.refresh_at)];
        let admin = if self.is_busy { self.admin.next_deadline() } else { Nanos::NEVER };
        let next = servers
            .iter()
            .chain(clients)
            .chain(coordinators)
            .copied()
            .chain(others.into_iter().flatten())
            .chain(self.cuts.iter().map(|&(until, _)| until))
            .chain(self.servers.iter().filter_map(|server| server.disk_faulty_until))
            .fold(admin.min(self.backup.wake()).min(self.watch.wake()), Nanos::min);
        if next == Nanos::NEVER || next > Nanos(0) + STUCK + self.settings.work.span * 2 {
            self.describe();
            return Err(format!("no progress in phase {:?}", self.phase));
        }
        self.now = next.max(self.now + STEP);
        Ok(())
    }

    /// Records the state of all parts in the trace.
    fn describe(&self) {
        if let Some(service) = self.leading() {
            let catalog = service.catalog();
            self.note(format_args!("coordinator: version {}", catalog.version()));
            catalog
                .servers()
                .for_each(|(id, known)| self.note(format_args!("server {id}: {known:?}")));
            catalog.tables().for_each(|table| self.note(format_args!("{table:?}")));
            service.failures().for_each(|(id, why)| {
                self.note(format_args!("server {id} cannot be brought back: {why}"))
            });
            for (gone, _) in catalog.servers().filter(|(_, known)| known.dead) {
                for server in &self.servers {
                    self.note(format_args!(
                        "of {gone}, {} keeps {}",
                        server.id(),
                        server.describe_kept(gone)
                    ));
                }
            }
        }
        for (index, server) in self.servers.iter().enumerate() {
            self.note(format_args!("server {index}: {}", server.describe(self.now)));
        }
    }

    /// Returns the coordinator that leads. If several believe that they lead, returns the one with
    /// the latest term.
    fn leading(&self) -> Option<&Coordinator<Rows>> {
        self.coordinators
            .iter()
            .filter_map(|coordinator| coordinator.leading(self.now))
            .max_by_key(|service| service.term())
    }

    /// Runs the coordinators, and records their changes.
    fn run_coordinators(&mut self) -> Result<(), String> {
        self.etcd.borrow_mut().advance(self.now);
        for index in 0..self.coordinators.len() {
            if self.wakes.coordinators[index] <= self.now
                || self.hub.waiting(host_address(COORDINATORS, index)) > 0
                || self.hub.waiting(host_address(ELECTIONS, index)) > 0
            {
                self.coordinators[index].step(self.now)?;
                self.wakes.coordinators[index] = self.coordinators[index].wake();
            }
        }
        let Some(leading) = self.leading() else { return Ok(()) };
        let term = leading.term();
        if term > self.term {
            self.summary.takeovers += u64::from(self.term > 0);
            self.term = term;
        }
        let Some(leading) = self.leading() else { return Ok(()) };
        let catalog = leading.catalog();
        if catalog.version() > self.version {
            let version = catalog.version();
            let servers: Vec<_> = catalog
                .servers()
                .map(|(id, known)| {
                    format!("{id}{} from {}", if known.dead { " dead" } else { "" }, known.min_open)
                })
                .collect();
            let render = |table: TableRecord| {
                let at: Vec<_> = table
                    .ranges()
                    .map(|(range, tablet)| format!("{range} at {}", tablet.server))
                    .collect();
                format!("{}: {}", table.id, at.join(" "))
            };
            let tables: Vec<_> = catalog.tables().map(render).collect();
            let went = |order: &&MoveOrder| {
                let (Tablet { table, range }, to) = (order.tablet, order.to);
                let table = catalog.tables().find(|record| record.id == table);
                table.is_some_and(|table| table.at(range.first).server == to)
            };
            let moved = self
                .moves
                .iter()
                .filter(went)
                .filter(|order| catalog.find_move(order.id).is_none())
                .count();
            let under_way = catalog.moves().copied().collect();
            let moves: Vec<_> = catalog
                .moves()
                .map(|order| format!("{} from {} to {}", order.tablet, order.from, order.to))
                .collect();
            let (servers, tables, moves) =
                (servers.join(", "), tables.join(", "), moves.join(", "));
            self.note(format_args!(
                "map {version} of term {term}: servers {servers}; tables {tables}; moves {moves}"
            ));
            for server in self.servers.iter().filter_map(Server::recoveries) {
                self.note(format_args!("{server}"));
            }
            (self.version, self.moves) = (version, under_way);
            self.summary.moved += moved as u64;
        }
        Ok(())
    }

    /// Requests that the coordinator create a table, if one is missing and no other request is in
    /// progress.
    fn make_tables(&mut self) {
        let Self { admin, created_tables, is_busy, now, .. } = self;
        if *is_busy {
            let polled = admin.poll(*now, &mut |_, answer| {
                *is_busy = false;
                *created_tables += usize::from(
                    answer.is_ok_and(|answer| answer.status == sprat_wire::op::Status::Ok),
                );
            });
            polled.expect("a port in memory does not fail");
        }
        let enlisted = self.servers.iter().all(|server| server.id() != 0);
        let wants = match self.phase {
            Phase::Begin => enlisted && self.created_tables < self.settings.work.tables,
            // New tables take the place of dropped ones.
            Phase::Work => self.leading().is_some_and(|leading| {
                leading.catalog().tables().count() < self.settings.work.tables
            }),
            _ => false,
        };
        if wants && !self.is_busy {
            let name = format!("table {}", self.table_names);
            self.table_names += 1;
            self.send_to_coordinator(&Request::CreateTable {
                name: &name,
                options: TableOptions {
                    ordered: self.table_names.is_multiple_of(2),
                    ..TableOptions::of(TABLETS[self.table_names % TABLETS.len()])
                },
            });
        }
    }

    /// Runs the client that makes backups.
    fn run_backup(&mut self) {
        let Self { backup, history, trace, tables, settings, nonsense, now, .. } = self;
        if backup.wake() <= *now || self.hub.waiting(address(BACKUP)) > 0 {
            let (trace, keys) = (&mut *trace.borrow_mut(), settings.work.keys);
            let mut shared = BackupContext { history, trace, tables, keys, nonsense };
            backup.step(*now, &mut shared);
        }
    }

    /// Refreshes the clients' tablet maps once `refresh_at` is reached, if a coordinator leads.
    fn refresh_tables(&mut self) {
        if self.now < self.refresh_at {
            return;
        }
        self.refresh_at = self.now + Duration::from_nanos(self.random.below(MAP_AGE));
        if let Some(tables) = self.leading().map(|leading| leading.catalog().tables().collect()) {
            self.tables = tables;
            self.edition += 1;
        }
    }

    fn inject(&mut self, fault: Fault) {
        self.note(format_args!("{fault:?}"));
        match fault {
            Fault::Crash { server, down, process } => {
                self.count(server);
                self.servers[server].crash(self.now + down, process);
                self.summary.crashes += 1;
            }
            Fault::Pause(server, lasts) => {
                let server = &mut self.servers[server];
                server.paused_until = server.paused_until.max(self.now + lasts);
            }
            Fault::Cut { from, both, coordinator, lasts } => {
                let hosts =
                    |index: usize| [host_address(NODES, index), host_address(AGENTS, index)];
                let is_in = |index: &usize| from.contains(index);
                let ours: Vec<_> = (0..self.servers.len()).filter(is_in).flat_map(hosts).collect();
                let others = (0..self.servers.len()).filter(|index| !is_in(index)).flat_map(hosts);
                let posts = (0..self.coordinators.len())
                    .filter(|_| coordinator)
                    .map(|index| host_address(COORDINATORS, index));
                let others: Vec<_> = others.chain(posts).collect();
                let pairs =
                    ours.iter().flat_map(|&one| others.iter().map(move |&other| (one, other)));
                let pairs: Vec<_> = pairs
                    .flat_map(|(one, other)| [Some((one, other)), both.then_some((other, one))])
                    .flatten()
                    .collect();
                self.weather.borrow_mut().cut_links.extend(&pairs);
                self.cuts.push((self.now + lasts, pairs));
            }
            Fault::CrashCoordinator(index, down) => {
                let up_at = self.now + down;
                self.coordinators[index].crash(up_at);
                if self.coordinators.len() == 1 {
                    self.alone.push((self.now + LEASE, up_at));
                }
            }
            Fault::PauseCoordinator(index, lasts) => {
                let coordinator = &mut self.coordinators[index];
                coordinator.paused_until = coordinator.paused_until.max(self.now + lasts);
            }
            Fault::CutFromEtcd(which, lasts) => {
                for index in which {
                    let coordinator = &mut self.coordinators[index];
                    coordinator.cut_until = coordinator.cut_until.max(self.now + lasts);
                }
            }
            Fault::CutCoordinator { coordinator, servers, both, lasts } => {
                let ours =
                    [host_address(COORDINATORS, coordinator), host_address(ELECTIONS, coordinator)];
                let posts = (0..self.coordinators.len()).filter(|&index| index != coordinator);
                let posts = posts.flat_map(|index| {
                    [host_address(COORDINATORS, index), host_address(ELECTIONS, index)]
                });
                let others =
                    posts.chain(servers.into_iter().map(|index| host_address(AGENTS, index)));
                let pairs = others.flat_map(|other| ours.map(|one| (one, other)));
                let pairs = pairs
                    .flat_map(|(one, other)| [Some((one, other)), both.then_some((other, one))]);
                let pairs: Vec<_> = pairs.flatten().collect();
                self.weather.borrow_mut().cut_links.extend(&pairs);
                self.cuts.push((self.now + lasts, pairs));
            }
            Fault::Move { tablet, half, to } => {
                let Some((table, range)) = self.pick(tablet) else { return };
                let range =
                    half.and_then(|half| range.parts(2).get(half).copied()).unwrap_or(range);
                let to = self.servers[to].id();
                self.send_to_coordinator(&Request::MoveTablet { table, to, range: &range.into() });
            }
            Fault::FailDisk { server, after, how, lasts } => {
                self.servers[server].disk().fail(after, how);
                self.mark_faulty(server, lasts);
            }
            Fault::FillDisk(server, lasts) => {
                let disk = self.servers[server].disk();
                disk.set_capacity(disk.contents().len() as u64);
                self.mark_faulty(server, lasts);
            }
            Fault::Latency(server, latency) => self.servers[server].disk().set_latency(latency),
            Fault::Flip(chance) => {
                let (bad, others) = self.servers.split_at(FLIPS + 1);
                let has_another = |replica: ReplicaId| {
                    others.iter().any(|server| server.keeps(replica.master, replica.segment))
                };
                self.summary.flips += u64::from(bad[FLIPS].flip(chance, has_another));
            }
            Fault::Drop(which) => {
                let tables =
                    self.leading().map(|leading| leading.catalog().tables().collect::<Vec<_>>());
                let tables = tables.unwrap_or_default();
                let Some(table) = tables.get(which % tables.len().max(1)) else { return };
                self.history.note_drop(self.now, table.id);
                self.summary.recreated += u64::from(!self.is_busy);
                self.send_to_coordinator(&Request::DropTable { name: &table.name });
            }
            Fault::Index(which, drop) => {
                let tables =
                    self.leading().map(|leading| leading.catalog().tables().collect::<Vec<_>>());
                let tables = tables.unwrap_or_default();
                let Some(table) = tables.get(which % tables.len().max(1)) else { return };
                match &table.indexes[..] {
                    [] => self.send_to_coordinator(&Request::CreateIndex {
                        table: &table.name,
                        index: &new_index("field", &Value::index()),
                    }),
                    [index, ..] if drop => self.send_to_coordinator(&Request::DropIndex {
                        table: &table.name,
                        index: &index.name,
                    }),
                    _ => {}
                }
            }
            // With clocks that drift further than leases allow, reads may be stale.
            Fault::Backup(_) if self.settings.is_beyond() => {}
            Fault::Backup(dies_after) => {
                let dies_at = dies_after.map_or(Nanos::NEVER, |dies_after| self.now + dies_after);
                self.backup.begin(BACKUPS, dies_at);
            }
            Fault::Drain(server, drain) => self
                .send_to_coordinator(&Request::Drain { server: self.servers[server].id(), drain }),
            Fault::Weather { loss, twice, delay, jitter } => {
                self.weather.borrow_mut().set(loss, twice, delay, jitter);
            }
        }
    }

    fn mark_faulty(&mut self, server: usize, lasts: Duration) {
        let until = &mut self.servers[server].disk_faulty_until;
        *until = Some(until.unwrap_or(self.now).max(self.now + lasts));
        self.summary.disk_faults += 1;
    }

    /// Returns a tablet, selected by the indexes of its table and of the tablet.
    fn pick(&self, (table, tablet): (usize, usize)) -> Option<(u32, Range)> {
        let tables: Vec<_> = self.leading()?.catalog().tables().collect();
        let table = tables.get(table % tables.len().max(1))?;
        let (range, _) = table.ranges().nth(tablet % table.tablets.len())?;
        Some((table.id, range))
    }

    /// Sends a request to the coordinator, unless another request is in progress.
    fn send_to_coordinator(&mut self, request: &Request<'_>) {
        if !self.is_busy {
            self.is_busy =
                self.admin.submit(self.now, 0, request, self.now + Duration::from_secs(1)).is_ok();
            self.admin.flush();
        }
    }

    /// Computes all wake times again, after some may have changed.
    fn recompute_wakes(&mut self) {
        self.wakes = Wakes {
            coordinators: self.coordinators.iter().map(SimCoordinator::wake).collect(),
            servers: self.servers.iter().map(Server::wake).collect(),
            clients: self.clients.iter().map(|client| client.wake(&self.settings.work)).collect(),
        };
    }

    /// Ends cuts and disk faults that are over.
    fn end_expired_faults(&mut self) {
        for index in 0..self.servers.len() {
            if self.servers[index].disk_faulty_until.is_some_and(|until| until <= self.now) {
                self.count(index);
                self.servers[index].end_disk_fault(self.now);
                self.wakes.servers[index] = self.now;
            }
        }
        let (now, before) = (self.now, self.cuts.len());
        self.cuts.retain(|&(until, _)| until > now);
        if self.cuts.len() < before {
            let mut weather = self.weather.borrow_mut();
            weather.cut_links = self.cuts.iter().flat_map(|(_, pairs)| pairs).copied().collect();
        }
    }
}
