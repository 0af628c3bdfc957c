//! Calls and their responses, in order.

use sprat_chance::mix;
use sprat_net::Nanos;
use sprat_wire::expiry::Time;
use sprat_wire::index::{FieldSource, IndexDefinition};
use sprat_wire::op::Condition;
use sprat_wire::value::ValueType;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::time::Duration;

/// Stands for the moment of a response that does not exist. The outcome of the call is unknown: it
/// may take place at any later time, or never.
pub const OPEN: u64 = u64::MAX;

/// How long a call may still take place after its caller has given it up. After that no frame of it
/// is in flight, and a server that received it has executed it or is dead. Without this bound the
/// check would have to consider that a call may take place at any later time, and would have more
/// choices to try.
pub const SETTLED: Duration = Duration::from_secs(10);

/// How far the times of two servers may be apart: their clocks ([`CLOCK_SKEW`]), and what a time
/// record is ahead, several times in a row if a table moves on at once.
pub const CLOCKS_APART: Duration = Duration::from_millis(1500);

/// How far the servers' clocks are apart.
pub const CLOCK_SKEW: Duration = Duration::from_secs(1);

/// Returns the time of a server's clock at the beginning of the run, by a random number.
#[must_use]
pub fn clock(random: u64) -> Time {
    let skew = u64::try_from(CLOCK_SKEW.as_millis()).expect("a second");
    1_000_000 + mix(random) % (skew + 1)
}

/// The largest number of changes of unknown outcome that one object may have: the check can find an
/// order with ten of them, but not with fifty. The limit does not apply to the objects that only
/// fill the log.
pub const MAX_UNSETTLED: usize = 10;

/// The value of an object. Each text is written by one operation only, so that a read shows which
/// write it saw.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Value {
    /// Eight bytes that a client wrote. They can be incremented.
    Number(i64),
    /// An integer counter, the result of increments.
    Sum(i64),
    /// A text that is made for one write. It never has eight bytes.
    Text {
        /// The text's number.
        id: u64,
        /// The text's length in bytes.
        len: u32,
    },
}

/// The shortest text, in bytes: its eight-byte id and one more.
pub const MIN_TEXT: u32 = 9;

impl Value {
    /// Encodes the value as the bytes that are stored.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        match self {
            Self::Number(number) | Self::Sum(number) => number.to_le_bytes().to_vec(),
            Self::Text { id, len } => {
                assert!(len >= MIN_TEXT);
                let len = usize::try_from(len).expect("at most 1 MB");
                let mut bytes = Vec::with_capacity(len + 8);
                bytes.extend_from_slice(&id.to_le_bytes());
                let mut word = mix(id);
                while bytes.len() < len {
                    bytes.extend_from_slice(&word.to_le_bytes());
                    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
                }
                bytes.truncate(len);
                bytes
            }
        }
    }

    /// Returns the value that is written to an object at the end of a history.
    #[must_use]
    pub fn last(name: ObjectName) -> Self {
        let id = u64::MAX - (u64::from(name.table) << 16) - u64::from(name.key);
        Self::Text { id, len: MIN_TEXT }
    }

    /// Returns what the indexes of the simulated tables find in values: a number in texts of at
    /// least 16 bytes, which is as good as random.
    #[must_use]
    pub fn index() -> IndexDefinition {
        let source = FieldSource::Offset { at: 8, length: 8 };
        IndexDefinition { source, field_type: ValueType::Integer }
    }

    /// Returns the field that such an [index](Self::index) finds.
    #[must_use]
    pub fn field(self) -> Option<i64> {
        match self {
            Self::Text { id, len } if len >= 16 => Some(mix(id).cast_signed()),
            _ => None,
        }
    }

    /// Decodes bytes of this type; `None` if no client can have written them.
    #[must_use]
    pub fn decode(value_type: ValueType, bytes: &[u8]) -> Option<Self> {
        let number = bytes.try_into().map(i64::from_le_bytes);
        match (value_type, number) {
            (ValueType::Bytes, Ok(number)) => return Some(Self::Number(number)),
            (ValueType::Integer, Ok(number)) => return Some(Self::Sum(number)),
            (ValueType::Bytes, Err(_)) => {}
            (ValueType::Integer | ValueType::Double | ValueType::Collection, _) => return None,
        }
        let id = u64::from_le_bytes(*bytes.first_chunk()?);
        let text = Self::Text { id, len: u32::try_from(bytes.len()).ok()? };
        (text.encode() == bytes).then_some(text)
    }
}

/// A client's request for one object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Read the value.
    Read,
    /// Write this value.
    Write {
        /// The value.
        value: Value,
        /// The condition for the write.
        condition: Condition,
    },
    /// Remove the object.
    Remove {
        /// The condition for the removal.
        condition: Condition,
    },
    /// Not a call: the object expires if it has this value. See [`History::expiries`].
    Expire {
        /// The value, a text.
        value: Value,
    },
    /// Increment the value by `delta`.
    Increment {
        /// The number to add.
        delta: i64,
    },
}

/// The response to a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Response {
    /// There is no response, or one that leaves open whether the call was executed.
    Unknown,
    /// The call was not executed and never will be.
    NotDone,
    /// The object was read.
    Found {
        /// The object's version.
        version: u64,
        /// The object's value.
        value: Value,
    },
    /// There is no such object.
    Absent,
    /// The object was not among those of an index whose field is one of these. So there is none, or
    /// it has no [field](Value::field), or another one.
    Outside {
        /// The lowest of these fields.
        first: i64,
        /// The highest of them.
        last: i64,
    },
    /// The object was written and now has this version; or it was removed and had this version.
    Done {
        /// The version.
        version: u64,
    },
    /// The transaction of which the call is a part was committed. The version that the object now
    /// has, or had before it was removed, is unknown.
    Committed,
    /// The condition did not hold. Holds the object's current version, if the object exists.
    Conflict(Option<u64>),
    /// The value was incremented.
    Sum {
        /// The new value.
        sum: i64,
        /// The new version.
        version: u64,
    },
    /// The value cannot be incremented.
    NotANumber,
}

/// An object's name: its table and key.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectName {
    /// Table id.
    pub table: u32,
    /// The number of the key.
    pub key: u16,
}

impl ObjectName {
    /// Returns the key's bytes: most keys are short, one has 3,000 bytes, and one is empty.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        match self.key {
            0 => b"counter".to_vec(),
            4 => [b'k'; 3000].to_vec(),
            5 => Vec::new(),
            key => format!("key {key}").into_bytes(),
        }
    }
}

/// One call on one object, and its response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Operation {
    /// The operation's index in the history.
    pub number: usize,
    /// The client that made the call.
    pub client: usize,
    /// The object.
    pub name: ObjectName,
    /// The action.
    pub action: Action,
    /// The moment of the invocation. Moments are numbers in the order of events; each is used once.
    pub invoked: u64,
    /// The moment of the response; [`OPEN`] while the call may still be executed.
    pub returned: u64,
    /// The virtual time of the invocation.
    pub began: Nanos,
    /// The virtual time of the response; until it arrives, that of the invocation.
    pub ended: Nanos,
    /// The response.
    pub response: Response,
    /// Whether it is a part of a transaction that its client tried to commit.
    pub of_transaction: bool,
}

/// The keys that a page of a scan covers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Span {
    /// Those at positions behind the first cursor, up to the second. `None`: the beginning, or the
    /// end, of the table.
    Positions(Option<u64>, Option<u64>),
    /// Those of an ordered table between two keys.
    Keys(Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// Those of an index between two of its keys.
    Fields(Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// These keys: a page of changes, not of a scan.
    These(Vec<Vec<u8>>),
}

/// One page of a scan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Page {
    /// The client that requested it.
    pub client: usize,
    /// The number of its scan.
    pub scan: u64,
    /// The table's id.
    pub table: u32,
    /// The keys that the page covers.
    pub span: Span,
    /// The rows: key, version and value.
    pub rows: Vec<(Vec<u8>, u64, Value)>,
    /// The moment of the request.
    pub invoked: u64,
    /// The moment of the response.
    pub returned: u64,
    /// The virtual time of the first request for it.
    pub began: Nanos,
    /// The virtual time of the response.
    pub ended: Nanos,
}

/// All calls and responses of a run, for [`check`](crate::check::check).
///
/// A client calls [`invoke`](Self::invoke) when it sends a call, and [`respond`](Self::respond)
/// when it has the response; [`turn_page`](Self::turn_page) records a page of a scan. A call whose
/// response proves nothing stays [`OPEN`]: it may have been executed, may be executed later, or may
/// never be executed.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Calls in the order of their invocations.
    pub operations: Vec<Operation>,
    /// For each transaction that a client tried to commit, the numbers of its calls.
    pub(crate) transactions: Vec<Vec<usize>>,
    /// Pages in the order of their responses.
    pub pages: Vec<Page>,
    /// The time to live that a write gives to its object, by the number of the call.
    ttls: BTreeMap<usize, Duration>,
    moments: u64,
    /// For each object, the numbers of the changes that had no response when they were last
    /// checked.
    unsettled: BTreeMap<ObjectName, Vec<usize>>,
    /// Calls that were invoked before this moment may have been lost, even if they were
    /// acknowledged.
    lost: u64,
    /// Whether clocks may be apart by any time, so that objects may expire at any time.
    pub clocks_differ: bool,
}

impl History {
    /// Returns the first call, from number `first` on, whose outcome is unknown or that is a read
    /// without a result.
    pub fn unanswered(&self, first: usize) -> Option<&Operation> {
        self.operations[first..].iter().find(|call| match call.response {
            Response::Unknown => true,
            Response::NotDone => call.action == Action::Read,
            _ => false,
        })
    }

    /// Returns how many transactions were certainly committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        let is_done = |&number: &usize| {
            let response = self.operations[number].response;
            !matches!(response, Response::Unknown | Response::NotDone)
        };
        self.transactions.iter().filter(|numbers| numbers.iter().all(is_done)).count() as u64
    }

    /// Returns the next moment.
    pub fn moment(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    /// Records an invocation; returns the call's number.
    pub fn invoke(&mut self, now: Nanos, client: usize, name: ObjectName, action: Action) -> usize {
        let (number, invoked) = (self.operations.len(), self.moment());
        let response = Response::Unknown;
        let operation = Operation {
            number,
            client,
            name,
            action,
            invoked,
            returned: OPEN,
            began: now,
            ended: now,
            response,
            of_transaction: false,
        };
        self.operations.push(operation);
        if action != Action::Read {
            self.unsettled.entry(name).or_default().push(number);
        }
        number
    }

    /// Records that these calls are the parts of a transaction that its client tries to commit.
    pub fn transact(&mut self, numbers: &[usize]) {
        for &number in numbers {
            self.operations[number].of_transaction = true;
        }
        self.transactions.push(numbers.to_vec());
    }

    /// Records that a write of a text gives its object this time to live.
    pub fn set_ttl(&mut self, number: usize, ttl: Duration) {
        self.ttls.insert(number, ttl);
    }

    /// Returns, for each write with a time to live, the expiry of its object as a removal that may
    /// take place while the time to live ends by the clock of some server, and at no other time.
    pub fn expiries(&self) -> impl Iterator<Item = Operation> {
        let calls = self.ttls.iter().map(|(&number, &ttl)| (self.operations[number], ttl));
        let sightings = self.sightings();
        let apart = if self.clocks_differ { SETTLED * 100 } else { CLOCKS_APART };
        calls.filter(|(call, _)| call.response != Response::NotDone).map(move |(call, ttl)| {
            let Action::Write { value, .. } = call.action else { unreachable!("a write") };
            let began = (call.began + ttl.saturating_sub(apart)).max(call.began);
            // A transaction's client has its answer before the servers write the changes. If one of
            // them fails, the change waits until its tablet is recovered, for longer than SETTLED
            // (seed 2 of 10,000 operations). At the latest it was written when a client saw it.
            let written = match call.of_transaction {
                true => sightings.get(&value).copied().unwrap_or(Nanos::NEVER),
                false if call.returned == OPEN => call.ended + SETTLED,
                false => call.ended,
            };
            // Before the next call there may be pages of scans, which are no calls. So the moment
            // is the one after the last call.
            let after = self.operations.partition_point(|other| other.began < began);
            let before = self.operations[..after].last();
            let invoked = before.map_or(0, |other| other.invoked + 1);
            Operation {
                action: Action::Expire { value },
                invoked: invoked.max(call.invoked),
                returned: OPEN,
                began,
                ended: written + ttl + apart,
                response: Response::Unknown,
                ..call
            }
        })
    }

    /// Returns, for each value that a client has read, the time of the first response with it.
    fn sightings(&self) -> BTreeMap<Value, Nanos> {
        let read = self.operations.iter().filter_map(|call| match call.response {
            Response::Found { value, .. } => Some((value, call.ended)),
            _ => None,
        });
        let rows = self.pages.iter().flat_map(|page| page.rows.iter().map(move |row| (page, row)));
        let scanned = rows.map(|(page, &(_, _, value))| (value, page.ended));
        let mut sightings = BTreeMap::new();
        for (value, time) in read.chain(scanned) {
            let first = sightings.entry(value).or_insert(time);
            *first = time.min(*first);
        }
        sightings
    }

    /// Returns a read that has found an object after it had expired by every clock; `expiries` are
    /// the history's [expiries](Self::expiries).
    pub fn outlived(&self, expiries: &[Operation]) -> Option<&Operation> {
        let ends: BTreeMap<Value, Nanos> = expiries
            .iter()
            .filter_map(|expiry| match expiry.action {
                Action::Expire { value } => Some((value, expiry.ended)),
                _ => None,
            })
            .collect();
        self.operations.iter().find(|call| match call.response {
            Response::Found { value, .. } => ends.get(&value).is_some_and(|&end| call.began > end),
            _ => false,
        })
    }

    /// Returns whether the object has [`MAX_UNSETTLED`] changes of unknown outcome, so that no
    /// client should request another.
    pub fn is_tangled(&mut self, now: Nanos, name: ObjectName) -> bool {
        let Self { operations, unsettled, .. } = self;
        let Some(numbers) = unsettled.get_mut(&name) else { return false };
        numbers.retain(|&number| {
            operations[number].returned == OPEN && operations[number].ended + SETTLED > now
        });
        numbers.len() >= MAX_UNSETTLED
    }

    /// Records that every call so far may be lost: the responses to these calls no longer prove
    /// anything.
    pub fn lose(&mut self) {
        self.lost = self.moment();
        for operation in
            self.operations.iter_mut().filter(|operation| operation.response != Response::NotDone)
        {
            (operation.response, operation.returned) = (Response::Unknown, OPEN);
        }
        self.pages.clear();
    }

    /// Returns whether acknowledged calls may have been lost.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Records that a table is being dropped. A transaction that was refused because of an object
    /// of this table may still be committed in other tables, if its client ends before the
    /// servers know.
    pub fn note_drop(&mut self, now: Nanos, table: u32) {
        let Self { operations, transactions, .. } = self;
        for numbers in transactions {
            let of_table = |&number: &usize| {
                let Operation { name, response, ended, .. } = operations[number];
                name.table == table && response == Response::NotDone && ended + SETTLED > now
            };
            if !numbers.iter().any(of_table) {
                continue;
            }
            for &mut number in numbers {
                let operation = &mut operations[number];
                (operation.response, operation.returned) = (Response::Unknown, OPEN);
            }
        }
    }

    /// Discards what calls with numbers below `first`, and pages requested before call `first`, say
    /// about the state of objects, because the servers that answered may have been unaware of
    /// changes made at other servers. Responses to changes that took place remain.
    pub fn forgive(&mut self, first: usize) {
        for operation in &mut self.operations[..first] {
            match operation.response {
                Response::Unknown
                | Response::NotDone
                | Response::Done { .. }
                | Response::Committed
                | Response::Sum { .. } => {}
                Response::Found { .. }
                | Response::Absent
                | Response::Outside { .. }
                | Response::Conflict(_)
                | Response::NotANumber => operation.response = Response::NotDone,
            }
        }
        let since = self.operations.get(first).map_or(u64::MAX, |operation| operation.invoked);
        self.pages.retain(|page| page.invoked > since);
    }

    /// Records a page of a scan, unless it was requested before acknowledged calls were lost.
    pub fn turn_page(&mut self, page: Page) {
        if page.invoked > self.lost {
            self.pages.push(page);
        }
    }

    /// Records a response. If it proves nothing, the call stays open.
    pub fn respond(&mut self, now: Nanos, number: usize, response: Response) {
        let moment = self.moment();
        self.respond_at(moment, now, number, response);
    }

    /// Records a response that is known only now, and that holds for an earlier moment and time.
    pub fn respond_at(&mut self, moment: u64, time: Nanos, number: usize, response: Response) {
        let operation = &mut self.operations[number];
        assert!(operation.returned == OPEN, "told once");
        operation.ended = time;
        if response == Response::NotDone
            || (response != Response::Unknown && operation.invoked > self.lost)
        {
            (operation.response, operation.returned) = (response, moment);
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "number {number}"),
            Self::Sum(sum) => write!(f, "sum {sum}"),
            Self::Text { id, len } => write!(f, "text {id} ({len} B)"),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.table, self.key)
    }
}

struct If(Condition);

impl fmt::Display for If {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Condition::None => Ok(()),
            Condition::Absent => f.write_str(" if absent"),
            Condition::Exists => f.write_str(" if present"),
            Condition::Version(version) => write!(f, " if version {version}"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => f.write_str("read"),
            Self::Write { value, condition } => write!(f, "write {value}{}", If(*condition)),
            Self::Remove { condition } => write!(f, "remove{}", If(*condition)),
            Self::Expire { value } => write!(f, "expiry of {value}"),
            Self::Increment { delta } => write!(f, "add {delta}"),
        }
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("perhaps"),
            Self::NotDone => f.write_str("not done"),
            Self::Found { version, value } => write!(f, "version {version}, {value}"),
            Self::Absent => f.write_str("absent"),
            Self::Outside { first, last } => write!(f, "no field in {first}..={last}"),
            Self::Committed => f.write_str("committed"),
            Self::Done { version } => write!(f, "done, version {version}"),
            Self::Conflict(Some(version)) => write!(f, "conflict with version {version}"),
            Self::Conflict(None) => f.write_str("conflict, absent"),
            Self::Sum { sum, version } => write!(f, "number {sum}, version {version}"),
            Self::NotANumber => f.write_str("not a number"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: Nanos| std::time::Duration::from_nanos(time.0).as_secs_f64();
        let Self { number, client, name, action, began, ended, response, .. } = self;
        write!(
            f,
            "{:.6}..{:.6} #{number} client {client} {name} {action}: {response}",
            seconds(*began),
            seconds(*ended)
        )
    }
}
