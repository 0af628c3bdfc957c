//! Turns a page of a scan into reads of each object.
//!
//! Objects come in the order of their positions: the bit-reversed hashes of their keys. A page
//! covers every position after its cursor, up to the cursor of the next page. So it is a read of
//! each key in that range: of the row's version and value, or of the key's absence. The pages of a
//! scan together read each key once. If these reads fit the rest of the history, the scan has
//! returned every object that existed throughout exactly once, and no object that never existed.

use crate::history::{Action, ObjectName, Operation, Page, Response};

/// Returns the position of a key in scans.
#[must_use]
pub fn position(hash_seed: u64, name: ObjectName) -> u64 {
    sprat_wire::tablet::position(hash_seed, name.table, &name.bytes())
}

/// Turns a page into reads. The table has at most `keys` keys.
///
/// # Errors
/// Describes how the page contradicts itself.
pub fn reads(page: &Page, hash_seed: u64, keys: u16) -> Result<Vec<Operation>, String> {
    let from = page.after.map_or(Some(0), |after| after.checked_add(1));
    let until = page.next.unwrap_or(u64::MAX);
    let within = |position: u64| from.is_some_and(|from| (from..=until).contains(&position));
    if page.next.is_some() && from.is_none_or(|from| until < from) {
        return Err(format!(
            "a page after {:?} continues at {until}, which is before it",
            page.after
        ));
    }
    let mut rows: Vec<Option<(u64, crate::history::Value)>> = vec![None; usize::from(keys)];
    for (bytes, version, value) in &page.rows {
        let Some(key) =
            (0..keys).find(|&key| ObjectName { table: page.table, key }.bytes() == *bytes)
        else {
            return Err(format!("a key that no client wrote: {bytes:02x?}"));
        };
        if !within(position(hash_seed, ObjectName { table: page.table, key })) {
            return Err(format!(
                "key {key} is not of this page, {:?} to {:?}",
                page.after, page.next
            ));
        }
        if rows[usize::from(key)].replace((*version, *value)).is_some() {
            return Err(format!("key {key} is returned twice"));
        }
    }
    let names = (0..keys).map(|key| ObjectName { table: page.table, key });
    let reads = names.filter(|&name| within(position(hash_seed, name))).map(|name| {
        let response = match rows[usize::from(name.key)] {
            Some((version, value)) => Response::Found { version, value },
            None => Response::Absent,
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
            response,
            of_transaction: false,
        }
    });
    Ok(reads.collect())
}
