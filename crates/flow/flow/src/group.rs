//! Groups, the units in which a file is verified and fetched again.
//!
//! A file's BLAKE3 hash is the root of a tree over chunks of 1 KiB. A group is a complete subtree
//! of 1,024 chunks, and its *value* is the node at the top of that subtree. A value depends only on
//! the group's bytes, their position, and the length of the file, so the values can be computed in
//! any order. All values together yield the file's hash, as `b3sum` prints it.

use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use std::ops::Range;

/// Length of a group, in bytes. The last group of a file may be shorter.
pub const GROUP_BYTES: u64 = 1 << 20;

/// Length of a value, in bytes.
pub const VALUE_BYTES: u64 = 32;

/// Content type of a body in verified form: each group's bytes, then its value.
pub const VERIFIED: &str = "application/vnd.sprat.verified";

/// Content type of a body that consists of the groups' values, in order.
pub const VALUES: &str = "application/vnd.sprat.values";

/// The node of a group in its file's tree. The value of a file's only group is the file's hash.
pub type Value = [u8; 32];

/// Returns the number of groups of a file of `bytes` bytes.
#[must_use]
pub fn count(bytes: u64) -> u64 {
    bytes.div_ceil(GROUP_BYTES)
}

/// Returns the byte range of group `index` in a file of `bytes` bytes.
/// # Panics
/// If the file has no such group.
#[must_use]
pub fn range(bytes: u64, index: u64) -> Range<u64> {
    assert!(index < count(bytes), "group {index} of a file of {bytes} B");
    let start = index * GROUP_BYTES;
    start..bytes.min(start + GROUP_BYTES)
}

/// Computes the value of group `index`, whose bytes are `content`, in a file of `bytes` bytes.
/// # Panics
/// If the file has no such group, or `content` does not have the length of the group.
#[must_use]
pub fn value(bytes: u64, index: u64, content: &[u8]) -> Value {
    let mut summing = GroupHasher::begin(bytes, index);
    summing.add(content);
    summing.value()
}

/// Computes the value of a group incrementally. Received pieces can thus be hashed while they are
/// in the processor's cache.
#[derive(Debug)]
pub struct GroupHasher {
    hasher: blake3::Hasher,
    /// Number of bytes still to be added.
    left: u64,
    /// Whether the group is the whole file.
    only: bool,
}

impl GroupHasher {
    /// Begins group `index` in a file of `bytes` bytes.
    ///
    /// # Panics
    /// If the file has no such group.
    #[must_use]
    pub fn begin(bytes: u64, index: u64) -> Self {
        let range = range(bytes, index);
        let (mut hasher, only) = (blake3::Hasher::new(), bytes <= GROUP_BYTES);
        if !only {
            hasher.set_input_offset(range.start);
        }
        Self { hasher, left: range.end - range.start, only }
    }

    /// Adds the next bytes.
    pub fn add(&mut self, content: &[u8]) {
        self.hasher.update(content);
        self.left = self.left.wrapping_sub(content.len() as u64);
    }

    /// Returns the group's value.
    /// # Panics
    /// If not exactly the group's bytes were added.
    #[must_use]
    pub fn value(&self) -> Value {
        assert_eq!(self.left, 0, "a group is summed whole");
        if self.only { *self.hasher.finalize().as_bytes() } else { self.hasher.finalize_non_root() }
    }
}

/// Returns the hash of the file whose groups have these values, in order. Without values, returns
/// the hash of an empty file.
#[must_use]
pub fn root(values: &[Value]) -> Value {
    match values {
        [] => *blake3::hash(&[]).as_bytes(),
        [only] => *only,
        _ => {
            let (left, right) = values.split_at(left(values.len()));
            *merge_subtrees_root(&top(left), &top(right), Mode::Hash).as_bytes()
        }
    }
}

/// Returns the node above `values`, which must not be all values of the file.
fn top(values: &[Value]) -> Value {
    if let [only] = values {
        return *only;
    }
    let (left, right) = values.split_at(left(values.len()));
    merge_subtrees_non_root(&top(left), &top(right), Mode::Hash)
}

/// Returns how many of `count` leaves are on the left: the largest power of two less than `count`.
fn left(count: usize) -> usize {
    debug_assert!(count >= 2, "a tree has two sides");
    1 << (count - 1).ilog2()
}

/// Returns the length in bytes of a part of a file in verified form. `range` must begin at a group,
/// and end at the end of a group or of the file.
///
/// # Panics
/// If `range` does not begin at a group, or ends before it begins.
#[must_use]
pub fn verified_length(range: &Range<u64>) -> u64 {
    assert!(
        range.start.is_multiple_of(GROUP_BYTES) && range.start <= range.end,
        "{range:?} begins a group"
    );
    let length = range.end - range.start;
    length + count(length) * VALUE_BYTES
}

/// Returns the length of the file whose verified form has `bytes` bytes. `None` if there is no such
/// file.
#[must_use]
pub fn length_of_verified(bytes: u64) -> Option<u64> {
    let length = bytes - (bytes.div_ceil(GROUP_BYTES + VALUE_BYTES) * VALUE_BYTES).min(bytes);
    (verified_length(&(0..length)) == bytes).then_some(length)
}

/// Returns the length in bytes of the values of a part of a file. `range` must begin at a group.
///
/// # Panics
/// If `range` does not begin at a group.
#[must_use]
pub fn values_length(range: &Range<u64>) -> u64 {
    verified_length(range) - (range.end - range.start)
}
