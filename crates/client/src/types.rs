//! What operations give.

use crate::error::Error;
use sprat_wire::op::{Answer, Items, Records};

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
        };
        let rows = Items::new(answer.body, answer.count).map(|item| item.map(row)).collect::<Option<_>>()?;
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
        all.push(next(&mut records).ok_or_else(|| Error::Protocol { server: "the server".into() })?);
    }
    Ok(all)
}
