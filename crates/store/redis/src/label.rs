//! Labels of the elements of lists, which are in the order of the list.
//!
//! A label begins with a number of eight bytes. An element at an end of the list gets the next
//! number, above or below; one between two others gets their number, or that of the first, and a
//! fraction of as many bytes as it needs. No fraction ends in a zero byte, so there is always a
//! label between two others.

/// Bytes of the number, with which a label begins.
pub(crate) const NUMBER: usize = size_of::<u64>();

/// The number of the first element of a new list.
const MIDDLE: u64 = 1 << 63;

/// Returns the label of an element before the first one of a list, or behind the last one, given
/// the label of that one; `None` if there are no more numbers.
pub(crate) fn beyond(end: Option<&[u8]>, before: bool) -> Option<Vec<u8>> {
    let number = match end {
        None => Some(MIDDLE),
        Some(end) if before => number(end).checked_sub(1),
        Some(end) => number(end).checked_add(1),
    };
    number.map(|number| number.to_be_bytes().to_vec())
}

fn number(label: &[u8]) -> u64 {
    label.first_chunk().map_or(MIDDLE, |number| u64::from_be_bytes(*number))
}

/// Returns a label between two others, of which the first is below the second.
pub(crate) fn between(low: &[u8], high: &[u8]) -> Vec<u8> {
    debug_assert!(low < high, "no label is between");
    let mut label = Vec::new();
    // Whether the bytes so far are those of `high`.
    let mut is_bounded = true;
    loop {
        let at = label.len();
        let least = low.get(at).map_or(0, |byte| u16::from(*byte));
        let end = match is_bounded {
            true => high.get(at).map_or(0, |byte| u16::from(*byte)),
            false => 256,
        };
        let middle = u8::try_from(least.midpoint(end)).expect("below 256");
        label.push(middle);
        if u16::from(middle) > least {
            label.resize(label.len().max(NUMBER), 0);
            return label;
        }
        is_bounded &= least == end;
    }
}

/// Returns labels for this many elements in a row, given those of the elements before and behind
/// them; `None` if there are no more numbers.
pub(crate) fn spread(
    low: Option<&[u8]>,
    high: Option<&[u8]>,
    count: usize,
) -> Option<Vec<Vec<u8>>> {
    let mut labels: Vec<Vec<u8>> = Vec::with_capacity(count);
    match (low, high) {
        (Some(low), Some(high)) => divide(low, high, count, &mut labels),
        (low, high) => {
            let before = high.is_some();
            for _ in 0..count {
                let end = labels.last().map(Vec::as_slice).or(low).or(high);
                labels.push(beyond(end, before)?);
            }
            if before {
                labels.reverse();
            }
        }
    }
    Some(labels)
}

fn divide(low: &[u8], high: &[u8], count: usize, labels: &mut Vec<Vec<u8>>) {
    if count == 0 {
        return;
    }
    let middle = between(low, high);
    divide(low, &middle, (count - 1) / 2, labels);
    labels.push(middle.clone());
    divide(&middle, high, count / 2, labels);
}

#[cfg(test)]
mod tests {
    use super::{between, beyond, spread};
    use proptest::prelude::*;

    proptest! {
        /// Elements are inserted at any places of a list; their labels stay in order.
        #[test]
        fn labels_are_in_the_order_of_the_list(
            places in prop::collection::vec(0..1000_usize, 1..300)
        ) {
            let mut labels: Vec<Vec<u8>> = Vec::new();
            for place in places {
                let at = place % (labels.len() + 1);
                let low = at.checked_sub(1).map(|at| labels[at].clone());
                let label = match (low, labels.get(at)) {
                    (Some(low), Some(high)) => between(&low, high),
                    (low, high) => {
                        let end = low.as_deref().or(high.map(Vec::as_slice));
                        beyond(end, high.is_some()).expect("far from the ends")
                    }
                };
                labels.insert(at, label);
                prop_assert!(labels.is_sorted_by(|one, next| one < next));
                prop_assert!(labels[at].len() >= 8);
            }
            let (low, high) = (labels.first().cloned(), labels.last().cloned());
            let ends = [(None, None), (None, high.clone()), (low.clone(), None), (low, high)];
            for (low, high) in ends {
                if low.is_some() && low == high {
                    continue;
                }
                let all = spread(low.as_deref(), high.as_deref(), 100);
                let mut all = all.expect("far from the ends");
                all.splice(0..0, low);
                all.extend(high);
                prop_assert!(all.is_sorted_by(|one, next| one < next));
            }
        }
    }

    #[test]
    fn a_label_grows_by_a_byte_in_eight_insertions() {
        let (low, mut high) = (beyond(None, true), beyond(None, true));
        high = beyond(high.as_deref(), false);
        let (low, mut high) = (low.expect("the first"), high.expect("the next"));
        for _ in 0..448 {
            high = between(&low, &high);
        }
        assert!((60..=66).contains(&high.len()), "{}", high.len());
    }
}
