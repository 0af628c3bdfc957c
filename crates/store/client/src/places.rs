//! A cache of the locations of tablets.

use crate::target::ServerHandle;
use sprat_wire::op::Request;
use sprat_wire::tablet::Range;

/// The largest number of tables whose servers a client remembers. At the limit, the next new table
/// makes the client forget all others.
pub const MAX_KNOWN_TABLES: usize = 4096;

/// The servers of a table's tablets.
#[derive(Debug)]
pub(crate) struct TableLocation {
    /// Seed of the hash that gives keys their positions.
    pub(crate) seed: u64,
    /// Each tablet's first position, ascending from zero, and its server; `None` while the tablet
    /// has no server.
    pub(crate) tablets: Vec<(u64, Option<ServerHandle>)>,
    /// Whether one of the table's servers has been silent since the client learned this location.
    pub(crate) stale: bool,
}

impl TableLocation {
    /// Returns the server that a request is for.
    #[inline]
    pub(crate) fn of(&self, request: &Request<'_>) -> Option<ServerHandle> {
        if let [(_, whole)] = self.tablets[..] {
            return whole;
        }
        let position = request.position(self.seed);
        self.tablets[self.tablets.partition_point(|&(first, _)| first <= position) - 1].1
    }

    /// Returns the tablets, each with its server.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (Range, Option<ServerHandle>)> {
        let ends = self.tablets.iter().skip(1).map(|&(next, _)| next - 1).chain([u64::MAX]);
        let tablets = self.tablets.iter().zip(ends);
        tablets.map(|(&(first, server), last)| (Range { first, last }, server))
    }

    /// All servers of the table, each once; `None` while some tablet has no server.
    pub(crate) fn servers_of(&self) -> Option<Vec<ServerHandle>> {
        let mut all: Vec<ServerHandle> = Vec::new();
        for &(_, target) in &self.tablets {
            let target = target?;
            if !all.contains(&target) {
                all.push(target);
            }
        }
        Some(all)
    }
}

/// The locations of all known tables.
#[derive(Debug, Default)]
pub(crate) struct LocationCache {
    /// Ascending by table id.
    known: Vec<(u32, TableLocation)>,
    /// Index of the table looked up last: most clients use a single table.
    last: usize,
}

impl LocationCache {
    /// Returns the location of a table, if known.
    #[inline]
    pub(crate) fn get(&mut self, table: u32) -> Option<&TableLocation> {
        if self.known.get(self.last).is_none_or(|&(id, _)| id != table) {
            self.last = self.known.binary_search_by_key(&table, |&(id, _)| id).ok()?;
        }
        Some(&self.known[self.last].1)
    }

    /// Sets the location of a table. If `table` is new and [`MAX_KNOWN_TABLES`] are known already,
    /// forgets all others first; the client asks for them again when they are used.
    pub(crate) fn learn(&mut self, table: u32, place: TableLocation) {
        assert!(
            place.tablets.first().is_some_and(|&(first, _)| first == 0),
            "tablets begin at the beginning"
        );
        match self.known.binary_search_by_key(&table, |&(id, _)| id) {
            Ok(at) => self.known[at].1 = place,
            Err(_) if self.known.len() >= MAX_KNOWN_TABLES => self.known = vec![(table, place)],
            Err(at) => self.known.insert(at, (table, place)),
        }
    }

    /// Marks as stale the locations of tables on a silent server, because their tablets may have
    /// moved.
    pub(crate) fn doubt(&mut self, silent: ServerHandle) {
        for (_, place) in &mut self.known {
            place.stale |= place.tablets.iter().any(|&(_, target)| target == Some(silent));
        }
    }

    /// Marks a table's location as not stale although the coordinator gave no usable answer, so
    /// that operations try the known servers again.
    pub(crate) fn keep(&mut self, table: u32) {
        if let Ok(at) = self.known.binary_search_by_key(&table, |&(id, _)| id) {
            self.known[at].1.stale = false;
        }
    }

    /// Forgets a dropped table.
    pub(crate) fn forget(&mut self, table: u32) {
        self.known.retain(|&(id, _)| id != table);
    }
}
