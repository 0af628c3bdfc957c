//! Tests groups, their values, and the hash of the whole file.

use proptest::prelude::*;
use sprat_flow::group::{GROUP_BYTES, count, range, root, value, verified_length};

fn content(bytes: usize) -> Vec<u8> {
    (0..=250).cycle().take(bytes).collect()
}

/// Returns the values of all groups. Computes them from the last to the first, because their order
/// must not matter.
fn values(content: &[u8]) -> Vec<[u8; 32]> {
    let bytes = content.len() as u64;
    let part = |index| {
        let range = range(bytes, index);
        &content[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
    };
    let mut values: Vec<_> =
        (0..count(bytes)).rev().map(|index| value(bytes, index, part(index))).collect();
    values.reverse();
    values
}

#[test]
fn values_make_the_hash_that_everybody_knows() {
    let group = usize::try_from(GROUP_BYTES).unwrap();
    for bytes in [
        0,
        1,
        1024,
        group - 1,
        group,
        group + 1,
        2 * group,
        3 * group,
        5 * group + 4097,
        8 * group + 1,
    ] {
        let content = content(bytes);
        assert_eq!(root(&values(&content)), *blake3::hash(&content).as_bytes(), "{bytes} B");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn one_wrong_byte_is_in_one_value(
        bytes in 1usize..4 << 20,
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut content = content(bytes);
        let right = values(&content);
        let at = at.index(bytes);
        content[at] ^= 1 << bit;
        let wrong = values(&content);
        for (index, (right, wrong)) in right.iter().zip(&wrong).enumerate() {
            prop_assert_eq!(right == wrong, index as u64 != at as u64 / GROUP_BYTES);
        }
    }

    #[test]
    fn groups_tile_the_file(bytes in 1u64..1 << 40) {
        let last = count(bytes) - 1;
        prop_assert_eq!(range(bytes, 0).start, 0);
        prop_assert_eq!(range(bytes, last).end, bytes);
        prop_assert_eq!(range(bytes, last).start, last * GROUP_BYTES);
        prop_assert_eq!(verified_length(&(0..bytes)), bytes + (last + 1) * 32);
    }
}
