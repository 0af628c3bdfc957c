//! A client: the real one, and the work that it is given.

use crate::history::{Action, History, MIN_TEXT, Name, Page, Told, Value};
use crate::random::Random;
use crate::settings::Settings;
use crate::trace::Trace;
use sprat_client::{Core, Error};
use sprat_net::{AnyDriver, Hub, Locators, Nanos};
use sprat_wire::op::{Answer, Condition, Items, Request, Status, TableRecord};
use sprat_wire::value::ValueType;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// The transport's name in locators; what it is like the hub decides.
pub const TRANSPORT: &str = "fast+udp";

/// Times that a page of a scan is asked for again, without an answer, before the scan is given up.
const PAGE_TRIES: u32 = 4;

/// Pages of a scan; one of more than this never ends.
const MAX_PAGES: u32 = 100_000;

/// What all clients share.
pub struct Shared<'a> {
    /// The settings.
    pub settings: &'a Settings,
    /// What is asked and told.
    pub history: &'a mut History,
    /// What happens.
    pub trace: &'a mut Trace,
    /// The table of ballast.
    pub ballast: &'a TableRecord,
    /// Tables there are besides, and where.
    pub tables: &'a [TableRecord],
    /// How often that changed.
    pub edition: u64,
    /// Answers that no server gives to such requests.
    pub nonsense: &'a mut Option<String>,
}

/// A scan under way.
#[derive(Clone, Copy, Debug)]
struct Scan {
    number: u64,
    table: u32,
    after: Option<u64>,
    invoked: u64,
    tries: u32,
    pages: u32,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Call(usize, Action),
    Page(Scan),
}

/// Something asked for by the world rather than by chance.
#[derive(Clone, Copy, Debug)]
pub enum Errand {
    /// A call.
    Call(Name, Action),
    /// A scan of a table.
    Scan(u32),
}

impl Errand {
    /// Those by which a history ends: a table's objects are read, written once more, and read
    /// again.
    pub(crate) fn last(table: u32, keys: u16) -> impl Iterator<Item = Self> {
        let names = move || (0..keys).map(move |key| Name { table, key });
        let read =
            move || names().map(|name| Self::Call(name, Action::Read)).chain([Self::Scan(table)]);
        let write = |name: Name| {
            let id = u64::MAX - (u64::from(name.table) << 16) - u64::from(name.key);
            let value = Value::Text { id, len: MIN_TEXT };
            Self::Call(name, Action::Write { value, condition: Condition::None })
        };
        read().chain(names().map(write)).chain(read())
    }
}

/// A client of the simulated cluster.
pub struct Client {
    core: Core,
    index: usize,
    random: Random,
    asked: BTreeMap<u64, Asked>,
    tag: u64,
    /// Calls that it is still to make by chance.
    left: u64,
    next_at: Nanos,
    paused_until: Nanos,
    errands: VecDeque<Errand>,
    /// How long it is patient with errands.
    patience: Duration,
    /// Of which edition it knows where tables are.
    learned: Option<u64>,
    /// Scans to go on with, or to begin.
    scans: Vec<Scan>,
    /// Versions last seen, for conditions.
    seen: BTreeMap<Name, u64>,
    /// Scans and texts, numbered.
    made: u64,
}

impl Client {
    /// A client at `address`. `life` tells apart those that come after one another there.
    ///
    /// # Panics
    /// When the address is taken: the one before must be gone.
    pub fn new(
        hub: &Hub,
        index: usize,
        address: SocketAddr,
        life: u64,
        coordinator: &Locators,
        random: &mut Random,
    ) -> Self {
        let driver = AnyDriver::from(hub.port(address).expect("the one before is gone"));
        let seed = random.draw();
        let core = Core::with_drivers(vec![(TRANSPORT, driver)], coordinator, seed)
            .expect("the transport is there");
        Self {
            core,
            index,
            random: random.fork(),
            asked: BTreeMap::new(),
            tag: 0,
            left: 0,
            next_at: Nanos(0),
            paused_until: Nanos(0),
            errands: VecDeque::new(),
            patience: Duration::from_secs(5),
            learned: None,
            scans: Vec::new(),
            seen: BTreeMap::new(),
            made: (life << 40) + ((index as u64) << 32),
        }
    }

    /// Has it make `calls` calls by chance, from `from` on.
    pub fn work(&mut self, calls: u64, from: Nanos) {
        (self.left, self.next_at) = (calls, from);
    }

    /// Calls that it has yet to begin.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Has it run errands, one after the other, giving each so long.
    pub fn send(&mut self, errands: impl IntoIterator<Item = Errand>, patience: Duration) {
        self.errands.extend(errands);
        self.patience = patience;
    }

    /// Whether it has nothing to do and awaits nothing.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.asked.is_empty() && self.errands.is_empty() && self.scans.is_empty()
    }

    /// Has it do nothing for a while.
    pub fn pause(&mut self, until: Nanos) {
        self.paused_until = self.paused_until.max(until);
    }

    /// Requests sent again so far.
    pub fn retransmissions(&self) -> u64 {
        self.core.rpc_counters().map(|counters| counters.retransmissions + counters.resends).sum()
    }

    /// When it has something to do although nothing arrives.
    pub fn wake(&self, settings: &Settings) -> Nanos {
        let own = if !self.scans.is_empty() || (!self.errands.is_empty() && self.asked.is_empty()) {
            Nanos(0)
        } else if self.left > 0 && self.asked.len() < settings.window {
            self.next_at
        } else {
            Nanos::NEVER
        };
        self.core.next_deadline().min(own).max(self.paused_until)
    }

    /// Takes what has arrived, and asks what is to be asked.
    pub fn step(&mut self, now: Nanos, shared: &mut Shared<'_>) {
        if now < self.paused_until {
            return;
        }
        let Self { core, asked, scans, seen, index, .. } = self;
        let polled = core.poll(now, &mut |tag, answer| {
            let Some(what) = asked.remove(&tag) else {
                shared.nonsense.get_or_insert_with(|| format!("client {index} was answered twice"));
                return;
            };
            match what {
                Asked::Call(number, action) => told(now, number, action, answer, shared, seen),
                Asked::Page(scan) => scans.extend(page(now, *index, scan, answer, shared)),
            }
        });
        if let Err(error) = polled {
            shared.nonsense.get_or_insert_with(|| error.to_string());
        }
        for scan in std::mem::take(&mut self.scans) {
            self.ask_page(now, scan, shared);
        }
        if self.asked.is_empty()
            && let Some(errand) = self.errands.pop_front()
        {
            match errand {
                Errand::Call(name, action) => self.ask(now, name, action, self.patience, shared),
                Errand::Scan(table) => self.begin_scan(now, table, shared),
            }
        }
        while self.left > 0 && self.asked.len() < shared.settings.window && now >= self.next_at {
            self.left -= 1;
            self.begin(now, shared);
            let mean = shared.settings.mean_rest();
            // In bursts, or calls would seldom meet.
            let rest = if self.random.chance(2, 3) {
                self.random.below(50_000)
            } else {
                self.random.below(6 * mean + 1)
            };
            self.next_at = now + Duration::from_nanos(rest);
        }
        self.core.flush();
    }

    /// Begins something by chance.
    fn begin(&mut self, now: Nanos, shared: &mut Shared<'_>) {
        let patience = match self.random.below(10) {
            0..3 => self.random.micros(100, 10_000),
            3..8 => self.random.micros(50_000, 500_000),
            _ => self.random.micros(500_000, 4_000_000),
        };
        if shared.settings.ballast > 0 && self.random.chance(1, 4) {
            let (name, action) = self.shift_ballast(shared);
            return self.ask(now, name, action, patience, shared);
        }
        let table = self.random.pick(shared.tables).id;
        // Few are asked for often.
        let key = self
            .random
            .below(u64::from(shared.settings.keys))
            .min(self.random.below(u64::from(shared.settings.keys)));
        let name = Name { table, key: u16::try_from(key).expect("few keys") };
        if self.random.chance(1, 16) {
            return self.begin_scan(now, table, shared);
        }
        let action = self.action(name, shared.settings);
        let action = if shared.history.is_tangled(now, name) { Action::Read } else { action };
        self.ask(now, name, action, patience, shared);
    }

    /// Replaces a piece of ballast: what was there is dead, and the cleaner's.
    fn shift_ballast(&mut self, shared: &Shared<'_>) -> (Name, Action) {
        let key =
            u16::try_from(self.random.below(u64::from(shared.settings.ballast))).expect("few");
        self.made += 1;
        let len =
            self.random.between(u64::from(MIN_TEXT), u64::from(shared.settings.ballast_bytes));
        let value = Value::Text { id: self.made, len: u32::try_from(len).expect("at most 1 MB") };
        (
            Name { table: shared.ballast.id, key },
            Action::Write { value, condition: Condition::None },
        )
    }

    fn action(&mut self, name: Name, settings: &Settings) -> Action {
        let number = name.key.is_multiple_of(4);
        match self.random.below(if number { 100 } else { 80 }) {
            0..28 => Action::Read,
            28..64 => Action::Write {
                value: self.value(number, settings),
                condition: self.condition(name),
            },
            64..76 => Action::Remove {
                condition: match self.condition(name) {
                    Condition::Absent => Condition::None,
                    condition => condition,
                },
            },
            _ => Action::Increment {
                delta: i64::try_from(self.random.below(1000)).expect("small") - 500,
            },
        }
    }

    fn value(&mut self, number: bool, settings: &Settings) -> Value {
        if number && self.random.chance(7, 8) {
            return Value::Number(i64::from_le_bytes(self.random.draw().to_le_bytes()) >> 8);
        }
        self.made += 1;
        let longest = match self.random.below(20) {
            0..9 => 200,
            9..19 => settings.usual_value,
            _ => settings.longest_value,
        };
        let len = u64::from(MIN_TEXT) + self.random.below(longest - u64::from(MIN_TEXT) + 1);
        Value::Text { id: self.made, len: u32::try_from(len).expect("at most 1 MB") }
    }

    fn condition(&mut self, name: Name) -> Condition {
        match self.random.below(10) {
            0..6 => Condition::None,
            6 => Condition::Absent,
            7 => Condition::Exists,
            _ => {
                self.seen.get(&name).map_or(Condition::None, |&version| Condition::Version(version))
            }
        }
    }

    fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }

    fn ask(
        &mut self,
        now: Nanos,
        name: Name,
        action: Action,
        patience: Duration,
        shared: &mut Shared<'_>,
    ) {
        let number = shared.history.invoke(now, self.index, name, action);
        shared
            .trace
            .note(now, format_args!("client {} #{number} asks: {name} {action}", self.index));
        let (table, key) = (name.table, &name.bytes()[..]);
        let bytes = match action {
            Action::Write { value, .. } => value.encode(),
            _ => Vec::new(),
        };
        let request = match action {
            Action::Read => Request::Read { table, key },
            Action::Write { condition, .. } => {
                Request::Write { table, key, value: &bytes, condition }
            }
            Action::Remove { condition } => Request::Remove { table, key, condition },
            Action::Increment { delta } => Request::IncrementI64 { table, key, delta },
        };
        let tag = self.next_tag();
        self.asked.insert(tag, Asked::Call(number, action));
        self.learn(shared);
        if let Err(error) = self.core.submit(now, tag, &request, now + patience) {
            self.asked.remove(&tag);
            told(now, number, action, Err(error), shared, &mut self.seen);
        }
    }

    fn begin_scan(&mut self, now: Nanos, table: u32, shared: &mut Shared<'_>) {
        self.made += 1;
        let scan = Scan { number: self.made, table, after: None, invoked: 0, tries: 0, pages: 0 };
        self.ask_page(now, scan, shared);
    }

    fn ask_page(&mut self, now: Nanos, mut scan: Scan, shared: &mut Shared<'_>) {
        if scan.tries == 0 {
            scan.invoked = shared.history.moment();
        }
        scan.tries += 1;
        scan.pages += 1;
        let Scan { number, table, after, .. } = scan;
        if scan.tries == 1 && after.is_none() {
            shared.trace.note(
                now,
                format_args!("client {} scans table {table}, scan {number}", self.index),
            );
        }
        if scan.pages > MAX_PAGES {
            shared.nonsense.get_or_insert_with(|| format!("scan {number} never ends"));
            return;
        }
        let tag = self.next_tag();
        self.asked.insert(tag, Asked::Page(scan));
        self.learn(shared);
        let deadline = now + Duration::from_secs(2);
        if self.core.submit(now, tag, &Request::Scan { table, after }, deadline).is_err() {
            self.asked.remove(&tag); // dropped meanwhile
        }
    }

    fn learn(&mut self, shared: &Shared<'_>) {
        if self.learned.replace(shared.edition) == Some(shared.edition) {
            return;
        }
        for table in shared.tables.iter().chain([shared.ballast]) {
            self.core.learn(table).expect("locators of the simulator are good");
        }
    }
}

/// A call is told.
fn told(
    now: Nanos,
    number: usize,
    action: Action,
    answer: Result<Answer<'_>, Error>,
    shared: &mut Shared<'_>,
    seen: &mut BTreeMap<Name, u64>,
) {
    let told = match &answer {
        Ok(answer) => judge(action, answer),
        Err(error) if error.is_indeterminate() => Some(Told::Unknown),
        Err(Error::Timeout { .. } | Error::Recovering { .. } | Error::TableDropped(_)) => {
            Some(Told::NotDone)
        }
        Err(_) => None,
    };
    let name = shared.history.operations[number].name;
    let Some(told) = told else {
        let answer = match answer {
            Ok(Answer { status, number, body, .. }) => {
                format!("{status:?}, number {number}, {} B", body.len())
            }
            Err(error) => error.to_string(),
        };
        shared
            .nonsense
            .get_or_insert_with(|| format!("#{number} {name} {action} was answered: {answer}"));
        return;
    };
    match told {
        Told::Found { version, .. } | Told::Done { version } | Told::Sum { version, .. } => {
            seen.insert(name, version);
        }
        _ => {}
    }
    shared.history.tell(now, number, told);
    match answer.err() {
        Some(error) => shared.trace.note(now, format_args!("#{number} is told: {told} ({error})")),
        None => shared.trace.note(now, format_args!("#{number} is told: {told}")),
    }
}

/// What an answer tells; `None` for one that no server should give.
fn judge(action: Action, answer: &Answer<'_>) -> Option<Told> {
    let version = answer.number;
    Some(match (answer.status, action) {
        (Status::Ok, Action::Read) => {
            let value = Value::decode(ValueType::of_code(answer.count), answer.body)?;
            Told::Found { version, value }
        }
        (Status::Ok, Action::Increment { .. }) => {
            Told::Sum { sum: i64::from_le_bytes(answer.body.try_into().ok()?), version }
        }
        (Status::Ok, _) => Told::Done { version },
        (Status::NotFound, Action::Read | Action::Remove { .. }) => Told::Absent,
        (Status::Conflict, Action::Write { .. } | Action::Remove { .. }) => {
            Told::Conflict((version != 0).then_some(version))
        }
        (Status::NotANumber, Action::Increment { .. }) => Told::NotANumber,
        (Status::WritesStopped, _) => Told::Unknown,
        (Status::TooFewServers, _) if answer.number == 0 => Told::NotDone,
        (Status::TooFewServers, _) => Told::Unknown,
        (
            Status::MemoryFull | Status::DiskFull,
            Action::Write { .. } | Action::Remove { .. } | Action::Increment { .. },
        ) => Told::NotDone,
        (Status::UnknownTable, _) => Told::NotDone,
        _ => return None,
    })
}

/// A page is told; returns the scan, if it goes on.
fn page(
    now: Nanos,
    client: usize,
    scan: Scan,
    answer: Result<Answer<'_>, Error>,
    shared: &mut Shared<'_>,
) -> Option<Scan> {
    let Scan { number, table, after, invoked, .. } = scan;
    let answer = match answer {
        Ok(answer) if answer.status == Status::Ok => answer,
        // Nothing was promised.
        Ok(Answer { status: Status::UnknownTable, .. }) | Err(Error::TableDropped(_)) => {
            return None;
        }
        Ok(Answer { status: Status::WritesStopped | Status::TooFewServers, .. })
        | Err(Error::Timeout { .. } | Error::Recovering { .. }) => {
            return (scan.tries < PAGE_TRIES).then_some(scan);
        }
        other => {
            shared.nonsense.get_or_insert_with(|| format!("scan {number} was answered: {other:?}"));
            return None;
        }
    };
    let row = |item: Option<sprat_wire::op::Item<'_>>| {
        let item = item?;
        Some((item.key.to_vec(), item.version, Value::decode(item.value_type, item.value)?))
    };
    let Some(rows) = Items::new(answer.body, answer.count).map(row).collect::<Option<Vec<_>>>()
    else {
        shared.nonsense.get_or_insert_with(|| format!("scan {number}: a row that nobody wrote"));
        return None;
    };
    let next = answer.more.then_some(answer.number);
    let returned = shared.history.moment();
    shared.trace.note(now, format_args!("scan {number} gets {} rows, next {next:?}", rows.len()));
    shared.history.turn_page(Page {
        client,
        scan: number,
        table,
        after,
        next,
        rows,
        invoked,
        returned,
        ended: now,
    });
    next.map(|next| Scan { after: Some(next), tries: 0, ..scan })
}
