//! Results of operations.

use crate::keys::Keys;
use sprat_wire::expiry::Ttl;
use sprat_wire::index::OrderStats;
use sprat_wire::op::{Answer, CopySegment, Item, Items, Records, Status, WatchPage, push_counter};
use sprat_wire::order::RangePage;
use sprat_wire::tablet::Range;
use sprat_wire::value::{Number, ValueType};
use zerocopy::FromBytes as _;

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

/// A part of a range of keys, as [`scan_keys`](crate::Client::scan_keys) returns it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyPage {
    /// Objects, in the order of the scan. There may be none although more follow.
    pub rows: Vec<Row>,
    /// The keys to pass to the next scan; `None` at the end of the range.
    pub next: Option<Keys>,
}

/// The size of a table.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TableStats {
    /// Number of objects.
    pub objects: u64,
    /// Bytes of the log that the live objects take, headers and keys included.
    pub bytes: u64,
    /// The order of its keys and its indexes, as far as it has any.
    pub orders: Vec<OrderStats>,
}

/// What has changed in a tablet, as [`watch_tablet`](crate::AsyncClient::watch_tablet) returns it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TabletChanges {
    /// The feed that the changes are of.
    pub feed: u64,
    /// Whether they go on from where the client was; otherwise it must list the tablet's objects.
    pub continues: bool,
    /// The number of the first change that is not among these.
    pub next: u64,
    /// The positions of the tablet.
    pub range: Range,
    /// The seed of positions.
    pub seed: u64,
    /// Objects that have changed and exist.
    pub present: Vec<Row>,
    /// Keys of objects that were removed.
    pub removed: Vec<Vec<u8>>,
}

impl TabletChanges {
    pub(crate) fn of(answer: &Answer<'_>) -> Option<Self> {
        let WatchPage { feed, continues, next, range, seed, present, removed } =
            WatchPage::parse(answer)?;
        Some(Self {
            feed,
            continues,
            next,
            range,
            seed,
            present: present.into_iter().map(row).collect(),
            removed: removed.into_iter().map(|item| item.key.to_vec()).collect(),
        })
    }
}

/// What a server returns for a step of a copy of its log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CopiedPiece {
    /// Whether the server has what the step names: the segment, or the cut.
    pub found: bool,
    /// Whether the segment has further entries.
    pub more: bool,
    /// The number of the cut, or how many bytes of the segment were read.
    pub number: u64,
    /// Entries, or a list of segments.
    pub bytes: Vec<u8>,
}

impl CopiedPiece {
    /// Makes the piece from an answer whose status is `Ok` or `NotFound`.
    #[must_use]
    pub fn of(answer: &Answer<'_>) -> Self {
        let Answer { status, more, number, body, .. } = *answer;
        Self { found: status == Status::Ok, more, number, bytes: body.to_vec() }
    }

    /// Returns the list of segments; `None` if it is not one.
    #[must_use]
    pub fn segments(&self) -> Option<&[CopySegment]> {
        <[CopySegment]>::ref_from_bytes(&self.bytes).ok()
    }
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
        let rows = rows(Items::new(answer.body, answer.count))?;
        Some(Self { rows, next: answer.more.then_some(answer.number) })
    }
}

impl KeyPage {
    /// Makes the page from the answer to a scan of these keys.
    pub(crate) fn of(answer: &Answer<'_>, keys: Keys) -> Option<Self> {
        let RangePage { items, last, .. } = RangePage::parse(answer, keys.index())?;
        Some(Self { rows: rows(items)?, next: last.map(|last| keys.behind(last)) })
    }
}

fn rows(items: Items<'_>) -> Option<Vec<Row>> {
    items.map(|item| item.map(row)).collect()
}

fn row(item: Item<'_>) -> Row {
    Row {
        key: item.key.to_vec(),
        version: item.version,
        value: item.value.to_vec(),
        value_type: item.value_type,
        ttl: item.ttl,
    }
}

impl TableStats {
    /// Makes the size from a server's answer.
    pub(crate) fn of(answer: &Answer<'_>) -> Option<Self> {
        let mut records = Records::new(answer.body);
        let (_, bytes) = records.counter()?;
        let mut orders = Vec::new();
        while !records.is_done() {
            orders.push(OrderStats::read(&mut records)?);
        }
        Some(Self { objects: answer.number, bytes, orders })
    }

    /// Adds what another server has of the table.
    pub(crate) fn add(&mut self, other: &Self) {
        // Saturating, because the numbers come from servers.
        self.objects = self.objects.saturating_add(other.objects);
        self.bytes = self.bytes.saturating_add(other.bytes);
        for order in &other.orders {
            match self.orders.iter_mut().find(|known| known.index == order.index) {
                Some(known) => known.add(order),
                None => self.orders.push(*order),
            }
        }
    }

    /// Appends the size to the body of an answer, except for the number of objects.
    pub(crate) fn push_to(&self, body: &mut Vec<u8>) {
        push_counter(body, "bytes", self.bytes);
        self.orders.iter().for_each(|order| order.push_to(body));
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
