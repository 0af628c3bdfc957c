//! What operations give.

use crate::error::Error;
use sprat_wire::op::{Answer, Items, Records};
use sprat_wire::value::{Number, ValueType};

/// A table, by the id its name stands for now.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Table(pub u32);

/// An object as read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Object {
    /// Its version: grows with every write of the key, also across removals.
    pub version: u64,
    /// Its value.
    pub value: Vec<u8>,
    /// What its value is: a counter's, or just bytes.
    pub value_type: ValueType,
}

impl Object {
    /// The number, if the object is a counter.
    #[must_use]
    pub fn number(&self) -> Option<Number> {
        Number::of(self.value_type, &self.value)
    }

    /// The object in the answer to a read that found one.
    pub(crate) fn of(answer: &Answer<'_>) -> Self {
        let value_type = ValueType::of_code(answer.count);
        Self { version: answer.number, value: answer.body.to_vec(), value_type }
    }
}

/// An object as scanned.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    /// Its key.
    pub key: Vec<u8>,
    /// Its version.
    pub version: u64,
    /// Its value.
    pub value: Vec<u8>,
    /// What its value is: a counter's, or just bytes.
    pub value_type: ValueType,
}

impl Row {
    /// The number, if the object is a counter.
    #[must_use]
    pub fn number(&self) -> Option<Number> {
        Number::of(self.value_type, &self.value)
    }
}

/// Part of a table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Page {
    /// Objects, in no order that means anything.
    pub rows: Vec<Row>,
    /// Where to go on; `None` at the end. Stays good across restarts of the server.
    pub next: Option<u64>,
}

/// How much a table holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TableStats {
    /// Objects.
    pub objects: u64,
    /// Bytes of log that its live objects take, headers and keys included.
    pub bytes: u64,
}

/// One of a server's counters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Counter {
    /// Its name, as in the metrics.
    pub name: String,
    /// Its value.
    pub value: u64,
}

impl Page {
    /// The page in the answer to a scan.
    pub(crate) fn of(answer: &Answer<'_>) -> Option<Self> {
        let row = |item: sprat_wire::op::Item<'_>| Row {
            key: item.key.to_vec(),
            version: item.version,
            value: item.value.to_vec(),
            value_type: item.value_type,
        };
        let rows = Items::new(answer.body, answer.count)
            .map(|item| item.map(row))
            .collect::<Option<_>>()?;
        Some(Self { rows, next: answer.more.then_some(answer.number) })
    }
}

/// Reads a body of records of one kind.
pub(crate) fn list<'a, T>(
    answer: &Answer<'a>,
    mut next: impl FnMut(&mut Records<'a>) -> Option<T>,
) -> Result<Vec<T>, Error> {
    let mut records = Records::new(answer.body);
    let mut all = Vec::new();
    while !records.is_done() {
        all.push(
            next(&mut records).ok_or_else(|| Error::Protocol { server: "the server".into() })?,
        );
    }
    Ok(all)
}
