//! Groups: the parts of a file that are verified, and fetched again, alone.
//!
//! A file's BLAKE3 hash is the root of a tree over chunks of 1 KiB. A group is a whole subtree,
//! 1,024 chunks; its *value* is what stands at that subtree's top. Values can be computed in any
//! order, by whoever has a group's bytes and knows where in the file they are; all values together
//! give the file's hash, the one that `b3sum` prints.

use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use std::ops::Range;

/// Bytes of a group; the last of a file has fewer.
pub const GROUP_BYTES: u64 = 1 << 20;

/// Bytes of a value.
pub const VALUE_BYTES: u64 = 32;

/// The content type of a body in verified form: each group's bytes, then its value.
pub const VERIFIED: &str = "application/vnd.sprat.verified";

/// The content type of a body of nothing but the groups' values, in order.
pub const VALUES: &str = "application/vnd.sprat.values";

/// What stands for a group in its file's tree. The value of a file's only group is the file's hash.
pub type Value = [u8; 32];

/// How many groups a file of `bytes` has.
#[must_use]
pub fn count(bytes: u64) -> u64 {
    bytes.div_ceil(GROUP_BYTES)
}

/// The bytes of group `index` in a file of `bytes`.
///
/// # Panics
/// When the file has no such group.
#[must_use]
pub fn range(bytes: u64, index: u64) -> Range<u64> {
    assert!(index < count(bytes), "group {index} of a file of {bytes} B");
    let start = index * GROUP_BYTES;
    start..bytes.min(start + GROUP_BYTES)
}

/// The value of group `index`, whose bytes are `content`, in a file of `bytes`.
///
/// # Panics
/// When that group has another length.
#[must_use]
pub fn value(bytes: u64, index: u64, content: &[u8]) -> Value {
    let mut summing = Summing::begin(bytes, index);
    summing.add(content);
    summing.value()
}

/// The value of a group, from its bytes as they come: small parts are summed while they are still
/// in the processor's cache.
#[derive(Debug)]
pub struct Summing {
    hasher: blake3::Hasher,
    /// Bytes that are still to come.
    left: u64,
    /// Whether the group is the whole file.
    only: bool,
}

impl Summing {
    /// Begins with group `index` in a file of `bytes`.
    ///
    /// # Panics
    /// When the file has no such group.
    #[must_use]
    pub fn begin(bytes: u64, index: u64) -> Self {
        let range = range(bytes, index);
        let (mut hasher, only) = (blake3::Hasher::new(), bytes <= GROUP_BYTES);
        if !only {
            hasher.set_input_offset(range.start);
        }
        Self { hasher, left: range.end - range.start, only }
    }

    /// Takes the next bytes.
    pub fn add(&mut self, content: &[u8]) {
        self.hasher.update(content);
        self.left = self.left.wrapping_sub(content.len() as u64);
    }

    /// The value.
    ///
    /// # Panics
    /// When not exactly the group's bytes were taken.
    #[must_use]
    pub fn value(&self) -> Value {
        assert_eq!(self.left, 0, "a group is summed whole");
        if self.only { *self.hasher.finalize().as_bytes() } else { self.hasher.finalize_non_root() }
    }
}

/// The hash of the file whose groups have these values, in order; of an empty file when there are
/// none.
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

/// The value above some, which are not the whole file.
fn top(values: &[Value]) -> Value {
    if let [only] = values {
        return *only;
    }
    let (left, right) = values.split_at(left(values.len()));
    merge_subtrees_non_root(&top(left), &top(right), Mode::Hash)
}

/// How many of `count` leaves are on the left: the most that make a full tree and leave something
/// for the right.
fn left(count: usize) -> usize {
    debug_assert!(count >= 2, "a tree has two sides");
    1 << (count - 1).ilog2()
}

/// The length in verified form of the part `range` of a file: the start of a group, to the end of
/// one, or of the file.
///
/// # Panics
/// When `range` does not begin where a group does.
#[must_use]
pub fn verified_length(range: &Range<u64>) -> u64 {
    assert!(
        range.start.is_multiple_of(GROUP_BYTES) && range.start <= range.end,
        "{range:?} begins a group"
    );
    let length = range.end - range.start;
    length + count(length) * VALUE_BYTES
}

/// The length of a file whose verified form has `bytes`. None: no file's has.
#[must_use]
pub fn length_of_verified(bytes: u64) -> Option<u64> {
    let length = bytes - (bytes.div_ceil(GROUP_BYTES + VALUE_BYTES) * VALUE_BYTES).min(bytes);
    (verified_length(&(0..length)) == bytes).then_some(length)
}

/// The length of the values of the part `range` of a file, which begins where a group does.
///
/// # Panics
/// As [`verified_length`].
#[must_use]
pub fn values_length(range: &Range<u64>) -> u64 {
    verified_length(range) - (range.end - range.start)
}
