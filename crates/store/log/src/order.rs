//! Ordered tables and indexes: the log keeps the objects of tables that the owner
//! [names](Log::set_orders) in the order of their keys, or of fields of their values, too.
//!
//! An order is derived data in ordinary memory. No byte of the log depends on it: whatever adds an
//! object to the hash table, replaces or removes one, does the same to its key in each order of its
//! table. A table that has objects when an order is named is walked through in steps
//! ([`Log::order_step`]), as its owner finds time.

mod elements;
mod tree;

use crate::log::{Log, Ref, hash_at};
use crate::segment::Memory;
use crate::table::Table;
use sprat_wire::elements::{ELEMENTS, sort_key};
use sprat_wire::entry::Entry;
use sprat_wire::index::{IndexDefinition, MAX_INDEXES, OrderStats, SortOrder};
use sprat_wire::order::KeyRange;
use sprat_wire::transaction::TransactionAction;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

pub(crate) use elements::GoneCollections;

use tree::Tree;

/// The largest number of keys that [`Log::scan_order`] visits in one call, also of objects that the
/// caller does not want.
pub const SCAN_KEYS: usize = 4096;

/// How many chains of the hash table [`Log::order_step`] visits, and after how many objects it
/// ends: about as much work as a slice of the cleaner.
const CHAINS_AT_ONCE: usize = 128;
const OBJECTS_AT_ONCE: usize = 32;

/// Number of objects that a scan prefetches together.
const AHEAD: usize = 16;

/// Which orders of a table: a bit for each.
type OrderSet = u32;

const _: () = assert!(MAX_INDEXES < OrderSet::BITS as usize, "the keys' order and the indexes");

/// What the keys of an order are.
#[derive(Clone, Debug)]
enum Sorting {
    /// The objects' own keys.
    Own,
    /// Those that an index finds in the objects' values.
    Index(IndexDefinition),
    /// Those of the elements of [collections](sprat_wire::elements).
    Elements,
}

/// The keys of a table's objects in order.
#[derive(Debug)]
struct Order {
    index: u32,
    sorting: Sorting,
    tree: Tree,
    /// Own keys of the objects that came when another object of the table had the same hash. Those
    /// that have a key in this order are not in the tree.
    twins: BTreeSet<Box<[u8]>>,
    /// Number of objects that have no key in this order.
    without_key: u64,
    /// The walk through the table has reached this position: objects from it on are not in the
    /// order. `None` when the walk is over.
    walked: Option<u64>,
}

/// The orders of all tables that have any.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    tables: BTreeMap<u32, Vec<Order>>,
}

/// Finds the objects of a table that are in an order.
#[derive(Clone, Copy)]
struct Objects<'a> {
    table: u32,
    memory: &'a Memory,
    hash_table: &'a Table,
    seed: u64,
}

impl<'a> Objects<'a> {
    fn find(&self, hash: u64, mut is_meant: impl FnMut(&Entry<'_>) -> bool) -> Option<Ref> {
        let mut len = 0;
        let (_, address) = self.hash_table.find(hash, |address| {
            let entry = self.memory.entry(address);
            len = entry.encoded_len();
            entry.table == self.table
                && is_meant(&entry)
                && hash_at(self.memory, self.seed, address) == hash
        })?;
        Some(Ref { address, len })
    }

    /// Returns the object whose key is in the tree.
    fn in_tree(&self, hash: u64, twins: &BTreeSet<Box<[u8]>>) -> Ref {
        let found = self.find(hash, |entry| twins.is_empty() || !twins.contains(entry.key));
        found.expect("what is in the order is in the hash table")
    }

    fn key_in_tree(
        &self,
        hash: u64,
        sorting: &Sorting,
        twins: &BTreeSet<Box<[u8]>>,
    ) -> Cow<'a, [u8]> {
        let entry = self.memory.entry(self.in_tree(hash, twins).address);
        sorting.key_of(entry.key, entry.value).expect("it was put in order")
    }
}

impl Sorting {
    /// Returns the key of an object; `None` if it has none: if the index finds nothing in its
    /// value.
    fn key_of<'a>(&self, key: &'a [u8], value: &[u8]) -> Option<Cow<'a, [u8]>> {
        match self {
            Self::Own => Some(Cow::Borrowed(key)),
            Self::Index(definition) => definition.key_of(key, value).map(Cow::Owned),
            Self::Elements => sort_key(key, value),
        }
    }
}

impl Order {
    fn new(index: u32, sorting: Sorting, is_empty: bool) -> Self {
        Self {
            index,
            sorting,
            tree: Tree::default(),
            twins: BTreeSet::new(),
            without_key: 0,
            walked: (!is_empty).then_some(0),
        }
    }

    /// Returns the key of an object in this order.
    fn key_of<'a>(&self, entry: &Entry<'a>) -> Option<Cow<'a, [u8]>> {
        self.sorting.key_of(entry.key, entry.value)
    }

    /// Returns whether the walk has passed the objects with this hash.
    fn has_passed(&self, hash: u64) -> bool {
        self.walked.is_none_or(|walked| hash.reverse_bits() < walked)
    }

    /// Adds an object that has been added to the hash table.
    fn add(&mut self, objects: Objects<'_>, hash: u64, entry: &Entry<'_>) {
        if objects.find(hash, |other| other.key != entry.key).is_some() {
            self.twins.insert(entry.key.into());
        }
        self.add_key(objects, hash, entry);
    }

    /// Removes an object that is still in the hash table.
    fn remove(&mut self, objects: Objects<'_>, entry: &Entry<'_>) {
        self.remove_key(objects, entry);
        self.twins.remove(entry.key);
    }

    fn add_key(&mut self, objects: Objects<'_>, hash: u64, entry: &Entry<'_>) {
        match self.key_of(entry) {
            None => self.without_key += 1,
            Some(_) if self.twins.contains(entry.key) => {}
            Some(key) => {
                let Self { sorting, tree, twins, .. } = self;
                let key_of = |hash| objects.key_in_tree(hash, sorting, twins);
                tree.insert(&key, hash, &key_of);
            }
        }
    }

    fn remove_key(&mut self, objects: Objects<'_>, entry: &Entry<'_>) {
        match self.key_of(entry) {
            None => self.without_key -= 1,
            Some(_) if self.twins.contains(entry.key) => {}
            Some(key) => {
                let Self { sorting, tree, twins, .. } = self;
                let key_of = |hash| objects.key_in_tree(hash, sorting, twins);
                assert!(tree.remove(&key, &key_of), "every key is in the order");
            }
        }
    }
}

impl Log {
    /// Names the orders to keep. All others are forgotten, except those of the elements of
    /// collections, which the log always keeps.
    ///
    /// # Panics
    /// When a table has more than [`MAX_INDEXES`] indexes besides the order of its keys.
    pub fn set_orders(&mut self, orders: &[SortOrder]) {
        let named: BTreeSet<_> = orders.iter().map(|order| (order.table, order.index)).collect();
        for (&table, kept) in &mut self.orders.tables {
            kept.retain(|order| table & ELEMENTS != 0 || named.contains(&(table, order.index)));
        }
        for SortOrder { table, index, definition } in orders {
            let is_empty = self.tables.stats(*table).objects == 0;
            let kept = self.orders.tables.entry(*table).or_default();
            if kept.iter().all(|order| order.index != *index) {
                let sorting = definition.clone().map_or(Sorting::Own, Sorting::Index);
                kept.push(Order::new(*index, sorting, is_empty));
                assert!(kept.len() <= 1 + MAX_INDEXES);
            }
        }
        self.orders.tables.retain(|_, kept| !kept.is_empty());
    }

    /// Returns the sizes of a table's orders.
    pub fn order_stats(&self, table: u32) -> impl Iterator<Item = OrderStats> {
        let all = self.tables.stats(table).objects;
        self.orders.of(table).iter().map(move |order| OrderStats {
            index: order.index,
            objects: (order.tree.len() + order.twins.len()) as u64,
            without_key: order.without_key,
            bytes: order.tree.bytes() as u64,
            left: order.walked.map_or(0, |walked| {
                let positions = u128::from(u64::MAX - walked) + 1;
                let left = (u128::from(all) * positions) >> u64::BITS;
                u64::try_from(left).expect("at most all").max(1)
            }),
        })
    }

    /// Returns whether a table has this order, complete or not.
    #[must_use]
    pub fn has_order(&self, table: u32, index: u32) -> bool {
        self.orders.find(table, index).is_some()
    }

    /// Returns whether an order is complete, so that it can be scanned.
    #[must_use]
    pub fn is_ordered(&self, table: u32, index: u32) -> bool {
        self.orders.find(table, index).is_some_and(|order| order.walked.is_none())
    }

    /// Continues to put objects in order that were there when the order was named. Returns false if
    /// there is nothing to do.
    pub fn order_step(&mut self) -> bool {
        let Self { orders, memory, table: hash_table, config, .. } = self;
        let (position, fields_changed_at) = (self.position, &mut self.fields_changed_at);
        let mut all = orders
            .tables
            .iter_mut()
            .flat_map(|(table, kept)| kept.iter_mut().map(move |order| (*table, order)));
        let Some((table, order)) = all.find(|(_, order)| order.walked.is_some()) else {
            return false;
        };
        let objects = Objects { table, memory, hash_table, seed: config.seed };
        let (mut chain, mut count) = (Vec::new(), 0);
        for _ in 0..CHAINS_AT_ONCE {
            let Some(from) = order.walked.filter(|_| count < OBJECTS_AT_ONCE) else { break };
            // A chain holds the hashes with the same low bits: a range of positions.
            let hash = from.reverse_bits();
            let prefetch = |at: usize| crate::arena::prefetch(&memory.bytes[at]);
            hash_table.visit(hash, prefetch, |address| {
                if memory.entry(address).table == table {
                    chain.push(address);
                }
            });
            count += chain.len();
            for address in chain.drain(..) {
                order.add(objects, hash_at(memory, config.seed, address), &memory.entry(address));
            }
            order.walked = (from | u64::MAX >> hash_table.depth(hash)).checked_add(1);
        }
        if order.walked.is_none() {
            // Objects may have got other keys before the walk came to them.
            *fields_changed_at = position;
        }
        true
    }

    /// Appends to `found`, in order, the objects of a table with keys in a range of an order whose
    /// [positions] `is_wanted` accepts.
    /// Ends after about `limit_bytes` bytes of entries, `limit_objects` objects, or [`SCAN_KEYS`]
    /// keys. Returns the last object that it visited if the range may have more.
    ///
    /// [positions]: sprat_wire::tablet::position
    ///
    /// # Panics
    /// When the order is not [complete](Self::is_ordered).
    pub fn scan_order(
        &self,
        (table, index): (u32, u32),
        range: &KeyRange<'_>,
        is_wanted: impl Fn(u64) -> bool,
        (limit_bytes, limit_objects): (usize, usize),
        found: &mut Vec<Ref>,
    ) -> Option<Ref> {
        let order = self.orders.find(table, index).filter(|order| order.walked.is_none());
        let order = order.expect("a complete order");
        if range.is_empty() {
            return None;
        }
        let KeyRange { from, to, descending } = *range;
        let objects = self.objects(table);
        let begin = if descending { to } else { from };
        let (sorting, twins) = (&order.sorting, &order.twins);
        let key_of = |hash| objects.key_in_tree(hash, sorting, twins);
        let hashes = self.prefetched(order.tree.scan(begin, descending, 0, &key_of));
        let mut tree = hashes.map(|hash| objects.in_tree(hash, twins)).peekable();
        let key = |found: &Ref| {
            let entry = self.memory.entry(found.address);
            order.key_of(&entry).expect("it is in the order")
        };
        // There are hardly ever any.
        let twins = order.twins.iter().filter_map(|own| self.find(table, own));
        let has_key = |at: &Ref| order.key_of(&self.memory.entry(at.address)).is_some();
        let mut twins: Vec<Ref> =
            twins.filter(has_key).filter(|at| range.contains(&key(at))).collect();
        twins.sort_by(|one, other| key(other).cmp(&key(one)));
        if descending {
            twins.reverse();
        }
        let (mut bytes, mut last) = (0, None);
        for _ in 0..SCAN_KEYS {
            if bytes >= limit_bytes || found.len() >= limit_objects {
                return last;
            }
            let next = match (tree.peek(), twins.last()) {
                (Some(one), Some(twin)) if range.comes_before(&key(twin), &key(one)) => twins.pop(),
                (None, _) => twins.pop(),
                _ => tree.next(),
            };
            let next = next.filter(|next| range.contains(&key(next)))?;
            last = Some(next);
            if is_wanted(hash_at(&self.memory, self.config.seed, next.address).reverse_bits()) {
                found.push(next);
                bytes += next.len;
            }
        }
        last
    }

    /// Returns the position in the log behind the last entry that may have replaced an object and
    /// has another key in an order. Until everything before it is durable, no client may learn that
    /// an object does not have the key that it had: a crash would bring that key back.
    #[must_use]
    pub fn fields_changed_at(&self) -> u64 {
        self.fields_changed_at
    }

    /// Returns the key of an object in an order of its table; `None` if it has none, or the table
    /// has no such order.
    #[must_use]
    pub fn key_in_order(&self, index: u32, found: Ref) -> Option<Cow<'_, [u8]>> {
        let entry = self.memory.entry(found.address);
        self.orders.find(entry.table, index)?.key_of(&entry)
    }

    /// Returns the keys of an order at which the outcome of a transaction may add or remove an
    /// object that is [locked](Self::is_locked) against reads, each with the object's position.
    /// `None`: that may be anywhere.
    #[must_use]
    pub fn locked_in_order(&self, table: u32, index: u32) -> Option<Vec<(u64, Cow<'_, [u8]>)>> {
        let sorting = &self.orders.find(table, index)?.sorting;
        let mut keys = Vec::new();
        for (position, key, action) in self.locked(table) {
            let object = self.find(table, key).map(|found| self.memory.entry(found.address));
            match (sorting, object) {
                (Sorting::Own, _) => keys.push((position, Cow::Borrowed(key))),
                // Where the object was that expired while the log was restored is not known.
                (_, None) if self.has_time_record(table) => return None,
                (_, object) => {
                    let before = object.map(|object| object.value);
                    let after = match action {
                        TransactionAction::Write(value, _) => Some(value),
                        TransactionAction::Check | TransactionAction::Remove => None,
                    };
                    let values = before.into_iter().chain(after);
                    keys.extend(
                        values.filter_map(|value| Some((position, sorting.key_of(key, value)?))),
                    );
                }
            }
        }
        Some(keys)
    }

    /// Records that an object was added to the hash table.
    #[inline]
    pub(crate) fn order_added(&mut self, table: u32, hash: u64, address: usize) {
        self.order_elements(table);
        let Self { orders, memory, table: hash_table, config, .. } = self;
        for order in orders.passed(table, hash) {
            let objects = Objects { table, memory, hash_table, seed: config.seed };
            order.add(objects, hash, &memory.entry(address));
        }
    }

    /// Records that an object is about to be replaced: removes it from the orders in which the new
    /// one has another key. Returns these, for [`order_replaced`](Self::order_replaced).
    #[inline]
    pub(crate) fn order_replacing(&mut self, hash: u64, old: usize, new: usize) -> OrderSet {
        let Self { orders, memory, table: hash_table, config, .. } = self;
        let mut changed = 0;
        if orders.tables.is_empty() {
            return changed;
        }
        let (old, new) = (memory.entry(old), memory.entry(new));
        let table = new.table;
        for (at, order) in orders.tables.get_mut(&table).into_iter().flatten().enumerate() {
            if !matches!(order.sorting, Sorting::Own)
                && order.has_passed(hash)
                && order.key_of(&old) != order.key_of(&new)
            {
                changed |= 1 << at;
                let objects = Objects { table, memory, hash_table, seed: config.seed };
                order.remove_key(objects, &old);
            }
        }
        changed
    }

    /// Records that an object was replaced.
    #[inline]
    pub(crate) fn order_replaced(&mut self, hash: u64, new: usize, changed: OrderSet) {
        if changed == 0 {
            return;
        }
        self.fields_changed_at = self.position;
        let Self { orders, memory, table: hash_table, config, .. } = self;
        let entry = memory.entry(new);
        let table = entry.table;
        for (at, order) in orders.tables.get_mut(&table).into_iter().flatten().enumerate() {
            if changed & 1 << at != 0 {
                let objects = Objects { table, memory, hash_table, seed: config.seed };
                order.add_key(objects, hash, &entry);
            }
        }
    }

    /// Records that the object at an address is about to be removed from the hash table.
    #[inline]
    pub(crate) fn order_removed(&mut self, hash: u64, address: usize) {
        self.note_gone(address, None);
        let Self { orders, memory, table: hash_table, tables, config, .. } = self;
        if orders.tables.is_empty() {
            return;
        }
        let entry = memory.entry(address);
        let table = entry.table;
        // What was dropped before the table was named is in no order.
        if tables.is_dropped(table) {
            return;
        }
        for order in orders.passed(table, hash) {
            let objects = Objects { table, memory, hash_table, seed: config.seed };
            order.remove(objects, &entry);
        }
    }

    /// Asserts that each order has the keys of the objects at `addresses` that are of its table and
    /// that the walk has passed. For tests.
    pub(crate) fn check_orders(&self, addresses: &HashSet<usize>) {
        for (&table, orders) in &self.orders.tables {
            let is_dropped = self.tables.is_dropped(table);
            let of_table = addresses.iter().filter(|_| !is_dropped);
            let of_table = of_table.filter(|&&at| self.memory.entry(at).table == table);
            let of_table: Vec<usize> = of_table.copied().collect();
            for order in orders {
                let (sorting, twins) = (&order.sorting, &order.twins);
                let objects = self.objects(table);
                order.tree.check(&|hash| objects.key_in_tree(hash, sorting, twins));
                let hash = |at: usize| hash_at(&self.memory, self.config.seed, at);
                let walked = of_table.iter().filter(|&&at| order.has_passed(hash(at)));
                let entries = walked.map(|&at| self.memory.entry(at));
                let (mut with, mut without, mut apart) = (0, 0, 0);
                for entry in entries {
                    let is_twin = twins.contains(entry.key);
                    apart += usize::from(is_twin);
                    match order.key_of(&entry) {
                        None => without += 1,
                        Some(_) => with += usize::from(!is_twin),
                    }
                }
                let sizes = (order.tree.len(), order.without_key, twins.len());
                assert_eq!(sizes, (with, without, apart), "the order has all objects");
            }
        }
    }

    fn objects(&self, table: u32) -> Objects<'_> {
        Objects { table, memory: &self.memory, hash_table: &self.table, seed: self.config.seed }
    }

    /// Passes hashes on, and prefetches their objects.
    fn prefetched(&self, mut hashes: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
        let mut ahead = VecDeque::with_capacity(AHEAD);
        std::iter::from_fn(move || {
            if ahead.is_empty() {
                ahead.extend(hashes.by_ref().take(AHEAD));
                ahead.iter().for_each(|&hash| self.prefetch(hash));
                ahead.iter().for_each(|&hash| self.prefetch_entry(hash));
            }
            ahead.pop_front()
        })
    }
}

impl Orders {
    /// Forgets a table that is dropped.
    pub(crate) fn forget(&mut self, table: u32) {
        self.tables.remove(&table);
    }

    fn of(&self, table: u32) -> &[Order] {
        self.tables.get(&table).map_or(&[], |orders| orders)
    }

    fn find(&self, table: u32, index: u32) -> Option<&Order> {
        self.of(table).iter().find(|order| order.index == index)
    }

    /// Returns the orders of a table that have the objects with this hash, or should have.
    #[inline]
    fn passed(&mut self, table: u32, hash: u64) -> impl Iterator<Item = &mut Order> {
        let orders = self.tables.get_mut(&table).into_iter().flatten();
        orders.filter(move |order| order.has_passed(hash))
    }
}
