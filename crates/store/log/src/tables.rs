//! What is known of each table: how much it holds, and whether it, or tablets of it, were dropped.

use sprat_wire::tablet::Tablet;

/// What a table holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TableStats {
    /// Objects.
    pub objects: u64,
    /// Bytes of their entries in the log, keys, values and headers.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    id: u32,
    dropped: bool,
    stats: TableStats,
}

/// All tables that hold something, by id. The last one asked for is found at once.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    known: Vec<Known>,
    last: usize,
    dropped: usize,
    /// Tablets that were dropped, until their objects are gone.
    tablets: Vec<Tablet>,
}

impl Tables {
    fn at(&mut self, id: u32) -> &mut Known {
        if self.known.get(self.last).is_none_or(|known| known.id != id) {
            self.last =
                self.known.binary_search_by_key(&id, |known| known.id).unwrap_or_else(|at| {
                    self.known
                        .insert(at, Known { id, dropped: false, stats: TableStats::default() });
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

    /// What a table holds; nothing if it was dropped.
    pub(crate) fn stats(&self, id: u32) -> TableStats {
        match self.find(id) {
            Some(known) if !known.dropped => known.stats,
            _ => TableStats::default(),
        }
    }

    /// All tables with what they hold, dropped ones included.
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

    /// Whether an object of a table, at this position, is of a tablet that was dropped.
    #[inline]
    pub(crate) fn is_dropped_at(&self, table: u32, position: u64) -> bool {
        self.tablets.iter().any(|tablet| tablet.table == table && tablet.range.contains(position))
    }

    /// Whether something of a tablet is dropped.
    pub(crate) fn is_dropping(&self, tablet: Tablet) -> bool {
        let meets = |other: &Tablet| {
            other.table == tablet.table && other.range.overlap(tablet.range).is_some()
        };
        self.tablets.iter().any(meets)
    }

    /// Forgets the dropped tables that hold nothing any more, and dropped tablets: all has been
    /// gone through.
    pub(crate) fn forget_purged(&mut self) {
        self.tablets.clear();
        self.known.retain(|known| !known.dropped || known.stats.objects > 0);
        self.dropped = self.known.iter().filter(|known| known.dropped).count();
    }

    fn find(&self, id: u32) -> Option<&Known> {
        let at = self.known.binary_search_by_key(&id, |known| known.id).ok()?;
        Some(&self.known[at])
    }
}
