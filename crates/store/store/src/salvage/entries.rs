//! Finds the entries in bytes of which some may be damaged, and the newest version of each object.

use sprat_wire::entry::{Entry, HEADER_BYTES, Kind};
use sprat_wire::tablet::table_of;
use std::collections::HashMap;

/// Passes every whole entry in `bytes` to `take`; `bytes` begin with an entry. Returns the offset
/// at which the first damaged entry begins, and what is wrong with that entry. After a damaged
/// entry it continues at the end that the entry's header states, if a whole entry begins there or
/// the bytes end there. Otherwise it tries each further byte until a whole entry begins. Only an
/// entry of a table below `next_table` counts as such a beginning.
pub(super) fn walk(
    bytes: &[u8],
    next_table: u32,
    mut take: impl FnMut(&Entry<'_>),
) -> Option<(usize, String)> {
    let mut bad = None;
    let mut at = 0;
    while at < bytes.len() {
        match Entry::parse_checked(&bytes[at..]) {
            Ok(entry) => {
                take(&entry);
                at += entry.encoded_len();
            }
            Err(malformed) => {
                bad.get_or_insert((at, malformed.to_string()));
                let ends_at = Entry::parse(&bytes[at..]).map(|entry| at + entry.encoded_len());
                let follows =
                    |next: &usize| *next == bytes.len() || begins_at(bytes, *next, next_table);
                let Some(next) =
                    ends_at.ok().filter(follows).or_else(|| next_entry(bytes, at + 1, next_table))
                else {
                    break;
                };
                at = next;
            }
        }
    }
    bad
}

fn next_entry(bytes: &[u8], from: usize, next_table: u32) -> Option<usize> {
    (from..bytes.len().saturating_sub(HEADER_BYTES - 1))
        .find(|&at| begins_at(bytes, at, next_table))
}

/// Returns whether an undamaged entry begins at offset `at`. Checks the entry's table first,
/// because it would take hours to compute a checksum for every offset.
fn begins_at(bytes: &[u8], at: usize, next_table: u32) -> bool {
    let Ok(entry) = Entry::parse(&bytes[at..]) else { return false };
    table_of(entry.table) < next_table && Entry::parse_checked(&bytes[at..]).is_ok()
}

/// The newest version of each object, as far as the entries show.
#[derive(Default)]
pub struct Objects {
    /// By table and key: the newest version, and whether the object was removed.
    newest: HashMap<(u32, Vec<u8>), (u64, bool)>,
}

impl Objects {
    /// Adds an entry.
    pub fn add(&mut self, entry: &Entry<'_>) {
        let gone = match entry.kind {
            Kind::Object if table_of(entry.table) == entry.table => false,
            Kind::Tombstone if table_of(entry.table) == entry.table => true,
            _ => return,
        };
        let known =
            self.newest.entry((entry.table, entry.key.to_vec())).or_insert((entry.version, gone));
        // A tombstone has the version of the object that it removes.
        if entry.version > known.0 || (entry.version == known.0 && gone) {
            *known = (entry.version, gone);
        }
    }

    /// Returns whether an entry is the newest version of an object. Returns true once for each
    /// object, and forgets the object.
    pub fn take(&mut self, entry: &Entry<'_>) -> bool {
        let key = (entry.table, entry.key.to_vec());
        let is_there =
            entry.kind == Kind::Object && self.newest.get(&key) == Some(&(entry.version, false));
        is_there && self.newest.remove(&key).is_some()
    }

    /// Counts the objects of each table.
    pub fn counts(&self) -> std::collections::BTreeMap<u32, u64> {
        let mut counts = std::collections::BTreeMap::new();
        for ((table, _), _) in self.newest.iter().filter(|(_, (_, gone))| !gone) {
            *counts.entry(*table).or_default() += 1;
        }
        counts
    }
}
