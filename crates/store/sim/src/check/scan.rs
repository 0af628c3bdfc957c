//! Turns a page of a scan into reads of each object.
//!
//! Objects come in the order of their positions: the bit-reversed hashes of their keys. A page
//! covers every position after its cursor, up to the cursor of the next page. A page of a range of
//! keys covers these. So it is a read of each key in that range: of the row's version and value, or
//! of the key's absence. A page of an index covers a range of fields: it is a read of each key, of
//! the row's version and value, or of the fact that the object had none of these fields.
//!
//! Changes that a watch reports are a page of these keys: they were so when the server answered.
//!
//! The pages of a scan together read each key once. If these reads fit the rest of the history, the
//! scan has returned every object that existed throughout exactly once, and no object that never
//! existed.

use crate::history::{Action, ObjectName, Operation, Page, Response, Span, Value};
use sprat_wire::index::Field;
use sprat_wire::order::KeyRange;
use std::ops::Bound;

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
    if let Span::Positions(after, Some(next)) = page.span
        && after.is_some_and(|after| next <= after)
    {
        return Err(format!("a page after {after:?} continues at {next}, which is before it"));
    }
    let range = |from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>, key: &[u8]| {
        let [from, to] = [from, to].map(|bound| bound.as_ref().map(Vec::as_slice));
        KeyRange { from, to, descending: false }.contains(key)
    };
    // What the page says of a key of which it has no row; `None` if it does not cover the key.
    let without_row = |name: ObjectName| match &page.span {
        Span::Positions(after, next) => {
            let position = position(hash_seed, name);
            let is_covered = after.is_none_or(|after| position > after)
                && next.is_none_or(|next| position <= next);
            is_covered.then_some(Response::Absent)
        }
        Span::Keys(from, to) => range(from, to, &name.bytes()).then_some(Response::Absent),
        Span::These(keys) => keys.contains(&name.bytes()).then_some(Response::Absent),
        Span::Fields(from, to) => {
            let contains = |field| range(from, to, &index_key(field, name));
            let mut first = field_of(from).unwrap_or(i64::MIN);
            let mut last = field_of(to).unwrap_or(i64::MAX);
            if !contains(first) {
                first = first.checked_add(1)?;
            }
            if !contains(last) {
                last = last.checked_sub(1)?;
            }
            (first <= last).then_some(Response::Outside { first, last })
        }
    };
    let mut rows: Vec<Option<(u64, Value)>> = vec![None; usize::from(keys)];
    for (bytes, version, value) in &page.rows {
        let Some(key) =
            (0..keys).find(|&key| ObjectName { table: page.table, key }.bytes() == *bytes)
        else {
            return Err(format!("a key that no client wrote: {bytes:02x?}"));
        };
        let name = ObjectName { table: page.table, key };
        let is_of_page = match (&page.span, value.field()) {
            (Span::Fields(from, to), Some(field)) => range(from, to, &index_key(field, name)),
            (Span::Fields(..), None) => false,
            _ => without_row(name).is_some(),
        };
        if !is_of_page {
            return Err(format!("key {key} is not of this page, {:?}", page.span));
        }
        if rows[usize::from(key)].replace((*version, *value)).is_some() {
            return Err(format!("key {key} is returned twice"));
        }
    }
    let names = (0..keys).map(|key| ObjectName { table: page.table, key });
    let reads = names.filter_map(|name| {
        let response = match rows[usize::from(name.key)] {
            Some((version, value)) => Response::Found { version, value },
            None => without_row(name)?,
        };
        let Page { client, invoked, returned, began, ended, .. } = *page;
        Some(Operation {
            number: usize::MAX,
            client,
            name,
            action: Action::Read,
            invoked,
            returned,
            began,
            ended,
            response,
            of_transaction: false,
        })
    });
    Ok(reads.collect())
}

/// Returns the key that an object with this field has in an index.
fn index_key(field: i64, name: ObjectName) -> Vec<u8> {
    [Field::Integer(field).encode(), name.bytes()].concat()
}

/// Returns the field of a bound of keys of an index.
fn field_of(bound: &Bound<Vec<u8>>) -> Option<i64> {
    let (Bound::Included(key) | Bound::Excluded(key)) = bound else { return None };
    let bits = u64::from_be_bytes(*key.first_chunk().expect("a bound has a field"));
    Some((bits ^ 1 << 63).cast_signed())
}
