//! An ordered set of keys that holds references in place of keys.
//!
//! A *leaf* is an ascending row of slots. Each has a key's hash, by which the caller finds the key,
//! and eight of the key's bytes, the *head*. A *branch* is a row of leaves, and a B-tree holds the
//! branches, all by their fences: a leaf has the keys from its own fence on and below that of the
//! next leaf. All of its keys therefore begin with the bytes that these two fences have in common,
//! and the head is what follows them (prefix truncation and heads as in Leis et al., *LeanStore*,
//! ICDE 2018, and Graefe, *Modern B-Tree Techniques*, 2011). So a search mostly compares numbers in
//! a row and looks at one key or none, also if all keys of a table begin alike, and a key takes 16
//! to 24 bytes, however long it is. A branch knows how many keys it has, so keys between two others
//! are counted, or skipped, in steps of some thousands.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

/// The largest number of slots of a leaf. One that exceeds it is divided.
const MAX_SLOTS: usize = 128;

/// A leaf that has fewer slots is united with a neighbour if both have room in one.
const MIN_SLOTS: usize = MAX_SLOTS / 4;

/// The largest number of leaves of a branch. One that exceeds it is divided.
const MAX_LEAVES: usize = 128;

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
    /// The lower fence: the least key that may be in the leaf.
    fence: Box<[u8]>,
    /// Number of leading bytes that all keys between the leaf's fences have in common.
    skip: usize,
    slots: Vec<Slot>,
}

/// A row of leaves, which is never empty.
#[derive(Debug)]
struct Branch {
    leaves: Vec<Leaf>,
    /// Number of keys in them.
    len: usize,
}

/// An ordered set of keys, each given by a hash that no other key of the set has.
///
/// The methods get a function that returns the key of a hash. It must return the same keys as
/// before for all hashes in the set, and for the one that is added or removed.
#[derive(Debug)]
pub(super) struct Tree {
    /// Branches by the fences of their first leaves. The first fence is empty. Only the first leaf
    /// may have no slots.
    branches: BTreeMap<Box<[u8]>, Branch>,
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

    /// States the fence of the next leaf.
    fn set_high<'a>(&mut self, high: Option<&[u8]>, key_of: &impl Fn(u64) -> Cow<'a, [u8]>) {
        // Above the last fence are keys of all kinds.
        let skip = high.map_or(0, |high| common(&self.fence, high));
        if skip != self.skip {
            self.skip = skip;
            for slot in &mut self.slots {
                slot.head = head(&key_of(slot.hash), skip);
            }
        }
    }
}

impl Branch {
    /// Returns the index of the leaf whose fences include a key, which is not below the branch.
    fn find(&self, key: &[u8]) -> usize {
        self.leaves.partition_point(|leaf| *leaf.fence <= *key) - 1
    }

    /// Returns the hashes of the keys in one direction, without the first `passed`.
    fn hashes(&self, descending: bool, mut passed: usize) -> impl Iterator<Item = u64> + use<'_> {
        let at = move |index: usize, count| if descending { count - 1 - index } else { index };
        let leaf = move |index| &self.leaves[at(index, self.leaves.len())].slots;
        let mut first = 0;
        while first < self.leaves.len() && passed >= leaf(first).len() {
            passed -= leaf(first).len();
            first += 1;
        }
        (first..self.leaves.len()).flat_map(move |index| {
            let slots = leaf(index);
            let begin = std::mem::take(&mut passed);
            (begin..slots.len()).map(move |index| slots[at(index, slots.len())].hash)
        })
    }
}

impl Default for Tree {
    fn default() -> Self {
        let first = Branch { leaves: vec![Leaf::default()], len: 0 };
        Self { branches: BTreeMap::from([(Box::default(), first)]), len: 0 }
    }
}

impl Tree {
    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes of memory that the set takes, without what the allocator adds.
    pub(super) fn bytes(&self) -> usize {
        let leaf = |leaf: &Leaf| leaf.fence.len() + leaf.slots.capacity() * size_of::<Slot>();
        let each = |branch: &Branch| {
            let fence = size_of::<Box<[u8]>>() + branch.leaves[0].fence.len();
            let leaves = branch.leaves.capacity() * size_of::<Leaf>();
            fence + size_of::<Branch>() + leaves + branch.leaves.iter().map(leaf).sum::<usize>()
        };
        self.branches.values().map(each).sum()
    }

    /// Adds a key that is not in the set.
    pub(super) fn insert<'a>(
        &mut self,
        key: &[u8],
        hash: u64,
        key_of: &impl Fn(u64) -> Cow<'a, [u8]>,
    ) {
        let branch = self.branch_mut(key);
        let leaf = branch.find(key);
        let leaf = &mut branch.leaves[leaf];
        let at = leaf.find(key, key_of).expect_err("a key that is not in the set");
        let head = head(key, leaf.skip);
        if leaf.slots.len() == leaf.slots.capacity() {
            leaf.slots.reserve_exact(GROWTH);
        }
        leaf.slots.insert(at, Slot { head, hash });
        let is_over = leaf.slots.len() > MAX_SLOTS;
        branch.len += 1;
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
        let branch = self.branch_mut(key);
        let leaf = branch.find(key);
        let leaf = &mut branch.leaves[leaf];
        let Ok(at) = leaf.find(key, key_of) else { return false };
        leaf.slots.remove(at);
        let is_under = leaf.slots.len() < MIN_SLOTS;
        branch.len -= 1;
        self.len -= 1;
        if is_under {
            self.unite(key, key_of);
        }
        true
    }

    /// Returns the hashes of the keys from a bound on: of those above it in ascending order, or of
    /// those below it in descending order. Leaves out the first `skip` of them.
    pub(super) fn scan<'a>(
        &self,
        from: Bound<&[u8]>,
        descending: bool,
        skip: usize,
        key_of: &impl Fn(u64) -> Cow<'a, [u8]>,
    ) -> Box<dyn Iterator<Item = u64> + '_> {
        let (branch, below) = match from {
            Included(key) => self.cut(key, descending, key_of),
            Excluded(key) => self.cut(key, !descending, key_of),
            Unbounded if descending => self.last(),
            Unbounded => self.first(),
        };
        let fence = &*branch.leaves[0].fence;
        let others: Box<dyn Iterator<Item = _>> = match descending {
            false => Box::new(self.branches.range::<[u8], _>((Excluded(fence), Unbounded))),
            true => Box::new(self.branches.range::<[u8], _>((Unbounded, Excluded(fence))).rev()),
        };
        // The keys of the first branch that are on the other side of the bound are passed, too.
        let mut left = skip + if descending { branch.len - below } else { below };
        let branches = std::iter::once(branch).chain(others.map(|(_, branch)| branch));
        Box::new(branches.flat_map(move |branch| {
            let passed = left.min(branch.len);
            left -= passed;
            branch.hashes(descending, passed)
        }))
    }

    /// Returns the number of keys between two bounds, of which the first is not above the second.
    pub(super) fn count<'a>(
        &self,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        key_of: &impl Fn(u64) -> Cow<'a, [u8]>,
    ) -> usize {
        let (lower, below) = match from {
            Included(key) => self.cut(key, false, key_of),
            Excluded(key) => self.cut(key, true, key_of),
            Unbounded => self.first(),
        };
        let (upper, until) = match to {
            Included(key) => self.cut(key, true, key_of),
            Excluded(key) => self.cut(key, false, key_of),
            Unbounded => self.last(),
        };
        let (first, last) = (&*lower.leaves[0].fence, &*upper.leaves[0].fence);
        let before = self.branches.range::<[u8], _>((Included(first), Excluded(last)));
        before.map(|(_, branch)| branch.len).sum::<usize>() + until - below
    }

    /// Returns the branch that includes a key, and the number of the branch's keys that are below
    /// this key, or also not above it.
    fn cut<'a>(
        &self,
        key: &[u8],
        inclusive: bool,
        key_of: &impl Fn(u64) -> Cow<'a, [u8]>,
    ) -> (&Branch, usize) {
        let branch = self.branch(key);
        let leaf = branch.find(key);
        let before: usize = branch.leaves[..leaf].iter().map(|leaf| leaf.slots.len()).sum();
        let found = branch.leaves[leaf].find(key, key_of);
        (branch, before + found.map_or_else(|at| at, |at| at + usize::from(inclusive)))
    }

    fn first(&self) -> (&Branch, usize) {
        (self.branches.first_key_value().expect("there is a branch").1, 0)
    }

    fn last(&self) -> (&Branch, usize) {
        let (_, branch) = self.branches.last_key_value().expect("there is a branch");
        (branch, branch.len)
    }

    /// Returns the branch whose fences include a key.
    fn branch(&self, key: &[u8]) -> &Branch {
        let mut until = self.branches.range::<[u8], _>((Unbounded, Included(key)));
        until.next_back().expect("the first fence is below all keys").1
    }

    fn branch_mut(&mut self, key: &[u8]) -> &mut Branch {
        let mut until = self.branches.range_mut::<[u8], _>((Unbounded, Included(key)));
        until.next_back().expect("the first fence is below all keys").1
    }

    /// Returns the fence of the leaf behind the one whose fences include a key.
    fn fence_behind(&self, key: &[u8]) -> Option<&[u8]> {
        let branch = self.branch(key);
        if let Some(next) = branch.leaves.get(branch.find(key) + 1) {
            return Some(&next.fence);
        }
        let mut behind = self.branches.range::<[u8], _>((Excluded(key), Unbounded));
        behind.next().map(|(fence, _)| &**fence)
    }

    /// Returns the fence of the leaf before the last one.
    fn fence_before_last(&self) -> Option<&[u8]> {
        let mut leaves = self.branches.values().rev().flat_map(|branch| branch.leaves.iter().rev());
        leaves.nth(1).map(|leaf| &*leaf.fence)
    }

    /// Divides the leaf whose fences include a key.
    fn divide<'a>(&mut self, key: &[u8], key_of: &impl Fn(u64) -> Cow<'a, [u8]>) {
        let high = self.fence_behind(key).map(Box::<[u8]>::from);
        let branch = self.branch_mut(key);
        let at = branch.find(key);
        let leaf = &mut branch.leaves[at];
        let count = leaf.slots.len();
        // If keys come in ascending order, the leaf stays nearly full: nothing will come between.
        let is_ascending = high.is_none() && *key_of(leaf.slots[count - 1].hash) == *key;
        let half = if is_ascending { count - 1 } else { count / 2 };
        let mut upper = Vec::with_capacity(MAX_SLOTS.min(count - half + GROWTH));
        upper.extend(leaf.slots.drain(half..));
        leaf.slots.shrink_to(half + if is_ascending { 0 } else { GROWTH });
        let fence = separator(&key_of(leaf.slots[half - 1].hash), &key_of(upper[0].hash));
        let mut upper = Leaf { fence, skip: leaf.skip, slots: upper };
        leaf.set_high(Some(&upper.fence), key_of);
        upper.set_high(high.as_deref(), key_of);
        branch.leaves.insert(at + 1, upper);
        let leaves = branch.leaves.len();
        if leaves > MAX_LEAVES {
            let upper = branch.leaves.split_off(if is_ascending { leaves - 1 } else { leaves / 2 });
            let len = upper.iter().map(|leaf| leaf.slots.len()).sum();
            branch.len -= len;
            self.branches.insert(upper[0].fence.clone(), Branch { leaves: upper, len });
        }
    }

    /// Unites the leaf whose fences include a key with the next one, or with the one before it, if
    /// one leaf has room for both.
    fn unite<'a>(&mut self, key: &[u8], key_of: &impl Fn(u64) -> Cow<'a, [u8]>) {
        let leaf = |key: &[u8]| {
            let branch = self.branch(key);
            &branch.leaves[branch.find(key)]
        };
        let low = match self.fence_behind(key) {
            Some(_) => Some(&*leaf(key).fence),
            None => self.fence_before_last(),
        };
        let Some(low) = low.map(Box::<[u8]>::from) else { return };
        let next = Box::<[u8]>::from(self.fence_behind(&low).expect("one is behind it"));
        let (lower, upper) = (leaf(&low).slots.len(), leaf(&next).slots.len());
        if lower + upper > MAX_SLOTS / 2 && lower.min(upper) > 0 {
            return;
        }
        let mut upper = self.take_leaf(&next);
        let high = self.fence_behind(&low).map(Box::<[u8]>::from);
        let branch = self.branch_mut(&low);
        let at = branch.find(&low);
        let lower = &mut branch.leaves[at];
        // Afterwards all heads agree.
        upper.fence = low;
        upper.set_high(high.as_deref(), key_of);
        lower.set_high(high.as_deref(), key_of);
        branch.len += upper.slots.len();
        lower.slots.reserve_exact(upper.slots.len());
        lower.slots.append(&mut upper.slots);
    }

    /// Takes a leaf out, which is not the first.
    fn take_leaf(&mut self, fence: &[u8]) -> Leaf {
        let branch = self.branch_mut(fence);
        let at = branch.find(fence);
        let leaf = branch.leaves.remove(at);
        branch.len -= leaf.slots.len();
        if at == 0 {
            // The next leaf is the branch's first one.
            let branch = self.branches.remove(fence).expect("the branch of its first leaf");
            if let Some(first) = branch.leaves.first() {
                self.branches.insert(first.fence.clone(), branch);
            }
        }
        leaf
    }
    /// Asserts that the keys are in order and between their fences, and that heads are right. For
    /// tests.
    pub(super) fn check<'a>(&self, key_of: &impl Fn(u64) -> Cow<'a, [u8]>) {
        let mut last: Option<Vec<u8>> = None;
        let mut len = 0;
        for (fence, branch) in &self.branches {
            assert!(branch.leaves.len() <= MAX_LEAVES && branch.leaves[0].fence == *fence);
            let slots: usize = branch.leaves.iter().map(|leaf| leaf.slots.len()).sum();
            assert_eq!(branch.len, slots, "a branch counts its keys");
            for leaf in &branch.leaves {
                let (low, high) = (&*leaf.fence, self.fence_behind(&leaf.fence));
                assert!(leaf.slots.len() <= MAX_SLOTS);
                assert!(low.is_empty() || !leaf.slots.is_empty(), "an empty leaf");
                assert_eq!(leaf.skip, high.map_or(0, |high| common(low, high)));
                for slot in &leaf.slots {
                    let key = key_of(slot.hash);
                    assert!(last.as_deref().is_none_or(|last| last < &*key), "not ascending");
                    assert!(*key >= *low && high.is_none_or(|high| *key < *high), "beyond a fence");
                    assert_eq!(slot.head, head(&key, leaf.skip));
                    last = Some(key.into_owned());
                }
            }
            len += slots;
        }
        assert_eq!(len, self.len);
    }
}

/// Returns the shortest key that is above `below` and not above `key`.
fn separator(below: &[u8], key: &[u8]) -> Box<[u8]> {
    key[..common(below, key) + 1].into()
}
