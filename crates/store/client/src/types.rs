//! Results of operations.

use sprat_wire::expiry::Ttl;
use sprat_wire::op::{Answer, Items, Records};
use sprat_wire::value::{Number, ValueType};

/// A table's id. A table that is dropped and made again gets another id.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Table(pub u32);

/// An object that was read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Object {
    /// The version, which grows with every write of the key, also across removals.
    pub version: u64,
    /// The value.
    pub value: Vec<u8>,
    /// The type of the value: a counter's, or plain bytes.
    pub value_type: ValueType,
    /// After how long the object expires, counted from when the server read it; `None`: never.
    pub ttl: Option<Ttl>,
}

impl Object {
    /// Returns the number, if the object is a counter.
    #[must_use]
    pub fn number(&self) -> Option<Number> {
        Number::of(self.value_type, &self.value)
    }

    /// Makes the object from the answer to a read that found one.
    pub(crate) fn of(answer: &Answer<'_>) -> Self {
        Self {
            version: answer.number,
            value: answer.body.to_vec(),
            value_type: answer.value_type(),
            ttl: answer.ttl(),
        }
    }
}

/// An object in a scan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    /// The key.
    pub key: Vec<u8>,
    /// The version, as in [`Object::version`].
    pub version: u64,
    /// The value.
    pub value: Vec<u8>,
    /// The type of the value: a counter's, or plain bytes.
    pub value_type: ValueType,
    /// After how long the object expires, as in [`Object::ttl`].
    pub ttl: Option<Ttl>,
}

impl Row {
    /// Returns the number, if the object is a counter.
    #[must_use]
    pub fn number(&self) -> Option<Number> {
        Number::of(self.value_type, &self.value)
    }
}

/// A part of a table, as a scan returns it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Page {
    /// Objects, in no meaningful order.
    pub rows: Vec<Row>,
    /// Position to pass to the next scan; `None` at the end of the table. A position stays valid
    /// when the server restarts.
    pub next: Option<u64>,
}

/// The size of a table.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TableStats {
    /// Number of objects.
    pub objects: u64,
    /// Bytes of the log that the live objects take, headers and keys included.
    pub bytes: u64,
}

/// One of a server's counters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Counter {
    /// The counter's name, as in the metrics.
    pub name: String,
    /// The counter's value.
    pub value: u64,
}

impl Page {
    /// Makes the page from the answer to a scan.
    pub(crate) fn of(answer: &Answer<'_>) -> Option<Self> {
        let row = |item: sprat_wire::op::Item<'_>| Row {
            key: item.key.to_vec(),
            version: item.version,
            value: item.value.to_vec(),
            value_type: item.value_type,
            ttl: item.ttl,
        };
        let rows = Items::new(answer.body, answer.count)
            .map(|item| item.map(row))
            .collect::<Option<_>>()?;
        Some(Self { rows, next: answer.more.then_some(answer.number) })
    }
}

impl TableStats {
    /// Makes the size from a server's answer.
    pub(crate) fn of(answer: &Answer<'_>) -> Option<Self> {
        let (_, bytes) = Records::new(answer.body).counter()?;
        Some(Self { objects: answer.number, bytes })
    }
}

impl Counter {
    /// Reads the next counter of an answer.
    pub(crate) fn of(records: &mut Records<'_>) -> Option<Self> {
        let (name, value) = records.counter()?;
        Some(Self { name: name.to_owned(), value })
    }
}

/// Reads all records of an answer's body, which are of one kind.
pub(crate) fn list<'a, T>(
    answer: &Answer<'a>,
    mut next: impl FnMut(&mut Records<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let mut records = Records::new(answer.body);
    let mut all = Vec::new();
    while !records.is_done() {
        all.push(next(&mut records)?);
    }
    Some(all)
}
