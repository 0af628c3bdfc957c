//! Finds the flow with the most waiting bytes: a binary heap whose entries can be changed in place.

use super::flows::MAX_FLOWS;

/// The queues, ordered by their length in bytes. A change costs O(log n). It allocates only when
/// more flows wait at the same time than ever before.
#[derive(Debug)]
pub(super) struct Longest {
    /// Length and slot of each queue that is not empty. The entry at `i` is at least as long as its
    /// children, at `2i + 1` and `2i + 2`.
    heap: Vec<(u64, u16)>,
    /// For each slot, the index of its entry in `heap`; `None` if its queue is empty.
    indices: Vec<Option<u16>>,
}

impl Longest {
    pub(super) fn new() -> Self {
        Self { heap: Vec::new(), indices: vec![None; MAX_FLOWS + 1] }
    }

    /// Returns the longest queue's slot.
    pub(super) fn first(&self) -> Option<u16> {
        self.heap.first().map(|&(_, slot)| slot)
    }

    /// Returns the number of bytes by which the longest queue exceeds the second longest.
    pub(super) fn lead(&self) -> u64 {
        let bytes = |at: usize| self.heap.get(at).map_or(0, |&(bytes, _)| bytes);
        bytes(0) - bytes(1).max(bytes(2))
    }

    /// Records the length of a slot's queue. Removes the queue if it is empty.
    pub(super) fn set(&mut self, slot: u16, bytes: u64) {
        let index = self.indices[usize::from(slot)];
        let at = match index.map(usize::from) {
            None if bytes == 0 => return,
            None => {
                self.heap.push((bytes, slot));
                self.heap.len() - 1
            }
            Some(at) if bytes == 0 => {
                self.indices[usize::from(slot)] = None;
                self.heap.swap_remove(at);
                at
            }
            Some(at) => {
                self.heap[at].0 = bytes;
                at
            }
        };
        if at < self.heap.len() {
            let at = self.rise(at);
            self.sink(at);
        }
    }

    fn rise(&mut self, mut at: usize) -> usize {
        while at > 0 && self.heap[(at - 1) / 2] < self.heap[at] {
            let parent = (at - 1) / 2;
            self.heap.swap(at, parent);
            self.record_index(at);
            at = parent;
        }
        self.record_index(at);
        at
    }

    fn sink(&mut self, mut at: usize) {
        let children = |at: usize| [2 * at + 1, 2 * at + 2];
        while let Some(child) = children(at)
            .into_iter()
            .filter(|&at| at < self.heap.len())
            .max_by_key(|&at| self.heap[at])
            && self.heap[at] < self.heap[child]
        {
            self.heap.swap(at, child);
            self.record_index(at);
            at = child;
        }
        self.record_index(at);
    }

    fn record_index(&mut self, at: usize) {
        let slot = usize::from(self.heap[at].1);
        self.indices[slot] = Some(u16::try_from(at).expect("no more entries than slots"));
    }
}

#[cfg(test)]
mod tests {
    use super::Longest;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_is_the_longest_and_leads_the_second(
            changes in prop::collection::vec((0u16..20, 0u64..50), 1..200),
        ) {
            let (mut longest, mut lengths) = (Longest::new(), [0u64; 20]);
            for (slot, bytes) in changes {
                longest.set(slot, bytes);
                lengths[usize::from(slot)] = bytes;
                let mut sorted = lengths;
                sorted.sort_unstable();
                prop_assert_eq!(
                    longest.first().map_or(0, |slot| lengths[usize::from(slot)]),
                    sorted[19]
                );
                prop_assert_eq!(longest.first().is_none(), sorted[19] == 0);
                prop_assert_eq!(longest.lead(), sorted[19] - sorted[18]);
            }
        }
    }
}
