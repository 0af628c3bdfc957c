//! Removes the elements of collections whose heads are gone: removed, replaced, expired or evicted.
//!
//! The head of a collection is removed at once, however many elements there are, and these are
//! removed in the iterations that follow. After a restart the owner records of all collections are
//! visited once, because some may have been left.

use crate::collections::collection_of;
use crate::objects::{Access, Objects, Unready};
use sprat_wire::elements::{OwnerKey, end_of, owner_of};
use sprat_wire::order::KeyRange;
use std::ops::Bound;

/// The largest number of elements that one iteration of the loop removes.
const REMOVED_AT_ONCE: usize = 32;

/// The largest number of collections that one iteration of the loop visits.
const VISITED_AT_ONCE: usize = 16;

/// What is to be removed.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// A collection that is gone, unless its head has another key: its table and owner record.
    gone: Option<(u32, OwnerKey)>,
    /// The tables whose collections are still to be visited, the last one first, and where the
    /// visit of the last one continues.
    visiting: Vec<u32>,
    from: OwnerKey,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Swept {
    /// It did something.
    Worked,
    /// The server is not ready for it.
    Later,
    /// There is nothing to do.
    Nothing,
}

impl Sweep {
    /// Visits all collections of a table.
    pub(crate) fn visit(&mut self, table: u32) {
        if !self.visiting.contains(&table) {
            self.visiting.push(table);
            self.from = OwnerKey::default();
        }
    }

    /// Does a bounded part of what is to be done.
    pub(crate) fn step(&mut self, tables: &[Option<u32>], objects: &mut dyn Objects) -> Swept {
        if objects.forgot_gone_collections() {
            tables.iter().flatten().for_each(|table| self.visit(*table));
        }
        self.gone = self.gone.or_else(|| objects.take_gone_collection());
        let Some((table, owner)) = self.gone else { return self.visit_some(objects) };
        match remove_some(table, owner, objects) {
            Ok(is_all) => {
                if is_all {
                    self.gone = None;
                }
                Swept::Worked
            }
            Err(_) => Swept::Later,
        }
    }

    fn visit_some(&mut self, objects: &mut dyn Objects) -> Swept {
        let Some(&table) = self.visiting.last() else { return Swept::Nothing };
        if !objects.has_elements(table) {
            return Swept::Later;
        }
        for _ in 0..VISITED_AT_ONCE {
            let range = KeyRange { from: Bound::Excluded(&self.from), ..KeyRange::ALL };
            let mut owner = None;
            objects.visit_elements(table, &range, (0, 1), &mut |entry| owner = owner_of(entry.key));
            let Some(owner) = owner else {
                self.visiting.pop();
                self.from = OwnerKey::default();
                break;
            };
            match is_gone(table, owner, objects) {
                Ok(gone) => {
                    self.from = end_of(owner);
                    if gone {
                        self.gone = Some((table, owner));
                        break;
                    }
                }
                Err(_) => return Swept::Later,
            }
        }
        Swept::Worked
    }
}

/// Returns whether a collection with this owner record has no head.
fn is_gone(table: u32, owner: OwnerKey, objects: &mut dyn Objects) -> Result<bool, Unready> {
    let Some(record) = objects.find_element(table, &owner) else { return Ok(false) };
    let key = record.value.to_vec();
    match objects.find(table, &key, Access::Change) {
        Ok(head) => {
            let id = head.as_ref().and_then(collection_of);
            Ok(id.is_none_or(|id| id.owner() != owner))
        }
        // Its elements are dropped with the table.
        Err(Unready::NoTable) => Ok(false),
        Err(unready) => Err(unready),
    }
}

/// Removes elements of a collection that is gone, and at last its owner record. Returns whether
/// nothing is left to be done.
fn remove_some(table: u32, owner: OwnerKey, objects: &mut dyn Objects) -> Result<bool, Unready> {
    if !objects.has_elements(table) {
        return Err(Unready::Later("the elements are being put in order"));
    }
    if !is_gone(table, owner, objects)? {
        return Ok(true);
    }
    let end = end_of(owner);
    let (from, to) = (Bound::Included(&owner[..]), Bound::Excluded(&end[..]));
    // The owner record is the first one.
    let range = KeyRange { from, to, descending: true };
    let mut found = Vec::new();
    objects.visit_elements(table, &range, (0, REMOVED_AT_ONCE), &mut |entry| {
        found.push(entry.key.to_vec());
    });
    found.iter().try_for_each(|key| objects.remove_element(table, key))?;
    Ok(found.len() < REMOVED_AT_ONCE)
}
