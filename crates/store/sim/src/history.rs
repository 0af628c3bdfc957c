//! What was asked and what was told, in order.

use sprat_chance::mix;
use sprat_net::Nanos;
use sprat_wire::op::Condition;
use sprat_wire::value::ValueType;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Moment of a call that has no end: its outcome is not known, and may come about any time later,
/// or never.
pub const OPEN: u64 = u64::MAX;

/// How long after its caller gave up a call may still take place: nothing of it is under way any
/// more then, and a server that had it before has executed it or is dead. To hold the store to that
/// is stricter than to let it come at any time, and keeps small what the check has to choose from.
pub const SETTLED: Duration = Duration::from_secs(10);

/// Changes of one object at most of which nobody knows yet whether they took place: in what order
/// some of ten were done can be found out, of fifty it cannot.
pub const MAX_UNSETTLED: usize = 10;

/// What an object holds. Every text is written by one operation only, so that a reader knows whose
/// it is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Value {
    /// Eight bytes that a client wrote, which can be incremented.
    Number(i64),
    /// An integer counter: the sum of an increment.
    Sum(i64),
    /// A text made for one write; never of eight bytes.
    Text {
        /// Which.
        id: u64,
        /// Bytes.
        len: u32,
    },
}

/// Fewest bytes of a text: its id, and one more.
pub const MIN_TEXT: u32 = 9;

impl Value {
    /// Its bytes.
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

    /// What bytes of this type stand for; `None` if no client can have written them.
    #[must_use]
    pub fn decode(value_type: ValueType, bytes: &[u8]) -> Option<Self> {
        let number = bytes.try_into().map(i64::from_le_bytes);
        match (value_type, number) {
            (ValueType::Bytes, Ok(number)) => return Some(Self::Number(number)),
            (ValueType::Integer, Ok(number)) => return Some(Self::Sum(number)),
            (ValueType::Bytes, Err(_)) => {}
            (ValueType::Integer | ValueType::Double, _) => return None,
        }
        let id = u64::from_le_bytes(*bytes.first_chunk()?);
        let text = Self::Text { id, len: u32::try_from(bytes.len()).ok()? };
        (text.encode() == bytes).then_some(text)
    }
}

/// What a client asks of one object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Its value.
    Read,
    /// To have this value.
    Write {
        /// The value.
        value: Value,
        /// What must hold first.
        condition: Condition,
    },
    /// To be gone.
    Remove {
        /// What must hold first.
        condition: Condition,
    },
    /// To grow.
    Increment {
        /// By how much.
        delta: i64,
    },
}

/// What the client was told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Told {
    /// Nothing yet, or that it may or may not have been done.
    Unknown,
    /// That it was not done and never will be.
    NotDone,
    /// The object, read.
    Found {
        /// Its version.
        version: u64,
        /// Its value.
        value: Value,
    },
    /// There is no such object.
    Absent,
    /// Written, and now of this version; or removed, when it had this version.
    Done {
        /// The version.
        version: u64,
    },
    /// The condition did not hold: the version there is.
    Conflict(Option<u64>),
    /// Incremented.
    Sum {
        /// To this.
        sum: i64,
        /// And of this version.
        version: u64,
    },
    /// It cannot be incremented.
    NotANumber,
}

/// An object's name: table and key.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name {
    /// Table id.
    pub table: u32,
    /// Which of the keys.
    pub key: u16,
}

impl Name {
    /// The key's bytes: most are short, one is longer than a frame, one has none.
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

/// One call on one object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Operation {
    /// Its number among all.
    pub number: usize,
    /// Who asked.
    pub client: usize,
    /// Of which object.
    pub name: Name,
    /// What.
    pub action: Action,
    /// When it was asked: moments are numbered as they pass, no two are the same.
    pub invoked: u64,
    /// When it was told; [`OPEN`] while it may yet be done.
    pub returned: u64,
    /// When it was asked, in virtual time.
    pub began: Nanos,
    /// When it was told, in virtual time.
    pub ended: Nanos,
    /// What was told.
    pub told: Told,
}

/// One page of a scan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Page {
    /// Who asked.
    pub client: usize,
    /// Of which scan, numbered.
    pub scan: u64,
    /// Of which table.
    pub table: u32,
    /// From behind this cursor.
    pub after: Option<u64>,
    /// The cursor to go on from; `None` at the end.
    pub next: Option<u64>,
    /// Keys, versions and values.
    pub rows: Vec<(Vec<u8>, u64, Value)>,
    /// When it was asked.
    pub invoked: u64,
    /// When it was told.
    pub returned: u64,
    /// When it was told, in virtual time.
    pub ended: Nanos,
}

/// Everything that was asked and told.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Calls in the order in which they were asked.
    pub operations: Vec<Operation>,
    /// Pages in the order in which they were told.
    pub pages: Vec<Page>,
    moments: u64,
    /// Changes of each object that were not told when it was last looked, by their numbers.
    unsettled: BTreeMap<Name, Vec<usize>>,
    /// What was asked before this moment may have been lost again, acknowledged or not.
    lost: u64,
}

impl History {
    /// The first call, of those from number `first` on, of which nobody knows how it ended, or that
    /// read nothing.
    pub fn unanswered(&self, first: usize) -> Option<&Operation> {
        self.operations[first..].iter().find(|call| match call.told {
            Told::Unknown => true,
            Told::NotDone => call.action == Action::Read,
            _ => false,
        })
    }

    /// Numbers a moment.
    pub fn moment(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    /// A call is asked; returns its number.
    pub fn invoke(&mut self, now: Nanos, client: usize, name: Name, action: Action) -> usize {
        let (number, invoked) = (self.operations.len(), self.moment());
        let told = Told::Unknown;
        let operation = Operation {
            number,
            client,
            name,
            action,
            invoked,
            returned: OPEN,
            began: now,
            ended: now,
            told,
        };
        self.operations.push(operation);
        if action != Action::Read {
            self.unsettled.entry(name).or_default().push(number);
        }
        number
    }

    /// Whether so many changes of the object are open already that no other should be asked for.
    pub fn is_tangled(&mut self, now: Nanos, name: Name) -> bool {
        let Self { operations, unsettled, .. } = self;
        let Some(numbers) = unsettled.get_mut(&name) else { return false };
        numbers.retain(|&number| {
            operations[number].returned == OPEN && operations[number].ended + SETTLED > now
        });
        numbers.len() >= MAX_UNSETTLED
    }

    /// Everything asked so far may be lost, or not: whatever was told of it says nothing any more.
    pub fn lose(&mut self) {
        self.lost = self.moment();
        for operation in
            self.operations.iter_mut().filter(|operation| operation.told != Told::NotDone)
        {
            (operation.told, operation.returned) = (Told::Unknown, OPEN);
        }
        self.pages.clear();
    }

    /// Of calls with lower numbers than `first`, what was merely seen says nothing: whoever told it
    /// may not have known what others had done since. What was changed says as much as ever.
    pub fn forgive(&mut self, first: usize) {
        for operation in &mut self.operations[..first] {
            match operation.told {
                Told::Unknown | Told::NotDone | Told::Done { .. } | Told::Sum { .. } => {}
                Told::Found { .. } | Told::Absent | Told::Conflict(_) | Told::NotANumber => {
                    operation.told = Told::NotDone
                }
            }
        }
        let since = self.operations.get(first).map_or(u64::MAX, |operation| operation.invoked);
        self.pages.retain(|page| page.invoked > since);
    }

    /// A page of a scan is told.
    pub fn turn_page(&mut self, page: Page) {
        if page.invoked > self.lost {
            self.pages.push(page);
        }
    }

    /// A call is told. When that says nothing for certain, the call stays open.
    pub fn tell(&mut self, now: Nanos, number: usize, told: Told) {
        let moment = self.moment();
        let operation = &mut self.operations[number];
        assert!(operation.returned == OPEN, "told once");
        operation.ended = now;
        if told == Told::NotDone || (told != Told::Unknown && operation.invoked > self.lost) {
            (operation.told, operation.returned) = (told, moment);
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

impl fmt::Display for Name {
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
            Self::Increment { delta } => write!(f, "add {delta}"),
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("perhaps"),
            Self::NotDone => f.write_str("not done"),
            Self::Found { version, value } => write!(f, "version {version}, {value}"),
            Self::Absent => f.write_str("absent"),
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
        let Self { number, client, name, action, began, ended, told, .. } = self;
        write!(
            f,
            "{:.6}..{:.6} #{number} client {client} {name} {action}: {told}",
            seconds(*began),
            seconds(*ended)
        )
    }
}
