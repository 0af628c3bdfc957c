//! The elements of [collections](sprat_wire::elements): the log keeps those of each table in order,
//! without being asked to, and records which collections are gone.

use super::{Order, Sorting};
use crate::log::{Log, Ref};
use sprat_wire::elements::{self, CollectionId, CollectionKind, ELEMENTS, OwnerKey};
use sprat_wire::entry::Entry;
use sprat_wire::index::OWN_KEYS;
use sprat_wire::order::KeyRange;
use sprat_wire::value::ValueType;
use std::collections::VecDeque;
use std::ops::Bound;

/// The largest number of elements of a scan that compares each key with the end of its range. The
/// range of a longer one is counted first: the end has to be found only once then.
const FEW: usize = 16;

/// Limit on the collections that are remembered as gone.
const MAX_GONE: usize = 64 << 10;

/// The collections whose heads were removed or replaced.
#[derive(Debug, Default)]
pub(crate) struct GoneCollections {
    /// Their tables and owner records.
    owners: VecDeque<(u32, OwnerKey)>,
    /// Whether some were forgotten because there were too many.
    forgot: bool,
}

impl Log {
    /// Returns whether the elements of a table are in order, so that they can be counted and
    /// scanned. After a restart that takes some [steps](Self::order_step).
    #[must_use]
    pub fn has_elements_in_order(&self, table: u32) -> bool {
        let order = self.orders.find(table | ELEMENTS, OWN_KEYS);
        order.is_none_or(|order| order.walked.is_none())
    }

    /// Returns the id that a collection of this kind gets whose head will have this key; `None` if
    /// there are no more numbers at its place.
    ///
    /// # Panics
    /// When the elements are not [in order](Self::has_elements_in_order).
    #[must_use]
    pub fn new_collection(
        &self,
        table: u32,
        key: &[u8],
        kind: CollectionKind,
    ) -> Option<CollectionId> {
        let position = self.position_of(table, key);
        let [from, to] = elements::place(position);
        let (from, to) = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        let mut last = Vec::new();
        self.scan_elements(table, &KeyRange { from, to, descending: true }, 0, 1, &mut last);
        let last = last.first().and_then(|last| elements::number_of(self.entry(*last).key));
        CollectionId::new(kind, position, last.map_or(0, |last| last + 1))
    }

    /// Returns the table and the owner record of a collection whose head was removed or replaced
    /// since the last call. The head may have another key now.
    pub fn take_gone_collection(&mut self) -> Option<(u32, OwnerKey)> {
        self.gone_collections.owners.pop_front()
    }

    /// Returns whether some of these collections were forgotten since the last call.
    pub fn forgot_gone_collections(&mut self) -> bool {
        std::mem::take(&mut self.gone_collections.forgot)
    }

    /// Records that an object is about to be removed, or replaced by `next`.
    #[inline]
    pub(crate) fn note_gone(&mut self, address: usize, next: Option<&Entry<'_>>) {
        let entry = self.memory.entry(address);
        if entry.value_type != ValueType::Collection
            || next.is_some_and(|next| {
                (next.value_type, next.value) == (entry.value_type, entry.value)
            })
        {
            return;
        }
        let Some(id) = CollectionId::of(entry.value) else { return };
        let gone = &mut self.gone_collections;
        match gone.owners.len() < MAX_GONE {
            true => gone.owners.push_back((entry.table, id.owner())),
            false => gone.forgot = true,
        }
    }

    /// Begins the order of a table of elements if it has none yet. Its objects that are there will
    /// be put in order in [steps](Self::order_step).
    pub(crate) fn order_elements(&mut self, table: u32) {
        if table & ELEMENTS != 0 && self.orders.of(table).is_empty() {
            let is_empty = self.tables.stats(table).objects == 0;
            let order = Order::new(OWN_KEYS, Sorting::Elements, is_empty);
            self.orders.tables.insert(table, vec![order]);
        }
    }

    /// Appends to `found`, in order, up to `limit` entries of a table's elements whose
    /// [keys](elements::sort_key) are in a range, after the first `skip` of them.
    ///
    /// # Panics
    /// When the order of the elements is not [complete](Self::is_ordered).
    pub fn scan_elements(
        &self,
        table: u32,
        range: &KeyRange<'_>,
        skip: usize,
        limit: usize,
        found: &mut Vec<Ref>,
    ) {
        let Some(order) = self.elements_in_order(table).filter(|_| !range.is_empty()) else {
            return;
        };
        let KeyRange { from, to, descending } = *range;
        let objects = self.objects(table | ELEMENTS);
        let (sorting, twins) = (&order.sorting, &order.twins);
        let key_of = |hash| objects.key_in_tree(hash, sorting, twins);
        let begin = if descending { to } else { from };
        let key = |at: &Ref| order.key_of(&self.memory.entry(at.address)).expect("it is in order");
        let of_twins = self.twins_in(table, order, range);
        if of_twins.is_empty() && skip == 0 && limit <= FEW {
            let hashes = order.tree.scan(begin, descending, 0, &key_of).take(limit);
            let in_tree = hashes.map(|hash| objects.in_tree(hash, twins));
            found.extend(in_tree.take_while(|at| range.contains(&key(at))));
            return;
        }
        let limit = limit.min(self.count_elements(table, range).saturating_sub(skip));
        if of_twins.is_empty() {
            let hashes = self.prefetched(order.tree.scan(begin, descending, skip, &key_of));
            found.extend(hashes.take(limit).map(|hash| objects.in_tree(hash, twins)));
            return;
        }
        // There are hardly ever any: all that are in the range are put in order.
        let hashes = order.tree.scan(begin, descending, 0, &key_of);
        let in_tree = hashes.map(|hash| objects.in_tree(hash, twins));
        let mut all: Vec<Ref> = in_tree.take_while(|at| range.contains(&key(at))).collect();
        all.extend(of_twins);
        all.sort_by(|one, other| key(one).cmp(&key(other)));
        if descending {
            all.reverse();
        }
        found.extend(all.into_iter().skip(skip).take(limit));
    }

    /// Returns the number of a table's elements whose [keys](elements::sort_key) are in a range.
    ///
    /// # Panics
    /// When the order of the elements is not [complete](Self::is_ordered).
    #[must_use]
    pub fn count_elements(&self, table: u32, range: &KeyRange<'_>) -> usize {
        let Some(order) = self.elements_in_order(table).filter(|_| !range.is_empty()) else {
            return 0;
        };
        let objects = self.objects(table | ELEMENTS);
        let key_of = |hash| objects.key_in_tree(hash, &order.sorting, &order.twins);
        order.tree.count((range.from, range.to), &key_of) + self.twins_in(table, order, range).len()
    }

    /// Returns the order of a table's elements; `None` if it has none.
    fn elements_in_order(&self, table: u32) -> Option<&Order> {
        let order = self.orders.find(table | ELEMENTS, OWN_KEYS)?;
        assert!(order.walked.is_none(), "the order is complete");
        Some(order)
    }

    /// Returns the elements in a range that are not in the tree.
    fn twins_in(&self, table: u32, order: &Order, range: &KeyRange<'_>) -> Vec<Ref> {
        let found = order.twins.iter().filter_map(|own| self.find(table | ELEMENTS, own));
        let is_in = |at: &Ref| {
            let key = order.key_of(&self.memory.entry(at.address));
            key.is_some_and(|key| range.contains(&key))
        };
        found.filter(is_in).collect()
    }
}
