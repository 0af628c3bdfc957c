//! A simulated client: the real client, and the calls that it is to make.

mod transactions;

pub(crate) use self::transactions::accounts;
use self::transactions::{Transaction, handle_commit, is_account};
use crate::history::{Action, History, MIN_TEXT, ObjectName, Page, Response, Span, Value};
use crate::random::Random;
use crate::settings::Settings;
use crate::trace::Trace;
use sprat_client::{Core, Error};
use sprat_net::{AnyDriver, Hub, Locators, Nanos};
use sprat_wire::expiry::Ttl;
use sprat_wire::index::{Field, OWN_KEYS};
use sprat_wire::op::{Answer, Condition, Item, Items, Request, Status, TableRecord};
use sprat_wire::order::{KeyRange, RangePage, RangeQuery};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Bound;
use std::time::Duration;

/// The transport's name in locators; the hub decides how it behaves.
pub const TRANSPORT: &str = "fast+udp";

/// How often a client requests a page of a scan without an answer before it gives up the scan.
const PAGE_TRIES: u32 = 4;

/// The largest number of requests for pages of a scan, repeated requests included. The client
/// reports a longer scan as one that never ends.
const MAX_PAGES: u32 = 100_000;

/// The largest number of calls that share requests. They may exceed the settings' window.
const MAX_TOGETHER: u64 = 8;

/// State that all clients share during one iteration.
pub struct ClientContext<'a> {
    /// The settings.
    pub settings: &'a Settings,
    /// Records calls and responses.
    pub history: &'a mut History,
    /// Records events.
    pub trace: &'a mut Trace,
    /// The table of ballast: objects that fill the log from the beginning.
    pub ballast: &'a TableRecord,
    /// The other tables, with the servers that have them.
    pub tables: &'a [TableRecord],
    /// A number that grows whenever `tables` may have changed.
    pub edition: u64,
    /// The first answer that no server should give, if there was one.
    pub nonsense: &'a mut Option<String>,
}

/// A scan under way.
#[derive(Clone, Debug)]
struct Scan {
    number: u64,
    table: u32,
    next: Next,
    /// The moment and the time of the first request for the next page.
    invoked: u64,
    began: Nanos,
    tries: u32,
    pages: u32,
}

/// What the next page of a scan is to have.
#[derive(Clone, Debug)]
enum Next {
    /// Objects at positions behind a cursor.
    Positions(Option<u64>),
    /// Objects of an ordered table, or of an index, with these keys, and how many at most.
    Keys { index: u32, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>, descending: bool, limit: u32 },
}

#[derive(Clone, Debug)]
enum Pending {
    Call(usize, Action),
    Page(Scan),
    /// A read of a transaction: the number of the transaction, the index of the object, and the
    /// number of the call.
    Read(u64, usize, usize),
    /// The commit of a transaction.
    Commit(u64),
}

/// A call that the world requires, in contrast to random calls.
#[derive(Clone, Copy, Debug)]
pub enum Errand {
    /// A call on an object.
    Call(ObjectName, Action),
    /// A scan of the table with this id.
    Scan(u32),
}

impl Errand {
    /// Returns the calls at the end of a history: reads of all objects of a table and a scan, then
    /// a write to each object, then the reads and the scan again.
    pub(crate) fn last(table: u32, keys: u16) -> impl Iterator<Item = Self> {
        let names = move || (0..keys).map(move |key| ObjectName { table, key });
        let read =
            move || names().map(|name| Self::Call(name, Action::Read)).chain([Self::Scan(table)]);
        let write = |name: ObjectName| {
            Self::Call(name, Action::Write { value: Value::last(name), condition: Condition::None })
        };
        read().chain(names().map(write)).chain(read())
    }
}

/// A client of the simulated cluster.
pub struct Client {
    core: Core,
    index: usize,
    random: Random,
    pending: BTreeMap<u64, Pending>,
    tag: u64,
    /// Number of random calls that the client has yet to make.
    remaining: u64,
    next_at: Nanos,
    paused_until: Nanos,
    errands: VecDeque<Errand>,
    /// The timeout of each errand that is a call.
    patience: Duration,
    /// The [`edition`](ClientContext::edition) of the tables that the client knows.
    learned: Option<u64>,
    /// Scans whose next page is to be requested.
    scans: Vec<Scan>,
    /// Transactions under way, by number.
    transactions: BTreeMap<u64, Transaction>,
    /// Transactions whose reads all have a response.
    ready: Vec<u64>,
    /// Whether the calls that are made now share requests.
    in_batch: bool,
    /// The last known versions of objects, for conditions.
    last_versions: BTreeMap<ObjectName, u64>,
    /// The last number given to a scan or a text.
    last_number: u64,
}

impl Client {
    /// Creates a client at `address`. `life` distinguishes successive clients at one address.
    ///
    /// # Panics
    /// When the address is still in use by the previous client.
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
            pending: BTreeMap::new(),
            tag: 0,
            remaining: 0,
            next_at: Nanos(0),
            paused_until: Nanos(0),
            errands: VecDeque::new(),
            patience: Duration::from_secs(5),
            learned: None,
            scans: Vec::new(),
            transactions: BTreeMap::new(),
            ready: Vec::new(),
            in_batch: false,
            last_versions: BTreeMap::new(),
            last_number: (life << 40) + ((index as u64) << 32),
        }
    }

    /// Lets the client make `calls` random calls, from time `from` on.
    pub fn work(&mut self, calls: u64, from: Nanos) {
        (self.remaining, self.next_at) = (calls, from);
    }

    /// Returns the number of random calls that the client has yet to make.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Lets the client run errands, one after the other. Calls have this timeout; scans have one of
    /// their own.
    pub fn send(&mut self, errands: impl IntoIterator<Item = Errand>, patience: Duration) {
        self.errands.extend(errands);
        self.patience = patience;
    }

    /// Returns whether the client has nothing to do and waits for nothing.
    pub fn is_done(&self) -> bool {
        self.remaining == 0
            && self.pending.is_empty()
            && self.errands.is_empty()
            && self.scans.is_empty()
            && self.ready.is_empty()
    }

    /// Pauses the client until `until`, or until the end of an earlier pause if that is later.
    pub fn pause(&mut self, until: Nanos) {
        self.paused_until = self.paused_until.max(until);
    }

    /// Returns the number of requests and of ranges of long messages that were sent again or
    /// requested again so far.
    pub fn retransmissions(&self) -> u64 {
        self.core.rpc_counters().map(|counters| counters.retransmissions + counters.resends).sum()
    }

    /// Returns the time at which the client has something to do even if nothing arrives.
    pub fn wake(&self, settings: &Settings) -> Nanos {
        let own = if !self.scans.is_empty()
            || !self.ready.is_empty()
            || (!self.errands.is_empty() && self.pending.is_empty())
        {
            Nanos(0)
        } else if self.remaining > 0 && self.pending.len() < settings.window {
            self.next_at
        } else {
            Nanos::NEVER
        };
        self.core.next_deadline().min(own).max(self.paused_until)
    }

    /// Handles what has arrived, and makes the calls that are due.
    pub fn step(&mut self, now: Nanos, shared: &mut ClientContext<'_>) {
        if now < self.paused_until {
            return;
        }
        let Self { core, pending, scans, transactions, ready, last_versions, index, .. } = self;
        let polled = core.poll(now, &mut |tag, answer| {
            let Some(what) = pending.remove(&tag) else {
                shared.nonsense.get_or_insert_with(|| format!("client {index} was answered twice"));
                return;
            };
            match what {
                Pending::Call(number, action) => {
                    handle_answer(now, number, action, answer, shared, last_versions)
                }
                Pending::Read(number, at, call) => {
                    let transaction = transactions.get_mut(&number).expect("it waits for this");
                    handle_answer(now, call, Action::Read, answer, shared, last_versions);
                    match shared.history.operations[call].response {
                        Response::Found { version, value } => {
                            transaction.objects[at].1 = Some(Some((version, value)));
                        }
                        Response::Absent => transaction.objects[at].1 = Some(None),
                        _ => transaction.failed = true,
                    }
                    transaction.missing -= 1;
                    if transaction.missing == 0 {
                        ready.push(number);
                    }
                }
                Pending::Commit(number) => {
                    let transaction = transactions.remove(&number).expect("it waits for this");
                    handle_commit(now, &transaction, answer.err(), shared);
                }
                Pending::Page(scan) => scans.extend(handle_page(now, *index, scan, answer, shared)),
            }
        });
        if let Err(error) = polled {
            shared.nonsense.get_or_insert_with(|| error.to_string());
        }
        for scan in std::mem::take(&mut self.scans) {
            self.request_page(now, scan, shared);
        }
        for number in std::mem::take(&mut self.ready) {
            self.go_on(now, number, shared);
        }
        if self.pending.is_empty()
            && let Some(errand) = self.errands.pop_front()
        {
            match errand {
                Errand::Call(name, action) => self.call(now, name, action, self.patience, shared),
                Errand::Scan(table) => self.begin_scan(now, table, shared),
            }
        }
        while self.remaining > 0
            && self.pending.len() < shared.settings.window
            && now >= self.next_at
        {
            if self.random.chance(1, 16) {
                let count = self.random.between(2, MAX_TOGETHER);
                self.begin_batch(now, count, shared);
            } else {
                self.remaining -= 1;
                self.begin(now, shared);
            }
            let mean = shared.settings.mean_rest();
            // Calls come in bursts; otherwise they would rarely overlap.
            let rest = if self.random.chance(2, 3) {
                self.random.below(50_000)
            } else {
                self.random.below(6 * mean + 1)
            };
            self.next_at = now + Duration::from_nanos(rest);
        }
        self.core.flush();
    }

    /// Makes up to `count` random calls that share requests.
    fn begin_batch(&mut self, now: Nanos, count: u64, shared: &mut ClientContext<'_>) {
        let count = count.min(self.remaining);
        self.remaining -= count;
        shared
            .trace
            .note(now, format_args!("client {}: the next {count} share requests", self.index));
        self.core.begin_batch();
        self.in_batch = true;
        for _ in 0..count {
            self.begin(now, shared);
        }
        self.in_batch = false;
        self.core.send_batch(now);
    }

    /// Makes a random call.
    fn begin(&mut self, now: Nanos, shared: &mut ClientContext<'_>) {
        let patience = match self.random.below(10) {
            0..3 => self.random.micros(100, 10_000),
            3..8 => self.random.micros(50_000, 500_000),
            _ => self.random.micros(500_000, 4_000_000),
        };
        if shared.settings.ballast > 0 && self.random.chance(1, 4) {
            let (name, action) = self.overwrite_ballast(shared);
            return self.call(now, name, action, patience, shared);
        }
        let table = self.random.pick(shared.tables).id;
        // Some keys are used much more often than others.
        let key = self
            .random
            .below(u64::from(shared.settings.keys))
            .min(self.random.below(u64::from(shared.settings.keys)));
        let name = ObjectName { table, key: u16::try_from(key).expect("few keys") };
        if self.random.chance(1, 16) {
            return self.begin_scan(now, table, shared);
        }
        if self.random.chance(1, shared.settings.transactions) {
            return self.begin_transaction(now, patience, shared);
        }
        let action = self.action(name, shared.settings);
        let action = if shared.history.is_tangled(now, name) { Action::Read } else { action };
        self.call(now, name, action, patience, shared);
    }

    /// Makes a call that overwrites a piece of ballast, so that the cleaner has something to free.
    fn overwrite_ballast(&mut self, shared: &ClientContext<'_>) -> (ObjectName, Action) {
        let key =
            u16::try_from(self.random.below(u64::from(shared.settings.ballast))).expect("few");
        self.last_number += 1;
        let len =
            self.random.between(u64::from(MIN_TEXT), u64::from(shared.settings.ballast_bytes));
        let value =
            Value::Text { id: self.last_number, len: u32::try_from(len).expect("at most 1 MB") };
        (
            ObjectName { table: shared.ballast.id, key },
            Action::Write { value, condition: Condition::None },
        )
    }

    fn action(&mut self, name: ObjectName, settings: &Settings) -> Action {
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
        self.last_number += 1;
        let longest = match self.random.below(20) {
            0..9 => 200,
            9..19 => settings.usual_value,
            _ => settings.longest_value,
        };
        let len = u64::from(MIN_TEXT) + self.random.below(longest - u64::from(MIN_TEXT) + 1);
        Value::Text { id: self.last_number, len: u32::try_from(len).expect("at most 1 MB") }
    }

    fn condition(&mut self, name: ObjectName) -> Condition {
        match self.random.below(10) {
            0..6 => Condition::None,
            6 => Condition::Absent,
            7 => Condition::Exists,
            _ => self
                .last_versions
                .get(&name)
                .map_or(Condition::None, |&version| Condition::Version(version)),
        }
    }

    /// Returns the time to live for a write: a third of the texts expire, most of them soon.
    fn ttl(&mut self, value: Value, name: ObjectName, ballast: u32) -> Option<Ttl> {
        if name.table == ballast
            || !matches!(value, Value::Text { .. })
            || !self.random.chance(1, 3)
        {
            return None;
        }
        let most = self.random.pick(&[50, 2000, 2000, 20_000]);
        Ttl::of_millis(self.random.between(1, *most)).ok()
    }

    fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }

    fn call(
        &mut self,
        now: Nanos,
        name: ObjectName,
        action: Action,
        patience: Duration,
        shared: &mut ClientContext<'_>,
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
            Action::Write { value, condition } => {
                let ttl = self.ttl(value, name, shared.ballast.id);
                if let Some(ttl) = ttl {
                    shared.history.set_ttl(number, ttl.duration());
                }
                Request::Write { table, key, value: &bytes, condition, ttl }
            }
            Action::Expire { .. } => unreachable!("no call"),
            Action::Remove { condition } => Request::Remove { table, key, condition },
            Action::Increment { delta } => Request::IncrementI64 { table, key, delta },
        };
        let tag = self.next_tag();
        self.pending.insert(tag, Pending::Call(number, action));
        self.learn(shared);
        if let Err(error) = self.core.submit(now, tag, &request, now + patience) {
            self.pending.remove(&tag);
            handle_answer(now, number, action, Err(error), shared, &mut self.last_versions);
        }
    }

    fn begin_scan(&mut self, now: Nanos, table: u32, shared: &mut ClientContext<'_>) {
        self.last_number += 1;
        let record = shared.tables.iter().find(|record| record.id == table);
        let index = record.and_then(|record| Some(record.indexes.first()?.id));
        let is_ordered = record.is_some_and(|record| record.ordered);
        let next = match index {
            Some(index) if self.random.chance(1, 2) => self.fields_to_scan(index),
            _ if is_ordered && self.random.chance(3, 4) => {
                self.keys_to_scan(table, shared.settings)
            }
            _ => Next::Positions(None),
        };
        let number = self.last_number;
        shared.trace.note(
            now,
            format_args!("client {} scans table {table}, scan {number}: {next:?}", self.index),
        );
        let scan = Scan { number, table, next, invoked: 0, began: now, tries: 0, pages: 0 };
        self.request_page(now, scan, shared);
    }

    /// Returns a random range of keys.
    fn keys_to_scan(&mut self, table: u32, settings: &Settings) -> Next {
        let mut bound = || {
            let key = u16::try_from(self.random.below(settings.keys.into())).expect("few keys");
            let key = ObjectName { table, key }.bytes();
            match self.random.below(4) {
                0 => Bound::Included(key),
                1 => Bound::Excluded(key),
                _ => Bound::Unbounded,
            }
        };
        let (from, to) = (bound(), bound());
        let descending = self.random.chance(1, 2);
        let limit = u32::try_from(self.random.between(1, 12)).expect("few");
        Next::Keys { index: OWN_KEYS, from, to, descending, limit }
    }

    /// Returns a random range of fields.
    fn fields_to_scan(&mut self, index: u32) -> Next {
        let mut bound = |bound: fn(Vec<u8>) -> Bound<Vec<u8>>| {
            let field = Field::Integer(self.random.draw().cast_signed()).encode();
            if self.random.chance(1, 2) { bound(field) } else { Bound::Unbounded }
        };
        let (from, to) = (bound(Bound::Included), bound(Bound::Excluded));
        let descending = self.random.chance(1, 2);
        let limit = u32::try_from(self.random.between(1, 12)).expect("few");
        Next::Keys { index, from, to, descending, limit }
    }

    fn request_page(&mut self, now: Nanos, mut scan: Scan, shared: &mut ClientContext<'_>) {
        if scan.tries == 0 {
            (scan.invoked, scan.began) = (shared.history.moment(), now);
        }
        scan.tries += 1;
        scan.pages += 1;
        let Scan { number, table, ref next, .. } = scan;
        if scan.pages > MAX_PAGES {
            shared.nonsense.get_or_insert_with(|| format!("scan {number} never ends"));
            return;
        }
        let tag = self.next_tag();
        self.learn(shared);
        let deadline = now + Duration::from_secs(2);
        let mut query = Vec::new();
        let request = match next {
            &Next::Positions(after) => Request::Scan { table, after },
            Next::Keys { index, limit, .. } => {
                let range = next.range().expect("of keys");
                let query = RangeQuery::write(&mut query, *index, &range, *limit);
                Request::ScanRange { table, position: 0, query }
            }
        };
        // Otherwise the table was dropped meanwhile.
        if self.core.submit(now, tag, &request, deadline).is_ok() {
            self.pending.insert(tag, Pending::Page(scan));
        }
    }

    fn learn(&mut self, shared: &ClientContext<'_>) {
        if self.learned.replace(shared.edition) == Some(shared.edition) {
            return;
        }
        for table in shared.tables.iter().chain([shared.ballast]) {
            self.core.learn(table).expect("locators of the simulator are good");
        }
    }
}

/// Handles the answer to a call.
fn handle_answer(
    now: Nanos,
    number: usize,
    action: Action,
    answer: Result<Answer<'_>, Error>,
    shared: &mut ClientContext<'_>,
    last_versions: &mut BTreeMap<ObjectName, u64>,
) {
    let response = match &answer {
        Ok(answer) => response_of(action, answer),
        Err(error) if error.is_indeterminate() => Some(Response::Unknown),
        Err(Error::Timeout { .. } | Error::Recovering { .. } | Error::TableDropped(_)) => {
            Some(Response::NotDone)
        }
        Err(_) => None,
    };
    let name = shared.history.operations[number].name;
    let Some(response) = response else {
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
    match response {
        Response::Found { version, .. }
        | Response::Done { version }
        | Response::Sum { version, .. } => {
            last_versions.insert(name, version);
        }
        _ => {}
    }
    shared.history.respond(now, number, response);
    match answer.err() {
        Some(error) => {
            shared.trace.note(now, format_args!("#{number} receives: {response} ({error})"))
        }
        None => shared.trace.note(now, format_args!("#{number} receives: {response}")),
    }
}

/// Turns an answer into a response; `None` if no server should give this answer.
fn response_of(action: Action, answer: &Answer<'_>) -> Option<Response> {
    let version = answer.number;
    Some(match (answer.status, action) {
        (Status::Ok, Action::Read) => {
            let value = Value::decode(answer.value_type(), answer.body)?;
            Response::Found { version, value }
        }
        (Status::Ok, Action::Increment { .. }) => {
            Response::Sum { sum: i64::from_le_bytes(answer.body.try_into().ok()?), version }
        }
        (Status::Ok, _) => Response::Done { version },
        (Status::NotFound, Action::Read | Action::Remove { .. }) => Response::Absent,
        (Status::Conflict, Action::Write { .. } | Action::Remove { .. }) => {
            Response::Conflict((version != 0).then_some(version))
        }
        (Status::NotANumber, Action::Increment { .. }) => Response::NotANumber,
        (Status::WritesStopped, _) => Response::Unknown,
        (Status::TooFewServers, _) if answer.number == 0 => Response::NotDone,
        (Status::TooFewServers, _) => Response::Unknown,
        (
            Status::MemoryFull | Status::DiskFull,
            Action::Write { .. } | Action::Remove { .. } | Action::Increment { .. },
        ) => Response::NotDone,
        (Status::UnknownTable, _) => Response::NotDone,
        _ => return None,
    })
}

impl Next {
    /// Returns the range of keys, if it is one.
    fn range(&self) -> Option<KeyRange<'_>> {
        let Self::Keys { from, to, descending, .. } = self else { return None };
        let [from, to] = [from, to].map(|bound| bound.as_ref().map(Vec::as_slice));
        Some(KeyRange { from, to, descending: *descending })
    }

    /// Returns what comes after a page whose last key is this.
    fn after(&self, key: &[u8]) -> Self {
        let mut next = self.clone();
        if let Self::Keys { from, to, descending, .. } = &mut next {
            *(if *descending { to } else { from }) = Bound::Excluded(key.to_vec());
        }
        next
    }

    /// Returns what a page covers that leaves `next` for later.
    fn until(&self, next: Option<&Self>) -> Span {
        match (self, next) {
            (Self::Positions(after), Some(Self::Positions(next))) => Span::Positions(*after, *next),
            (Self::Positions(after), _) => Span::Positions(*after, None),
            (Self::Keys { index, from, to, descending, .. }, next) => {
                let (mut from, mut to) = (from.clone(), to.clone());
                match next {
                    Some(Self::Keys { to: Bound::Excluded(last), .. }) if *descending => {
                        from = Bound::Included(last.clone());
                    }
                    Some(Self::Keys { from: Bound::Excluded(last), .. }) => {
                        to = Bound::Included(last.clone());
                    }
                    _ => {}
                }
                if *index == OWN_KEYS { Span::Keys(from, to) } else { Span::Fields(from, to) }
            }
        }
    }
}

/// Handles a page of a scan; returns the scan if it continues.
fn handle_page(
    now: Nanos,
    client: usize,
    scan: Scan,
    answer: Result<Answer<'_>, Error>,
    shared: &mut ClientContext<'_>,
) -> Option<Scan> {
    let Scan { number, table, invoked, began, .. } = scan;
    let answer = match answer {
        Ok(answer) if answer.status == Status::Ok => answer,
        // The scan has guaranteed nothing yet.
        Ok(Answer { status: Status::UnknownTable | Status::NoSuchIndex, .. })
        | Err(Error::TableDropped(_)) => return None,
        Ok(Answer { status: Status::WritesStopped | Status::TooFewServers, .. })
        | Err(Error::Timeout { .. } | Error::Recovering { .. }) => {
            return (scan.tries < PAGE_TRIES).then_some(scan);
        }
        other => {
            shared.nonsense.get_or_insert_with(|| format!("scan {number} was answered: {other:?}"));
            return None;
        }
    };
    let parsed = match &scan.next {
        Next::Positions(_) => {
            let items: Option<Vec<Item<'_>>> = Items::new(answer.body, answer.count).collect();
            let next = answer.more.then_some(Next::Positions(Some(answer.number)));
            items.map(|items| (items, next))
        }
        keys @ Next::Keys { index, .. } => RangePage::parse(&answer, *index).and_then(|page| {
            let (rows, range) = (page.rows()?, keys.range()?);
            let is_sorted =
                rows.is_sorted_by(|(one, _), (other, _)| range.comes_before(one, other));
            let items = rows.into_iter().map(|(_, item)| item).collect();
            is_sorted.then(|| (items, page.last.map(|last| keys.after(last))))
        }),
    };
    let Some((items, next)) = parsed else {
        shared.nonsense.get_or_insert_with(|| {
            format!("scan {number}: a malformed page, or rows out of order: {answer:?}")
        });
        return None;
    };
    // The accounts are not among the table's keys.
    let items = items.iter().filter(|item| !is_account(table, item.key));
    let row = |item: &Item<'_>| {
        Some((item.key.to_vec(), item.version, Value::decode(item.value_type, item.value)?))
    };
    let Some(rows) = items.map(row).collect::<Option<Vec<_>>>() else {
        shared.nonsense.get_or_insert_with(|| format!("scan {number}: a row that no client wrote"));
        return None;
    };
    let returned = shared.history.moment();
    shared.trace.note(now, format_args!("scan {number} gets {} rows, next {next:?}", rows.len()));
    shared.history.turn_page(Page {
        client,
        scan: number,
        table,
        span: scan.next.until(next.as_ref()),
        rows,
        invoked,
        returned,
        began,
        ended: now,
    });
    next.map(|next| Scan { next, tries: 0, ..scan })
}
