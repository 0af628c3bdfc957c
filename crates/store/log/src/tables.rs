//! The state of each table: its size, and whether the table or tablets of it were dropped.

use sprat_wire::tablet::Tablet;

/// The size of a table in a log.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TableStats {
    /// Number of objects.
    pub objects: u64,
    /// Bytes of the table's entries in the log: headers, keys and values.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct TableState {
    id: u32,
    dropped: bool,
    stats: TableStats,
}

/// All tables that have or had objects, in order of their ids. The table looked up last is found
/// without a search.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    known: Vec<TableState>,
    last: usize,
    dropped: usize,
    /// Tablets that were dropped, until their objects are freed.
    tablets: Vec<Tablet>,
}

impl Tables {
    fn at(&mut self, id: u32) -> &mut TableState {
        if self.known.get(self.last).is_none_or(|known| known.id != id) {
            self.last =
                self.known.binary_search_by_key(&id, |known| known.id).unwrap_or_else(|at| {
                    self.known.insert(
                        at,
                        TableState { id, dropped: false, stats: TableStats::default() },
                    );
                    at
                });
        }
        &mut self.known[self.last]
    }

    pub(crate) fn add(&mut self, id: u32, bytes: usize) {
        let stats = &mut self.at(id).stats;
        stats.objects += 1;
        stats.bytes += bytes as u64;
    }

    pub(crate) fn subtract(&mut self, id: u32, bytes: usize) {
        let stats = &mut self.at(id).stats;
        stats.objects -= 1;
        stats.bytes -= bytes as u64;
    }

    /// Returns the size of a table; zero if it was dropped.
    pub(crate) fn stats(&self, id: u32) -> TableStats {
        match self.find(id) {
            Some(known) if !known.dropped => known.stats,
            _ => TableStats::default(),
        }
    }

    /// All tables with their sizes, including dropped ones.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, TableStats)> {
        self.known.iter().map(|known| (known.id, known.stats))
    }

    pub(crate) fn drop_table(&mut self, id: u32) {
        let known = self.at(id);
        if !std::mem::replace(&mut known.dropped, true) {
            self.dropped += 1;
        }
    }

    #[inline]
    pub(crate) fn is_dropped(&self, id: u32) -> bool {
        self.dropped > 0 && self.find(id).is_some_and(|known| known.dropped)
    }

    pub(crate) fn drop_tablet(&mut self, tablet: Tablet) {
        if !self.tablets.contains(&tablet) {
            self.tablets.push(tablet);
        }
    }

    /// Returns whether a dropped tablet contains this position of a table.
    #[inline]
    pub(crate) fn is_dropped_at(&self, table: u32, position: u64) -> bool {
        self.tablets.iter().any(|tablet| tablet.table == table && tablet.range.contains(position))
    }

    /// Returns whether any tablet is dropped and not yet purged.
    pub(crate) fn has_dropped_tablets(&self) -> bool {
        !self.tablets.is_empty()
    }

    /// Returns whether any part of a tablet is dropped and not yet purged.
    pub(crate) fn is_dropping(&self, tablet: Tablet) -> bool {
        let meets = |other: &Tablet| {
            other.table == tablet.table && other.range.overlap(tablet.range).is_some()
        };
        self.tablets.iter().any(meets)
    }

    /// Forgets the dropped tablets, and the dropped tables that have no objects left. Call it when
    /// the purge has visited the whole hash table.
    pub(crate) fn forget_purged(&mut self) {
        self.tablets.clear();
        self.known.retain(|known| !known.dropped || known.stats.objects > 0);
        self.dropped = self.known.iter().filter(|known| known.dropped).count();
    }

    fn find(&self, id: u32) -> Option<&TableState> {
        let at = self.known.binary_search_by_key(&id, |known| known.id).ok()?;
        Some(&self.known[at])
    }
}
