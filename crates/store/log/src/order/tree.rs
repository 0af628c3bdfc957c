//! An ordered set of keys that holds references in place of keys.
//!
//! A *leaf* is an ascending row of slots. Each has a key's hash, by which the caller finds the key,
//! and eight of the key's bytes, the *head*. A B-tree holds the leaves by their fences: a leaf has
//! the keys from its own fence on and below that of the next leaf. All of its keys therefore begin
//! with the bytes that these two fences have in common, and the head is what follows them (prefix
//! truncation and heads as in Leis et al., *LeanStore*, ICDE 2018, and Graefe, *Modern B-Tree
//! Techniques*, 2011). So a search mostly compares numbers in a row and looks at one key or none,
//! also if all keys of a table begin alike, and a key takes 16 to 24 bytes, however long it is.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The largest number of slots of a leaf. One that exceeds it is divided.
const MAX_SLOTS: usize = 128;

/// A leaf that has fewer slots is united with a neighbour if both have room in one.
const MIN_SLOTS: usize = MAX_SLOTS / 4;

/// Slots by which a leaf grows: it has room for fewer than this number in vain.
const GROWTH: usize = 16;

/// The bytes of a key that a slot has.
const HEAD: usize = size_of::<u64>();

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Slot {
    head: u64,
    hash: u64,
}

#[derive(Debug, Default)]
struct Leaf {
    /// Number of leading bytes that all keys between the leaf's fences have in common.
    skip: usize,
    slots: Vec<Slot>,
}

/// An ordered set of keys, each given by a hash that no other key of the set has.
///
/// The methods get a function that returns the key of a hash. It must return the same keys as
/// before for all hashes in the set, and for the one that is added or removed.
#[derive(Debug)]
pub(super) struct Tree {
    /// Leaves by fence. The first fence is empty. Only the first leaf may have no slots.
    leaves: BTreeMap<Box<[u8]>, Leaf>,
    len: usize,
}

/// Returns how many leading bytes two keys have in common.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Returns the bytes of a key behind the first `skip` as a number, with zeros behind a short key.
/// Keys that have the first `skip` bytes in common are in the order of their heads, unless their
/// heads are equal.
fn head(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    let mut head = [0; HEAD];
    let len = rest.len().min(HEAD);
    head[..len].copy_from_slice(&rest[..len]);
    u64::from_be_bytes(head)
}

impl Leaf {
    /// Returns how the key of a slot compares to `key`, which is between the leaf's fences.
    fn compare<'a>(
        slot: Slot,
        (head, key): (u64, &[u8]),
        key_of: &impl Fn(u64) -> Cow<'a, [u8]>,
    ) -> Ordering {
        slot.head.cmp(&head).then_with(|| (*key_of(slot.hash)).cmp(key))
    }

    /// Returns the index of a key, or else the index at which it would be inserted.
    fn find<'a>(&self, key: &[u8], key_of: &impl Fn(u64) -> Cow<'a, [u8]>) -> Result<usize, usize> {
        let probe = (head(key, self.skip), key);
        // Keys often come in ascending order.
        if let Some(&last) = self.slots.last()
            && Self::compare(last, probe, key_of) == Ordering::Less
        {
            return Err(self.slots.len());
        }
        self.slots.binary_search_by(|&slot| Self::compare(slot, probe, key_of))
    }

    /// States the fences.
    fn set_fences<'a>(
        &mut self,
        low: &[u8],
        high: Option<&[u8]>,
        key_of: &impl Fn(u64) -> Cow<'a, [u8]>,
    ) {
        // Above the last fence are keys of all kinds.
        let skip = high.map_or(0, |high| common(low, high));
        if skip != self.skip {
            self.skip = skip;
            for slot in &mut self.slots {
                slot.head = head(&key_of(slot.hash), skip);
            }
        }
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self { leaves: BTreeMap::from([(Box::default(), Leaf::default())]), len: 0 }
    }
}

impl Tree {
    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes of memory that the set takes, without what the allocator adds.
    pub(super) fn bytes(&self) -> usize {
        let each = size_of::<Box<[u8]>>() + size_of::<Leaf>();
        let leaves = self.leaves.iter();
        leaves.map(|(low, leaf)| each + low.len() + leaf.slots.capacity() * size_of::<Slot>()).sum()
    }

    /// Adds a key that is not in the set.
    pub(super) fn insert<'a>(
        &mut self,
        key: &[u8],
        hash: u64,
        key_of: &impl Fn(u64) -> Cow<'a, [u8]>,
    ) {
        let leaf = self.leaf_mut(key);
        let at = leaf.find(key, key_of).expect_err("a key that is not in the set");
        let head = head(key, leaf.skip);
        if leaf.slots.len() == leaf.slots.capacity() {
            leaf.slots.reserve_exact(GROWTH);
        }
        leaf.slots.insert(at, Slot { head, hash });
        let is_over = leaf.slots.len() > MAX_SLOTS;
        self.len += 1;
        if is_over {
            self.divide(key, key_of);
        }
    }

    /// Removes a key from the set. Returns whether it was there.
    pub(super) fn remove<'a>(
        &mut self,
        key: &[u8],
        key_of: &impl Fn(u64) -> Cow<'a, [u8]>,
    ) -> bool {
        let leaf = self.leaf_mut(key);
        let Ok(at) = leaf.find(key, key_of) else { return false };
        leaf.slots.remove(at);
        let is_under = leaf.slots.len() < MIN_SLOTS;
        self.len -= 1;
        if is_under {
            self.unite(key, key_of);
        }
        true
    }

    /// Returns the hashes of the keys from a bound on: of those above it in ascending order, or of
    /// those below it in descending order.
    pub(super) fn scan<'a>(
        &self,
        from: Bound<&[u8]>,
        descending: bool,
        key_of: &impl Fn(u64) -> Cow<'a, [u8]>,
    ) -> Box<dyn Iterator<Item = u64> + '_> {
        let mut leaves = self.leaves.iter().map(|(low, leaf)| (&**low, leaf));
        let (low, leaf) = match from {
            Bound::Included(key) | Bound::Excluded(key) => self.leaf(key),
            Bound::Unbounded if descending => leaves.next_back().expect("there is a first leaf"),
            Bound::Unbounded => leaves.next().expect("there is a first leaf"),
        };
        // The number of slots below the bound, or up to it.
        let below = match from {
            Bound::Unbounded => {
                if descending {
                    leaf.slots.len()
                } else {
                    0
                }
            }
            Bound::Included(key) | Bound::Excluded(key) => {
                let is_below = descending == matches!(from, Bound::Included(_));
                leaf.find(key, key_of).map_or_else(|at| at, |at| at + usize::from(is_below))
            }
        };
        let (below, above) = leaf.slots.split_at(below);
        if descending {
            let others = (Bound::Unbounded, Bound::Excluded(low));
            let others = self.leaves.range::<[u8], _>(others).rev();
            let others = others.flat_map(|(_, leaf)| leaf.slots.iter().rev());
            Box::new(below.iter().rev().chain(others).map(|slot| slot.hash))
        } else {
            let others = (Bound::Excluded(low), Bound::Unbounded);
            let others = self.leaves.range::<[u8], _>(others);
            let others = others.flat_map(|(_, leaf)| &leaf.slots);
            Box::new(above.iter().chain(others).map(|slot| slot.hash))
        }
    }

    /// Returns the leaf whose fences include a key.
    fn leaf(&self, key: &[u8]) -> (&[u8], &Leaf) {
        let mut until = self.leaves.range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        let (low, leaf) = until.next_back().expect("the first fence is below all keys");
        (low, leaf)
    }

    fn leaf_mut(&mut self, key: &[u8]) -> &mut Leaf {
        let mut until = self.leaves.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        until.next_back().expect("the first fence is below all keys").1
    }

    /// Returns the fence of the leaf behind the one with this fence.
    fn fence_behind(&self, low: &[u8]) -> Option<&[u8]> {
        let mut behind = self.leaves.range::<[u8], _>((Bound::Excluded(low), Bound::Unbounded));
        behind.next().map(|(fence, _)| &**fence)
    }

    /// Divides the leaf whose fences include a key.
    fn divide<'a>(&mut self, key: &[u8], key_of: &impl Fn(u64) -> Cow<'a, [u8]>) {
        let (low, leaf) = self.leaf(key);
        let low = Box::<[u8]>::from(low);
        let high = self.fence_behind(&low).map(Box::<[u8]>::from);
        let count = leaf.slots.len();
        // If keys come in ascending order, the leaf stays nearly full: nothing will come between.
        let is_ascending = high.is_none() && *key_of(leaf.slots[count - 1].hash) == *key;
        let half = if is_ascending { count - 1 } else { count / 2 };
        let leaf = self.leaf_mut(key);
        let mut upper = Vec::with_capacity(MAX_SLOTS.min(count - half + GROWTH));
        upper.extend(leaf.slots.drain(half..));
        leaf.slots.shrink_to(half + if is_ascending { 0 } else { GROWTH });
        let fence = separator(&key_of(leaf.slots[half - 1].hash), &key_of(upper[0].hash));
        let mut upper = Leaf { skip: leaf.skip, slots: upper };
        leaf.set_fences(&low, Some(&fence), key_of);
        upper.set_fences(&fence, high.as_deref(), key_of);
        self.leaves.insert(fence, upper);
    }

    /// Unites the leaf whose fences include a key with the next one, or with the one before it, if
    /// one leaf has room for both.
    fn unite<'a>(&mut self, key: &[u8], key_of: &impl Fn(u64) -> Cow<'a, [u8]>) {
        let low = Box::<[u8]>::from(self.leaf(key).0);
        let low = match self.fence_behind(&low) {
            Some(_) => low,
            None => {
                let mut before =
                    self.leaves.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&*low)));
                let Some((before, _)) = before.next_back() else { return };
                before.clone()
            }
        };
        let next = Box::<[u8]>::from(self.fence_behind(&low).expect("one is behind it"));
        let count = |low: &[u8]| self.leaves[low].slots.len();
        let (lower, upper) = (count(&low), count(&next));
        if lower + upper > MAX_SLOTS / 2 && lower.min(upper) > 0 {
            return;
        }
        let mut upper = self.leaves.remove(&next).expect("it is there");
        let high = self.fence_behind(&low).map(Box::<[u8]>::from);
        let lower = self.leaves.get_mut(&low).expect("it is there");
        // Afterwards all heads agree.
        lower.set_fences(&low, high.as_deref(), key_of);
        upper.set_fences(&low, high.as_deref(), key_of);
        lower.slots.reserve_exact(upper.slots.len());
        lower.slots.append(&mut upper.slots);
    }

    /// Asserts that the keys are in order and between their fences, and that heads are right. For
    /// tests.
    pub(super) fn check<'a>(&self, key_of: &impl Fn(u64) -> Cow<'a, [u8]>) {
        let mut last: Option<Vec<u8>> = None;
        let mut len = 0;
        for (index, (low, leaf)) in self.leaves.iter().enumerate() {
            let high = self.fence_behind(low);
            assert!(leaf.slots.len() <= MAX_SLOTS);
            assert!(index == 0 || !leaf.slots.is_empty(), "an empty leaf");
            assert_eq!(leaf.skip, high.map_or(0, |high| common(low, high)));
            for slot in &leaf.slots {
                let key = key_of(slot.hash);
                assert!(last.as_deref().is_none_or(|last| last < &*key), "not ascending");
                assert!(*key >= **low && high.is_none_or(|high| *key < *high), "beyond a fence");
                assert_eq!(slot.head, head(&key, leaf.skip));
                last = Some(key.into_owned());
            }
            len += leaf.slots.len();
        }
        assert_eq!(len, self.len);
    }
}

/// Returns the shortest key that is above `below` and not above `key`.
fn separator(below: &[u8], key: &[u8]) -> Box<[u8]> {
    key[..common(below, key) + 1].into()
}
