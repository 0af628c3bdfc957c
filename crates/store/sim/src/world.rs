//! The loop: time, network, server, clients and faults, in a fixed order.

use crate::check;
use crate::client::{Client, ClientContext, Errand, TRANSPORT};
use crate::faults::{self, Fault, NetworkConditions};
use crate::history::{Action, History, ObjectName, Response, Value};
use crate::random::Random;
use crate::report::{Failure, Summary, run_seed};
use crate::server::{self, Server, Start};
use crate::settings::Settings;
use crate::trace::Trace;
use sprat_net::{Hub, Locators, Nanos};
use sprat_wire::op::{Condition, TableRecord, TabletRecord, WhenFull};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// The shortest time that one iteration of the loop takes.
const STEP: Duration = Duration::from_micros(1);

/// Virtual time after which a history counts as stuck.
const STUCK: Nanos = Nanos(120_000_000_000);

/// Timeout of the last, undisturbed calls.
const LAST_PATIENCE: Duration = Duration::from_secs(20);

/// The table of ballast (objects that fill the log from the beginning), which is never dropped.
const BALLAST: u32 = 1 << 20;

/// The phases of a history.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// A client writes the ballast, without faults.
    Load,
    /// Work and faults.
    Work,
    /// The server restarts a last time, after all faults have ended.
    Restart,
    /// A client reads everything, writes everything except the ballast once more, and reads that
    /// again. The number is that of the first of these calls.
    Last(usize),
}

/// One server, its clients, and the faults that hit them: the whole history of a seed.
///
/// [`World::new`] draws the history's settings and faults from the seed, and
/// [`finish`](World::finish) runs it. Each iteration delivers frames, injects the faults that are
/// due, then steps the server and the clients in a fixed order, and advances virtual time to the
/// next event. After the work, all faults end, and the server restarts once more. A client reads
/// every object, and writes and reads again every object except the ballast. Then the checks decide
/// whether the responses are linearizable.
pub struct World {
    settings: Settings,
    trace: Rc<RefCell<Trace>>,
    random: Random,
    now: Nanos,
    hub: Hub,
    weather: Rc<RefCell<NetworkConditions>>,
    server: Server,
    /// When the server is to be started again, if it is down.
    start_at: Option<Nanos>,
    /// When a server that takes no writes is to be restarted.
    care_at: Option<Nanos>,
    fail_start: Option<(u64, sprat_disk::Fault)>,
    /// A crash that waits until the disk has operations in flight: how long the server stays down,
    /// and whether only its process ends.
    crash_at_work: Option<(Duration, bool)>,
    clients: Vec<Client>,
    lives: u64,
    coordinator: Locators,
    ballast: TableRecord,
    tables: Vec<TableRecord>,
    /// Number of times that tables were created or dropped.
    edition: u64,
    next_table: u32,
    version: u64,
    faults: VecDeque<(Nanos, Fault)>,
    /// Clients that are cut off, each group with the time at which its cut ends.
    cuts: Vec<(Nanos, Vec<SocketAddr>)>,
    history: History,
    nonsense: Option<String>,
    phase: Phase,
    summary: Summary,
}

/// Runs the history of a seed and checks it.
///
/// # Errors
/// [`Failure`] describes what is wrong with the history.
pub fn run(seed: u64) -> Result<(Summary, Trace), Box<Failure>> {
    run_seed(seed, false, None, |trace| World::new(seed, trace).finish())
}

fn address(host: u64) -> SocketAddr {
    let host = u16::try_from(host).expect("few hosts");
    ([10, 0, 0, 1], 1000 + host).into()
}

impl World {
    /// Creates the world of a seed: draws its settings, server, clients and faults from the seed.
    ///
    /// # Panics
    /// When the settings drawn from the seed contradict each other, which would be a bug in
    /// `Settings::draw`.
    #[must_use]
    pub fn new(seed: u64, trace: Rc<RefCell<Trace>>) -> Self {
        let mut random = Random::new(seed);
        let settings = Settings::draw(&mut random);
        trace.borrow_mut().note(Nanos(0), format_args!("seed {seed}: {settings:?}"));
        let weather =
            Rc::new(RefCell::new(NetworkConditions::new(&mut random, settings.network.reliable)));
        let hub = Hub::new(settings.network);
        hub.set_policy(faults::policy(&weather));
        let server = Server::new(&settings, &hub, address(0), random.draw());
        let faults = faults::plan(&settings, &mut random).into();
        let at = server.address();
        let coordinator: Locators =
            format!("{TRANSPORT}:host={},port={}", at.ip(), at.port()).parse().expect("a locator");
        let mut world = Self {
            settings,
            trace,
            random,
            now: Nanos(0),
            hub,
            weather,
            server,
            start_at: Some(Nanos(0)),
            care_at: None,
            fail_start: None,
            crash_at_work: None,
            clients: Vec::new(),
            lives: 0,
            ballast: record(BALLAST, coordinator.to_string()),
            coordinator,
            tables: Vec::new(),
            edition: 0,
            next_table: 1,
            version: 0,
            faults,
            cuts: Vec::new(),
            history: History::default(),
            nonsense: None,
            phase: Phase::Load,
            summary: Summary { histories: 1, ..Summary::default() },
        };
        for _ in 0..world.settings.tables {
            world.make_table();
        }
        for index in 0..world.settings.clients {
            let client = world.make_client(index);
            world.clients.push(client);
        }
        let load = world.ballast().map(|(name, value)| {
            Errand::Call(name, Action::Write { value, condition: Condition::None })
        });
        world.clients[0].send(load.collect::<Vec<_>>(), LAST_PATIENCE);
        world
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.trace.borrow_mut().note(self.now, what);
    }

    fn make_client(&mut self, index: usize) -> Client {
        self.lives += 1;
        let address = address(index as u64 + 1);
        Client::new(&self.hub, index, address, self.lives, &self.coordinator, &mut self.random)
    }

    fn make_table(&mut self) {
        let id = self.next_table;
        let locator = self.coordinator.to_string();
        self.tables.push(record(id, locator));
        self.edition += 1;
        self.next_table += 1;
        self.version += 1;
    }

    /// Returns the ids of the tables that the server serves.
    fn assigned(&self) -> Vec<u32> {
        self.tables.iter().map(|table| table.id).chain([BALLAST]).collect()
    }

    fn ballast(&self) -> impl Iterator<Item = (ObjectName, Value)> + use<> {
        let len = self.settings.ballast_bytes;
        let name = |key| ObjectName { table: BALLAST, key };
        (0..self.settings.ballast)
            .map(move |key| (name(key), Value::Text { id: u64::from(key) + 1, len }))
    }

    /// Begins the work and the faults.
    fn begin(&mut self) {
        let offset = self.now.since(Nanos(0));
        self.faults.iter_mut().for_each(|(at, _)| *at = *at + offset);
        let calls = self.settings.operations / self.settings.clients as u64;
        for client in &mut self.clients {
            client.work(calls, self.now + self.random.micros(0, 10_000));
        }
    }

    /// Runs the history to its end, and checks the responses.
    ///
    /// # Errors
    /// Describes what is wrong.
    pub fn finish(mut self) -> Result<Summary, String> {
        while !self.iterate()? {
            self.advance()?;
        }
        self.count_server();
        let checked = check::check(&self.history, server::HASH_SEED, self.settings.keys)
            .map_err(|wrong| wrong.to_string())?;
        let weather = self.weather.borrow();
        self.trace.borrow_mut().count(weather.digest);
        let answered = self
            .history
            .operations
            .iter()
            .filter(|operation| operation.response != Response::Unknown)
            .count();
        Ok(Summary {
            operations: self.history.operations.len() as u64,
            answered: answered as u64,
            transactions: self.history.transactions.len() as u64,
            committed: self.history.committed(),
            pages: self.history.pages.len() as u64,
            frames: weather.frames,
            frames_lost: weather.lost,
            retransmissions: self.summary.retransmissions
                + self.clients.iter().map(Client::retransmissions).sum::<u64>()
                + self.server.retransmissions(),
            undecided: checked.undecided,
            time: self.now.since(Nanos(0)),
            ..self.summary
        })
    }

    /// Does what is due now. Returns whether the history has ended.
    fn iterate(&mut self) -> Result<bool, String> {
        self.hub.deliver_until(self.now);
        self.server.control.set_now(self.now.0);
        while self.phase == Phase::Work
            && self.faults.front().is_some_and(|&(at, _)| at <= self.now)
        {
            let (_, fault) = self.faults.pop_front().expect("just seen");
            self.inject(fault);
        }
        self.end_expired_faults();
        self.look_after_server()?;
        let token_seed = self.random.draw();
        if let Some(stopped) = self.server.step(self.now, token_seed) {
            self.note(format_args!("server has stopped"));
            self.summary.stops += 1;
            self.start_at = Some(self.now + self.random.micros(100, 50_000));
            stopped?;
        }
        if let Some((down, process)) = self.crash_at_work
            && self.server.control.next_due().is_some()
            && self.random.chance(1, 3)
        {
            self.crash(down, process);
        }
        let Self { settings, history, ballast, tables, edition, nonsense, now, .. } = self;
        let mut trace = self.trace.borrow_mut();
        let mut shared = ClientContext {
            settings,
            history,
            trace: &mut trace,
            ballast,
            tables,
            edition: *edition,
            nonsense,
        };
        for (index, client) in self.clients.iter_mut().enumerate() {
            if client.wake(settings) <= *now || self.hub.waiting(address(index as u64 + 1)) > 0 {
                client.step(*now, &mut shared);
            }
        }
        drop(trace);
        match self.nonsense.take() {
            Some(nonsense) => Err(nonsense),
            None => self.next_phase(),
        }
    }

    /// Advances time to the next event.
    fn advance(&mut self) -> Result<(), String> {
        let mut next = self.server.wake();
        for client in &self.clients {
            next = next.min(client.wake(&self.settings));
        }
        let fault = self.faults.front().filter(|_| self.phase == Phase::Work).map(|&(at, _)| at);
        let others = [self.hub.next_delivery(), fault, self.start_at, self.care_at];
        next = others
            .into_iter()
            .flatten()
            .chain(self.cuts.iter().map(|&(until, _)| until))
            .fold(next, Nanos::min);
        if next == Nanos::NEVER || next > STUCK {
            return Err(format!("no progress in phase {:?}", self.phase));
        }
        self.now = next.max(self.now + STEP);
        Ok(())
    }

    /// Starts a server that is down, and restarts a server that takes no writes, when it is time.
    fn look_after_server(&mut self) -> Result<(), String> {
        if self.server.is_sick() && self.care_at.is_none() {
            self.care_at = Some(self.now + self.random.micros(100, 80_000));
            self.note(format_args!("server is sick"));
        }
        if self.care_at.is_some_and(|at| at <= self.now) {
            self.care_at = None;
            if self.server.is_sick() {
                let process = self.settings.spares_power() || self.random.chance(1, 2);
                self.crash(self.random.clone().micros(100, 20_000), process);
            }
        }
        if self.server.is_down() && self.start_at.is_none() {
            self.start_at = Some(self.now + self.random.micros(100, 50_000));
        }
        if self.start_at.is_some_and(|at| at <= self.now) {
            self.start_at = None;
            if self.server.is_down() {
                self.start()?;
            }
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), String> {
        if let Some((after, how)) = self.fail_start.take() {
            self.note(format_args!(
                "this start's disk will fail: {how:?} after {after} operations"
            ));
            self.server.fail_disk(after, how);
            self.summary.disk_faults += 1;
        }
        match self.server.start(self.now, self.version, &self.assigned())? {
            Start::Opened(report) => {
                let objects = self.server.log().map_or(0, |log| log.stats().objects);
                let segments = report.segments;
                self.note(format_args!(
                    "server starts: {segments} segments, {objects} objects, cut {:?}",
                    report.cut
                ));
                self.summary.replays += u64::from(segments > 0);
                self.summary.cuts += u64::from(report.cut.is_some());
            }
            Start::Failed(reason) => {
                self.note(format_args!("server fails to start: {reason}"));
                let process = self.settings.spares_power();
                self.crash(Duration::from_millis(1), process);
            }
        }
        Ok(())
    }

    fn crash(&mut self, down: Duration, process: bool) {
        self.note(format_args!(
            "server crashes: {}",
            if process { "killed" } else { "power failure" }
        ));
        self.count_server();
        self.server.crash(process);
        if self.settings.reckless && !process {
            self.history.lose();
        }
        self.summary.crashes += 1;
        self.start_at = Some(self.now + down);
        self.care_at = None;
        self.crash_at_work = None;
    }

    fn count_server(&mut self) {
        if let Some(log) = self.server.log() {
            let stats = log.stats();
            let cleaner = stats.cleaner;
            self.note(format_args!(
                "log: {} B free of {}, {} segments on disk of {}, {} slices of cleaning",
                stats.free_bytes,
                stats.memory_bytes,
                stats.segments_on_disk,
                log.config().max_segments_on_disk,
                cleaner.slices
            ));
            self.summary.cleaned += cleaner.combined_segments + cleaner.compacted_segments;
        }
    }

    fn inject(&mut self, fault: Fault) {
        self.note(format_args!("{fault:?}"));
        match fault {
            Fault::Crash { down, process, at_work: false } => self.crash(down, process),
            Fault::Crash { down, process, at_work: true } => {
                self.crash_at_work = Some((down, process))
            }
            Fault::Stop => {
                self.count_server();
                self.server.stop(self.now);
            }
            Fault::FailStart { after, how } => self.fail_start = Some((after, how)),
            Fault::FailDisk { after, how } => {
                self.server.fail_disk(after, how);
                self.summary.disk_faults += 1;
            }
            Fault::FillDisk => {
                // The disk of a server that is down is not filled: it might be too small for a
                // start.
                if self.server.is_up() {
                    self.server.fill_disk();
                    self.summary.disk_faults += 1;
                }
            }
            Fault::Latency(latency) => self.server.control.set_latency(latency),
            Fault::Weather { loss, twice, delay, jitter } => {
                self.weather.borrow_mut().set(loss, twice, delay, jitter);
            }
            Fault::Cut { client, lasts } => {
                let all = 0..self.settings.clients;
                let addresses: Vec<_> =
                    all.filter(|&index| client.is_none_or(|client| client == index)).collect();
                let addresses: Vec<_> =
                    addresses.into_iter().map(|index| address(index as u64 + 1)).collect();
                self.weather.borrow_mut().cut.extend(&addresses);
                self.cuts.push((self.now + lasts, addresses));
            }
            Fault::PauseServer(pause) => self.server.pause(self.now + pause),
            Fault::PauseClient(client, pause) => self.clients[client].pause(self.now + pause),
            Fault::RestartClient(index) => self.restart_client(index),
            Fault::Recreate(which) => {
                let dropped = self.tables.remove(which);
                self.history.note_drop(self.now, dropped.id);
                self.edition += 1;
                self.make_table();
                self.summary.recreated += 1;
                self.server.assign(self.version, &self.assigned());
            }
        }
    }

    fn restart_client(&mut self, index: usize) {
        let old = self.clients.remove(index);
        self.summary.retransmissions += old.retransmissions();
        let left = old.remaining();
        drop(old); // its address is free now
        let mut client = self.make_client(index);
        client.work(left, self.now);
        self.clients.insert(index, client);
    }

    /// Ends the cuts that are over.
    fn end_expired_faults(&mut self) {
        let now = self.now;
        let mut weather = self.weather.borrow_mut();
        self.cuts.retain(|(until, addresses)| {
            if *until <= now {
                addresses.iter().for_each(|address| {
                    weather.cut.remove(address);
                });
            }
            *until > now
        });
    }

    /// Enters the next phase if the present phase is over. Returns whether the history has ended.
    fn next_phase(&mut self) -> Result<bool, String> {
        match self.phase {
            Phase::Load if self.server.is_up() && self.clients.iter().all(Client::is_done) => {
                self.phase = Phase::Work;
                self.begin();
            }
            Phase::Work if self.faults.is_empty() && self.clients.iter().all(Client::is_done) => {
                self.weather.borrow_mut().clear(self.settings.network.reliable);
                self.cuts.clear();
                self.fail_start = None;
                self.crash_at_work = None;
                self.server.spare_disk();
                self.phase = Phase::Restart;
                let process = self.settings.spares_power() || self.random.chance(1, 2);
                if self.random.chance(1, 4) && self.server.is_up() && !self.server.is_sick() {
                    self.note(format_args!("last stop"));
                    self.count_server();
                    self.server.stop(self.now);
                } else {
                    self.note(format_args!("last crash"));
                    self.crash(Duration::from_millis(1), process);
                }
            }
            // The server is restarted once more.
            Phase::Restart if self.server.is_up() && self.server.is_sick() => {}
            Phase::Restart if self.server.is_up() => {
                self.phase = Phase::Last(self.history.operations.len());
                for index in 0..self.clients.len() {
                    self.restart_client(index);
                }
                let errands = self.last_errands();
                self.clients[0].send(errands, LAST_PATIENCE);
            }
            Phase::Last(first) if self.clients.iter().all(Client::is_done) => {
                if let Some(call) = self.history.unanswered(first) {
                    return Err(format!("undisturbed, and yet without an answer: {call}"));
                }
                self.server.log().expect("it serves").check_invariants();
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }

    /// Returns the calls that read everything, write everything except the ballast once more, and
    /// read that again.
    fn last_errands(&self) -> Vec<Errand> {
        let mut errands: Vec<_> =
            self.ballast().map(|(name, _)| Errand::Call(name, Action::Read)).collect();
        for table in self.tables.iter().map(|table| table.id) {
            errands.extend(Errand::last(table, self.settings.keys));
        }
        errands
    }
}

/// Returns the record of a table with one tablet, on server 1 at `locator`, as a coordinator would
/// give it.
fn record(id: u32, locator: String) -> TableRecord {
    let tablets = vec![TabletRecord { first: 0, server: 1, locator }];
    let (name, seed, when_full) = (format!("table {id}"), server::HASH_SEED, WhenFull::Refuse);
    TableRecord { id, name, seed, when_full, ordered: false, indexes: Vec::new(), tablets }
}
