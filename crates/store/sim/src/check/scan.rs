//! What a page of a scan says of each object.
//!
//! Objects come in the order of their places: hashes of keys, bits reversed. A page tells of every
//! place from its cursor to the next page's, so it is a read of each key whose place lies there:
//! the row's version and value, or that there is none. Together the pages of a scan tell of each
//! key once. That those reads fit the rest of the history is what it means that a scan gives what
//! is there throughout exactly once and invents nothing.

use crate::history::{Action, Name, Operation, Page, Told};

/// The place of a key in scans.
#[must_use]
pub fn place(hash_seed: u64, name: Name) -> u64 {
    sprat_wire::tablet::position(hash_seed, name.table, &name.bytes())
}

/// The reads that a page amounts to; `keys` is how many keys the table has at most.
///
/// # Errors
/// In words, when the page is wrong by itself.
pub fn reads(page: &Page, hash_seed: u64, keys: u16) -> Result<Vec<Operation>, String> {
    let from = page.after.map_or(Some(0), |after| after.checked_add(1));
    let until = page.next.unwrap_or(u64::MAX);
    let within = |place: u64| from.is_some_and(|from| (from..=until).contains(&place));
    if page.next.is_some() && from.is_none_or(|from| until < from) {
        return Err(format!(
            "a page behind {:?} goes on from {until}, which is before it",
            page.after
        ));
    }
    let mut rows: Vec<Option<(u64, crate::history::Value)>> = vec![None; usize::from(keys)];
    for (bytes, version, value) in &page.rows {
        let Some(key) = (0..keys).find(|&key| Name { table: page.table, key }.bytes() == *bytes)
        else {
            return Err(format!("a key that nobody wrote: {bytes:02x?}"));
        };
        if !within(place(hash_seed, Name { table: page.table, key })) {
            return Err(format!(
                "key {key} is not of this page, {:?} to {:?}",
                page.after, page.next
            ));
        }
        if rows[usize::from(key)].replace((*version, *value)).is_some() {
            return Err(format!("key {key} comes twice"));
        }
    }
    let names = (0..keys).map(|key| Name { table: page.table, key });
    let told = names.filter(|&name| within(place(hash_seed, name))).map(|name| {
        let told = match rows[usize::from(name.key)] {
            Some((version, value)) => Told::Found { version, value },
            None => Told::Absent,
        };
        let Page { client, invoked, returned, ended, .. } = *page;
        Operation {
            number: usize::MAX,
            client,
            name,
            action: Action::Read,
            invoked,
            returned,
            began: ended,
            ended,
            told,
        }
    });
    Ok(told.collect())
}
