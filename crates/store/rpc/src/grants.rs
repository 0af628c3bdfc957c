//! Chooses the long messages whose senders may send more.

use crate::config::GRANTED_MESSAGES;

/// A message that waits for a grant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Candidate {
    /// The message's number.
    pub(crate) index: u32,
    /// Bytes still to come.
    pub(crate) remaining: usize,
    /// The message's number in the order in which messages were begun.
    pub(crate) order: u64,
}

/// Chooses the messages to grant. They are those with the fewest bytes to come, so that short
/// messages do not wait for long ones, and the oldest, so that long messages do not starve.
pub(crate) fn choose(
    candidates: impl Iterator<Item = Candidate>,
) -> [Option<Candidate>; GRANTED_MESSAGES] {
    const SHORTEST: usize = GRANTED_MESSAGES - 1;
    let mut chosen: [Option<Candidate>; GRANTED_MESSAGES] = [None; GRANTED_MESSAGES];
    let mut oldest: Option<Candidate> = None;
    for candidate in candidates {
        if oldest.is_none_or(|other| candidate.order < other.order) {
            oldest = Some(candidate);
        }
        let mut moving = candidate;
        for place in &mut chosen[..SHORTEST] {
            match place {
                None => {
                    *place = Some(moving);
                    break;
                }
                Some(other)
                    if (moving.remaining, moving.order) < (other.remaining, other.order) =>
                {
                    std::mem::swap(other, &mut moving);
                }
                Some(_) => {}
            }
        }
    }
    if !chosen.contains(&oldest) {
        chosen[SHORTEST] = oldest;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shortest_and_oldest(remaining in prop::collection::vec(1usize..50, 0..40)) {
            let all: Vec<Candidate> = (0u32..)
                .zip(&remaining)
                .map(|(index, &remaining)| Candidate { index, remaining, order: u64::from(index) })
                .collect();
            let chosen: Vec<Candidate> =
                choose(all.iter().copied()).into_iter().flatten().collect();
            let mut sorted = all.clone();
            sorted.sort_by_key(|candidate| (candidate.remaining, candidate.order));
            let shortest = &sorted[..sorted.len().min(GRANTED_MESSAGES - 1)];
            prop_assert!(shortest.iter().all(|best| chosen.contains(best)));
            prop_assert!(all.first().is_none_or(|oldest| chosen.contains(oldest)));
            prop_assert!(chosen.len() <= GRANTED_MESSAGES);
        }
    }
}
