//! Encodes the catalog as rows of its metadata.
//!
//! Each row ends in a CRC32C of its key and bytes. The row of counters holds the number of the
//! other rows and the sum of their checksums. A row's checksum shows whether the row is damaged;
//! the counters show whether a row is missing or older than the counters. Metadata that were
//! written before rows had checksums are accepted, and the next change adds the checksums.

use super::entries::{FIRST_INDEX, ServerEntry, TableEntry, TabletEntry};
use super::metadata::Change;
use sprat_wire::index::IndexRecord;
use sprat_wire::op::{
    MoveOrder, Records, ServerRecord, WhenFull, push_counter, push_server, push_text,
};
use sprat_wire::tablet::{MAX_TABLETS, Range, Tablet};
use std::collections::BTreeMap;

/// Key of the counters' row.
pub(super) const COUNTERS: &str = "counters";

/// Counters of the whole cluster.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) cluster: u64,
    pub(super) next_table: u32,
    pub(super) next_server: u32,
    pub(super) version: u64,
    /// The version of the copy from which the metadata were rebuilt; zero if they never were.
    pub(super) rebuilt_from: u64,
    /// The total of the other rows, to detect that some are missing. `None` in metadata from before
    /// rows had checksums.
    pub(super) total: Option<Total>,
}

impl Counters {
    /// Encodes the counters' row, without its checksum.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::new();
        push_counter(&mut row, "cluster", self.cluster);
        push_counter(&mut row, "next_table", self.next_table.into());
        push_counter(&mut row, "next_server", self.next_server.into());
        push_counter(&mut row, "version", self.version);
        if let Some(Total { rows, checksums }) = self.total {
            push_counter(&mut row, "rows", rows);
            push_counter(&mut row, "checksums", checksums);
        }
        if self.rebuilt_from > 0 {
            push_counter(&mut row, "rebuilt_from", self.rebuilt_from);
        }
        row
    }
}

/// The number of rows, not counting the counters', and the sum of their checksums.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Total {
    rows: u64,
    checksums: u64,
}

impl Total {
    /// Returns the total of `rows`, which must all be present (`Some`).
    pub(super) fn of(rows: &[Change]) -> Self {
        Checksums::default().total_after(rows)
    }
}

/// The checksum of each row, by key, and their total.
#[derive(Default)]
pub(super) struct Checksums {
    of: BTreeMap<String, u32>,
    total: Total,
}

impl Checksums {
    pub(super) fn total(&self) -> Total {
        self.total
    }

    /// Returns the total after `changes`. They must name each key at most once, and not the key of
    /// the counters.
    pub(super) fn total_after(&self, changes: &[Change]) -> Total {
        let Total { mut rows, mut checksums } = self.total;
        for (key, row) in changes {
            if let Some(&old) = self.of.get(key) {
                (rows, checksums) = (rows - 1, checksums.wrapping_sub(old.into()));
            }
            if let Some(row) = row {
                (rows, checksums) = (rows + 1, checksums.wrapping_add(checksum(key, row).into()));
            }
        }
        Total { rows, checksums }
    }

    /// Applies changes whose rows have no checksums yet.
    pub(super) fn change(&mut self, changes: &[Change]) {
        self.total = self.total_after(changes);
        for (key, row) in changes {
            match row {
                Some(row) => self.of.insert(key.clone(), checksum(key, row)),
                None => self.of.remove(key),
            };
        }
    }
}

fn checksum(key: &str, row: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key.as_bytes()), row)
}

/// Appends a row's checksum to it.
pub(super) fn seal((key, row): Change) -> Change {
    let sealed = row.map(|mut row| {
        row.extend_from_slice(&checksum(&key, &row).to_le_bytes());
        row
    });
    (key, sealed)
}

/// Returns the row without its checksum; `None` if the checksum does not match.
pub(super) fn unseal<'a>(key: &str, sealed: &'a [u8]) -> Option<&'a [u8]> {
    let (row, stored) = sealed.split_last_chunk::<4>()?;
    (checksum(key, row) == u32::from_le_bytes(*stored)).then_some(row)
}

/// Reads the counters' row: one with a checksum, or one that was written before rows had checksums.
pub(super) fn read_counters(sealed: &[u8]) -> Option<Counters> {
    match unseal(COUNTERS, sealed) {
        Some(row) => parse_counters(row).filter(|counters| counters.total.is_some()),
        None => parse_counters(sealed).filter(|counters| counters.total.is_none()),
    }
}

fn parse_counters(value: &[u8]) -> Option<Counters> {
    let records = &mut Records::new(value);
    let mut counters = Counters::default();
    for _ in 0..4 {
        let (name, number) = records.counter()?;
        match name {
            "cluster" => counters.cluster = number,
            "next_table" => counters.next_table = number.try_into().ok()?,
            "next_server" => counters.next_server = number.try_into().ok()?,
            "version" => counters.version = number,
            _ => return None,
        }
    }
    if !records.is_done() {
        counters.total =
            Some(Total { rows: records.named("rows")?, checksums: records.named("checksums")? });
    }
    if !records.is_done() {
        counters.rebuilt_from = records.named("rebuilt_from")?;
    }
    records.is_done().then_some(counters)
}

pub(super) fn server_key(id: u32) -> String {
    format!("server/{id:010}")
}

pub(super) fn server_row(id: u32, entry: &ServerEntry) -> Change {
    let mut row = Vec::new();
    let (locator, rack) = (entry.locator.clone(), entry.rack.clone());
    push_server(&mut row, &ServerRecord { id, silent_ms: 0, locator, rack });
    if entry.copies > 0 {
        push_counter(&mut row, "copies", entry.copies.into());
        push_counter(&mut row, "min_open", entry.min_open);
        push_counter(&mut row, "dead", entry.dead.into());
        if entry.draining {
            push_counter(&mut row, "draining", 1);
        }
    }
    (server_key(id), Some(row))
}

pub(super) fn read_server(value: &[u8]) -> Option<(u32, ServerEntry)> {
    let records = &mut Records::new(value);
    let server = records.server()?;
    let mut entry =
        ServerEntry { locator: server.locator, rack: server.rack, ..ServerEntry::default() };
    if !records.is_done() {
        entry.copies = records.named("copies")?.try_into().ok()?;
        entry.min_open = records.named("min_open")?;
        entry.dead = records.named("dead")? != 0;
        entry.draining = !records.is_done() && records.named("draining")? != 0;
    }
    records.is_done().then_some((server.id, entry))
}

pub(super) fn table_key(name: &str) -> String {
    format!("table/{name}")
}

/// Encodes a table's row: its id, zero, its name, an empty text, and its tablets. [`read_table`]
/// also accepts rows from before there were tablets. Such a row has the server's id in place of the
/// zero, may have a counter `since`, and has no tablets.
pub(super) fn table_row(name: &str, table: &TableEntry) -> Change {
    let mut row = Vec::new();
    row.extend_from_slice(&table.id.to_le_bytes());
    row.extend_from_slice(&0_u32.to_le_bytes());
    push_text(&mut row, name);
    push_text(&mut row, "");
    push_counter(&mut row, "tablets", table.parts.len() as u64);
    for part in &table.parts {
        row.extend_from_slice(&part.first.to_le_bytes());
        row.extend_from_slice(&part.server.to_le_bytes());
        row.extend_from_slice(&part.since.to_le_bytes());
    }
    if table.when_full != WhenFull::Refuse {
        push_counter(&mut row, "when_full", table.when_full as u64);
    }
    if table.ordered {
        push_counter(&mut row, "ordered", 1);
    }
    if table.next_index != FIRST_INDEX {
        push_counter(&mut row, "next_index", table.next_index.into());
    }
    for index in &table.indexes {
        push_counter(&mut row, "index", 1);
        index.push_to(&mut row);
    }
    (table_key(name), Some(row))
}

pub(super) fn read_table(value: &[u8]) -> Option<(String, TableEntry)> {
    let records = &mut Records::new(value);
    let (id, server, name, _) =
        (records.u32()?, records.u32()?, records.text()?.to_owned(), records.text()?);
    if server != 0 {
        let since = if records.is_done() { 0 } else { records.named("since")? };
        let parts = vec![TabletEntry { first: 0, server, since }];
        let entry = TableEntry { id, parts, ..TableEntry::default() };
        return records.is_done().then_some((name, entry));
    }
    let count =
        records.named("tablets").filter(|&count| (1..=MAX_TABLETS as u64).contains(&count))?;
    let part = |records: &mut Records<'_>| {
        Some(TabletEntry { first: records.u64()?, server: records.u32()?, since: records.u64()? })
    };
    let parts = (0..count).map(|_| part(records)).collect::<Option<Vec<_>>>()?;
    let mut table = TableEntry { id, parts, ..TableEntry::default() };
    while !records.is_done() {
        match records.counter()? {
            ("when_full", code) => table.when_full = WhenFull::of(code.try_into().ok()?)?,
            ("ordered", 1) => table.ordered = true,
            ("next_index", number) => table.next_index = number.try_into().ok()?,
            ("index", 1) => table.indexes.push(IndexRecord::read(records)?),
            _ => return None,
        }
    }
    let TableEntry { parts, indexes, next_index, .. } = &table;
    let is_sorted = parts[0].first == 0
        && parts.is_sorted_by(|one, next| one.first < next.first)
        && indexes.is_sorted_by(|one, next| one.id < next.id)
        && indexes.last().is_none_or(|last| last.id < *next_index);
    is_sorted.then_some((name, table))
}

pub(super) fn move_key(id: u64) -> String {
    format!("move/{id:020}")
}

pub(super) fn move_row(order: &MoveOrder) -> Change {
    let mut row = Vec::new();
    let MoveOrder { id, tablet: Tablet { table, range }, from, to } = *order;
    push_counter(&mut row, "id", id);
    push_counter(&mut row, "table", table.into());
    push_counter(&mut row, "first", range.first);
    push_counter(&mut row, "last", range.last);
    push_counter(&mut row, "from", from.into());
    push_counter(&mut row, "to", to.into());
    (move_key(id), Some(row))
}

pub(super) fn read_move(value: &[u8]) -> Option<MoveOrder> {
    let records = &mut Records::new(value);
    let id = records.named("id")?;
    let table = records.named("table")?.try_into().ok()?;
    let range = Range { first: records.named("first")?, last: records.named("last")? };
    let (from, to) =
        (records.named("from")?.try_into().ok()?, records.named("to")?.try_into().ok()?);
    let order = MoveOrder { id, tablet: Tablet { table, range }, from, to };
    (records.is_done() && range.first <= range.last).then_some(order)
}
