//! Lists in the bodies of responses.

use crate::expiry::Ttl;
use crate::index::{IndexRecord, MAX_INDEXES};
use crate::tablet::{MAX_TABLETS, Range};
use crate::value::ValueType;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A table in the answer of a coordinator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TableRecord {
    /// Table id; never used again after the table is dropped.
    pub id: u32,
    /// The table's name.
    pub name: String,
    /// Seed of the [positions](crate::tablet::position) of the table's keys.
    pub seed: u64,
    /// What becomes of the objects when memory is full.
    pub when_full: WhenFull,
    /// Whether the servers keep the keys in order, so that ranges of them can be scanned.
    pub ordered: bool,
    /// The table's indexes, ascending by their numbers.
    pub indexes: Vec<IndexRecord>,
    /// The table's tablets, ascending: the first begins at zero, and each ends where the next
    /// begins.
    pub tablets: Vec<TabletRecord>,
}

/// A tablet in its table's record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TabletRecord {
    /// The tablet's first position.
    pub first: u64,
    /// Id of the server that serves the tablet.
    pub server: u32,
    /// Locator of that server; empty while the tablet has no server.
    pub locator: String,
}

/// What becomes of a table's objects when a write, of whatever table, finds no room in the memory
/// or on the disk of its server.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub enum WhenFull {
    /// They stay. The write is refused if no objects of other tables give way.
    #[default]
    Refuse = 0,
    /// Those that were not used lately are removed, until the write has room.
    Evict = 1,
}

impl WhenFull {
    /// Returns the variant of this code; `None` for an unknown one.
    #[must_use]
    pub fn of(code: u8) -> Option<Self> {
        [Self::Refuse, Self::Evict].get(usize::from(code)).copied()
    }
}

/// What a table is made with, besides its name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TableOptions {
    /// Number of tablets, at most [`MAX_TABLETS`]; zero: the coordinator decides.
    pub tablets: u32,
    /// What becomes of the objects when memory is full.
    pub when_full: WhenFull,
    /// Whether the servers keep the keys in order, so that ranges of them can be scanned.
    pub ordered: bool,
}

impl TableOptions {
    /// Returns the options of a table of this many tablets.
    #[must_use]
    pub fn of(tablets: u32) -> Self {
        Self { tablets, ..Self::default() }
    }
}

/// The bit in a table record's number of tablets that says that its objects are
/// [evicted](WhenFull::Evict). Programs from before there was eviction refuse such a record.
const EVICTS: u32 = 1 << 31;

/// The bit that says that the table is ordered. Programs from before there was order refuse such a
/// record.
const ORDERED: u32 = 1 << 30;

/// The bit that says that the table has indexes; then their number and records follow the tablets.
/// Programs from before there were indexes refuse such a record.
const INDEXED: u32 = 1 << 29;

impl TableRecord {
    /// Returns the tablets, each with its range.
    pub fn ranges(&self) -> impl Iterator<Item = (Range, &TabletRecord)> {
        let ends = self.tablets.iter().skip(1).map(|next| next.first - 1).chain([u64::MAX]);
        self.tablets
            .iter()
            .zip(ends)
            .map(|(tablet, last)| (Range { first: tablet.first, last }, tablet))
    }

    /// Returns the tablet that contains a position.
    #[must_use]
    pub fn at(&self, position: u64) -> &TabletRecord {
        &self.tablets[self.tablets.partition_point(|tablet| tablet.first <= position) - 1]
    }

    /// Returns the locators of the servers of the table's tablets, each once. One of them is empty
    /// if some tablet has no server.
    #[must_use]
    pub fn locators(&self) -> Vec<&str> {
        let mut locators: Vec<_> =
            self.tablets.iter().map(|tablet| tablet.locator.as_str()).collect();
        locators.sort_unstable();
        locators.dedup();
        locators
    }
}

/// A server in the answer of a coordinator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerRecord {
    /// The server's id.
    pub id: u32,
    /// Milliseconds since the coordinator last heard from the server; `u32::MAX` if it has not
    /// heard from the server yet. Zero in an [`Assignment`](super::Assignment).
    pub silent_ms: u32,
    /// The server's locator for clients.
    pub locator: String,
    /// The server's rack; empty when none was given.
    pub rack: String,
}

/// Appends the record of a table to a body.
pub fn push_table(out: &mut Vec<u8>, table: &TableRecord) {
    out.extend_from_slice(&table.id.to_le_bytes());
    push_text(out, &table.name);
    out.extend_from_slice(&table.seed.to_le_bytes());
    let count = u32::try_from(table.tablets.len()).expect("at most MAX_TABLETS");
    let evicts = if table.when_full == WhenFull::Evict { EVICTS } else { 0 };
    let ordered = if table.ordered { ORDERED } else { 0 };
    let indexed = if table.indexes.is_empty() { 0 } else { INDEXED };
    out.extend_from_slice(&(evicts | ordered | indexed | count).to_le_bytes());
    for tablet in &table.tablets {
        out.extend_from_slice(&tablet.first.to_le_bytes());
        out.extend_from_slice(&tablet.server.to_le_bytes());
        push_text(out, &tablet.locator);
    }
    if indexed != 0 {
        let count = u32::try_from(table.indexes.len()).expect("at most MAX_INDEXES");
        out.extend_from_slice(&count.to_le_bytes());
        table.indexes.iter().for_each(|index| index.push_to(out));
    }
}

/// Appends the record of a server to a body. If the server has a rack, a space and the rack follow
/// its locator. So a record of a program that is older than racks still parses; its server has no
/// rack.
///
/// # Panics
/// When locator and rack together are too long: see [`fits_record`].
pub fn push_server(out: &mut Vec<u8>, server: &ServerRecord) {
    out.extend_from_slice(&server.id.to_le_bytes());
    out.extend_from_slice(&server.silent_ms.to_le_bytes());
    if server.rack.is_empty() {
        push_text(out, &server.locator);
    } else {
        push_text(out, &format!("{} {}", server.locator, server.rack));
    }
}

/// Returns whether a locator and a rack fit into a server's record, which has 255 bytes for both.
#[must_use]
pub fn fits_record(locator: &str, rack: &str) -> bool {
    locator.len() + 1 + rack.len() <= usize::from(u8::MAX)
        || (rack.is_empty() && locator.len() <= usize::from(u8::MAX))
}

/// Appends a named counter to a body.
pub fn push_counter(out: &mut Vec<u8>, name: &str, value: u64) {
    push_text(out, name);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a text of at most 255 bytes to a body.
///
/// # Panics
/// When `text` is longer than 255 bytes.
pub fn push_text(out: &mut Vec<u8>, text: &str) {
    let len = u8::try_from(text.len()).expect("names and locators are at most 255 bytes");
    out.push(len);
    out.extend_from_slice(text.as_bytes());
}

/// Reads the records of a body one by one. A method returns `None` for a malformed record.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Makes a reader of the records in `body`.
    #[must_use]
    pub fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    /// Returns whether all records have been read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads a table.
    pub fn table(&mut self) -> Option<TableRecord> {
        let (id, name, seed) = (self.u32()?, self.text()?.to_owned(), self.u64()?);
        let count = self.u32()?;
        let when_full = if count & EVICTS == 0 { WhenFull::Refuse } else { WhenFull::Evict };
        let ordered = count & ORDERED != 0;
        let is_indexed = count & INDEXED != 0;
        let count = count & !(EVICTS | ORDERED | INDEXED);
        if !(1..=MAX_TABLETS).contains(&(count as usize)) {
            return None;
        }
        let mut tablet = || {
            Some(TabletRecord {
                first: self.u64()?,
                server: self.u32()?,
                locator: self.text()?.to_owned(),
            })
        };
        let tablets = (0..count).map(|_| tablet()).collect::<Option<Vec<_>>>()?;
        let ascend =
            tablets[0].first == 0 && tablets.is_sorted_by(|one, next| one.first < next.first);
        let count = if is_indexed { self.u32()? } else { 0 };
        if count as usize > MAX_INDEXES {
            return None;
        }
        let indexes =
            (0..count).map(|_| IndexRecord::read(self)).collect::<Option<Vec<IndexRecord>>>()?;
        let ascend = ascend && indexes.is_sorted_by(|one, next| one.id < next.id);
        ascend.then_some(TableRecord { id, name, seed, when_full, ordered, indexes, tablets })
    }

    /// Reads a server.
    pub fn server(&mut self) -> Option<ServerRecord> {
        let (id, silent_ms, place) = (self.u32()?, self.u32()?, self.text()?);
        let in_rack = place.rsplit_once(' ').filter(|(_, rack)| crate::is_rack(rack));
        let (locator, rack) = in_rack.unwrap_or((place, ""));
        Some(ServerRecord { id, silent_ms, locator: locator.to_owned(), rack: rack.to_owned() })
    }

    /// Reads a counter: its name and value.
    pub fn counter(&mut self) -> Option<(&'a str, u64)> {
        let name = self.text()?;
        Some((name, self.u64()?))
    }

    /// Reads a counter and returns its value. `None` if the counter has another name.
    pub fn named(&mut self, name: &str) -> Option<u64> {
        self.counter().filter(|(is, _)| *is == name).map(|(_, number)| number)
    }

    /// Reads a text.
    pub fn text(&mut self) -> Option<&'a str> {
        let len = usize::from(*self.take(1)?.first()?);
        str::from_utf8(self.take(len)?).ok()
    }

    /// Reads a number of 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Reads a number of 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }
}

/// The bit of the length field that marks an object with a time to live, which then precedes the
/// key.
const WITH_TTL: u32 = 1 << 31;

/// The fixed part of an object in the answer to a scan; the key and value follow it. The length
/// field of the value also encodes the value's [type](crate::value).
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct ScanRecord {
    version: U64,
    length: U32,
    key_len: U16,
}

/// An object in the answer to a scan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Item<'a> {
    /// The object's version.
    pub version: u64,
    /// The object's key.
    pub key: &'a [u8],
    /// The object's value.
    pub value: &'a [u8],
    /// The value's type.
    pub value_type: ValueType,
    /// After how long the object expires, counted from the scan; `None`: never.
    pub ttl: Option<Ttl>,
}

/// Appends an object to the answer to a scan.
pub fn write_scan_record(out: &mut Vec<u8>, item: &Item<'_>) {
    let with_ttl = if item.ttl.is_some() { WITH_TTL } else { 0 };
    let record = ScanRecord {
        version: U64::new(item.version),
        length: U32::new(item.value_type.encode_length(item.value.len()) | with_ttl),
        key_len: U16::new(u16::try_from(item.key.len()).expect("key within limits")),
    };
    out.extend_from_slice(record.as_bytes());
    if let Some(ttl) = item.ttl {
        out.extend_from_slice(&ttl.bytes());
    }
    out.extend_from_slice(item.key);
    out.extend_from_slice(item.value);
}

/// The objects in the answer to a scan.
///
/// Objects are in the order of their bit-reversed key hashes, and a cursor is the bit-reversed hash
/// of the last object that was returned. So a scan returns every object that exists from its
/// beginning to its end exactly once, even if the table grows or the server restarts.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Items<'a> {
    /// Iterates over the `count` objects of `body`.
    #[must_use]
    pub fn new(body: &'a [u8], count: u32) -> Self {
        Self { rest: body, left: count }
    }
}

impl<'a> Iterator for Items<'a> {
    /// An object; the inner value is `None` when the body is malformed from here on.
    type Item = Option<Item<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let parsed = ScanRecord::ref_from_prefix(self.rest).ok().and_then(|(record, rest)| {
            let (length, mut rest, mut ttl) = (record.length.get(), rest, None);
            if length & WITH_TTL != 0 {
                let (millis, behind) = rest.split_first_chunk()?;
                ttl = Some(Ttl::of_bytes(millis).ok()?);
                rest = behind;
            }
            let (key, rest) = rest.split_at_checked(usize::from(record.key_len.get()))?;
            let (value_type, len) = ValueType::parse_length(length & !WITH_TTL)?;
            let (value, rest) = rest.split_at_checked(len)?;
            Some((Item { version: record.version.get(), key, value, value_type, ttl }, rest))
        });
        match parsed {
            Some((item, rest)) => {
                self.rest = rest;
                Some(Some(item))
            }
            None => {
                self.left = 0;
                Some(None)
            }
        }
    }
}
