//! Ranges of positions.

use proptest::prelude::*;
use sprat_wire::tablet::{Range, Tablet, hash, position};

/// Positions that have their first 16 bits in common.
const PLACE: u64 = 1 << 48;

fn range() -> impl Strategy<Value = Range> {
    let edge = prop_oneof![any::<u64>(), 0..4_u64, Just(u64::MAX), u64::MAX - 4..];
    (edge.clone(), edge)
        .prop_map(|(one, other)| Range { first: one.min(other), last: one.max(other) })
}

proptest! {
    #[test]
    fn without_leaves_positions_of_no_other_range(
        whole in range(),
        others in prop::collection::vec(range(), 0..5),
        at: u64,
    ) {
        let left = whole.without(others.iter().copied());
        prop_assert!(left.iter().all(|range| range.first <= range.last));
        prop_assert!(left.is_sorted_by(|one, next| one.last < next.first));
        let edges = left
            .iter()
            .flat_map(|range| [range.first, range.last])
            .chain(others.iter().map(|other| other.first));
        for at in edges.chain([at, whole.first, whole.last]) {
            let is_left = left.iter().any(|range| range.contains(at));
            let should = whole.contains(at) && !others.iter().any(|other| other.contains(at));
            prop_assert_eq!(is_left, should, "{}", at);
        }
    }

    #[test]
    fn parts_cover_the_range_evenly(whole in range(), count in 1..70_u64) {
        let parts = whole.parts(count);
        prop_assert_eq!((parts[0].first, parts.last().unwrap().last), (whole.first, whole.last));
        prop_assert!(parts.windows(2).all(|pair| pair[0].last + 1 == pair[1].first));
        let len = |range: &Range| range.last - range.first;
        let (least, most) =
            (parts.iter().map(len).min().unwrap(), parts.iter().map(len).max().unwrap());
        // Large parts begin and end between two places.
        let positions = u128::from(whole.last - whole.first) + 1;
        let is_large = positions / u128::from(count) >= u128::from(PLACE);
        let tolerance = if is_large { 2 * PLACE } else { 1 };
        prop_assert!(most - least <= tolerance);
        let mut edges = parts.iter().skip(1).map(|part| part.first);
        prop_assert!(!is_large || edges.all(|edge| edge.is_multiple_of(PLACE)));
        prop_assert!(parts.len() as u64 == count || most == 0);
    }

    #[test]
    fn an_overlap_is_in_both_ranges(one in range(), other in range(), at: u64) {
        let both = one.overlap(other);
        for at in [at, one.first, one.last, other.first, other.last] {
            prop_assert_eq!(
                both.is_some_and(|both| both.contains(at)),
                one.contains(at) && other.contains(at)
            );
        }
    }
}

/// Clients and servers of different versions must agree on these numbers.
#[test]
fn a_key_stays_where_it_is() {
    assert_eq!(hash(7, 1, b"key"), KEY_OF_TABLE_1);
    assert_eq!(position(7, 1, b"key"), KEY_OF_TABLE_1.reverse_bits());
    assert_ne!(position(7, 1, b"key"), position(7, 2, b"key"));
    assert_eq!(
        Tablet { table: 3, range: Range::ALL.parts(4)[1] }.to_string(),
        "table 3 4000..7fff"
    );
    assert_eq!(Range { first: 1, last: 2 }.to_string(), "0000000000000001..0000000000000002");
}

const KEY_OF_TABLE_1: u64 = 10_779_799_590_271_751_038;
