//! Where tables are, as far as a client knows.

use crate::target::Target;
use sprat_wire::op::Request;

/// Tables whose servers are remembered.
pub const MAX_KNOWN_TABLES: usize = 4096;

/// Where the tablets of a table are.
#[derive(Debug)]
pub(crate) struct Place {
    /// Seed of its keys' positions.
    pub(crate) seed: u64,
    /// First positions, ascending from zero, and who serves the tablet that begins there; nobody
    /// for now, for `None`.
    pub(crate) tablets: Vec<(u64, Option<Target>)>,
    /// One of those has not answered since this was learned.
    pub(crate) stale: bool,
}

impl Place {
    /// Who is to be asked.
    #[inline]
    pub(crate) fn of(&self, request: &Request<'_>) -> Option<Target> {
        if let [(_, whole)] = self.tablets[..] {
            return whole;
        }
        let position = request.position(self.seed);
        self.tablets[self.tablets.partition_point(|&(first, _)| first <= position) - 1].1
    }

    /// All who serve something of it, each once; `None` when there is nobody for some of it.
    pub(crate) fn everybody(&self) -> Option<Vec<Target>> {
        let mut all: Vec<Target> = Vec::new();
        for &(_, target) in &self.tablets {
            let target = target?;
            if !all.contains(&target) {
                all.push(target);
            }
        }
        Some(all)
    }
}

/// All that are known.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Ascending by the table's id.
    known: Vec<(u32, Place)>,
    /// Where the one asked for last is: most clients use one.
    last: usize,
}

impl Places {
    /// Where a table is, if that is known.
    #[inline]
    pub(crate) fn get(&mut self, table: u32) -> Option<&Place> {
        if self.known.get(self.last).is_none_or(|&(id, _)| id != table) {
            self.last = self.known.binary_search_by_key(&table, |&(id, _)| id).ok()?;
        }
        Some(&self.known[self.last].1)
    }

    /// From here on it is there. Of more than [`MAX_KNOWN_TABLES`] all others are forgotten, and
    /// looked up again by whoever uses them.
    pub(crate) fn learn(&mut self, table: u32, place: Place) {
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

    /// A server has not answered: what it had others may have by now.
    pub(crate) fn doubt(&mut self, silent: Target) {
        for (_, place) in &mut self.known {
            place.stale |= place.tablets.iter().any(|&(_, target)| target == Some(silent));
        }
    }

    /// It was asked where a table is, and nobody knew better.
    pub(crate) fn keep(&mut self, table: u32) {
        if let Ok(at) = self.known.binary_search_by_key(&table, |&(id, _)| id) {
            self.known[at].1.stale = false;
        }
    }

    /// It is no more.
    pub(crate) fn forget(&mut self, table: u32) {
        self.known.retain(|&(id, _)| id != table);
    }
}
