//! Timers of numbered members. A member here is a session or a message, not a member of a cluster.
//!
//! A binary heap that knows the position of each member, so that a member has only one entry, even
//! if its time changes often. Owners do not move a time on every event: when a member's time comes,
//! they find out what is due and set the next time. So a call without loss does not change the
//! heap.

use sprat_net::Nanos;

const NOWHERE: u32 = u32::MAX;

/// The times of numbered members, at most one for each.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: Vec<(Nanos, u32)>,
    place: Vec<u32>,
}

impl Timers {
    /// Sets the time of a member, in place of an earlier one.
    pub(crate) fn set(&mut self, member: u32, at: Nanos) {
        if self.place.len() <= member as usize {
            self.place.resize(member as usize + 1, NOWHERE);
        }
        let place = self.place[member as usize];
        let place = if place == NOWHERE {
            self.heap.push((at, member));
            self.heap.len() - 1
        } else {
            self.heap[place as usize].0 = at;
            place as usize
        };
        let place = self.rise(place);
        self.sink(place);
    }

    /// Removes a member's time, if it is set.
    pub(crate) fn remove(&mut self, member: u32) {
        let Some(&place) = self.place.get(member as usize) else { return };
        if place == NOWHERE {
            return;
        }
        self.place[member as usize] = NOWHERE;
        self.heap.swap_remove(place as usize);
        if (place as usize) < self.heap.len() {
            let place = self.rise(place as usize);
            self.sink(place);
        }
    }

    /// Returns the earliest time set.
    pub(crate) fn earliest(&self) -> Option<Nanos> {
        self.heap.first().map(|&(at, _)| at)
    }

    /// Removes and returns a member that is due.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<u32> {
        let &(at, member) = self.heap.first()?;
        if at > now {
            return None;
        }
        self.remove(member);
        Some(member)
    }

    fn settle(&mut self, place: usize) {
        let member = self.heap[place].1;
        self.place[member as usize] = u32::try_from(place).expect("fewer members than 2^32");
    }

    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].0 <= self.heap[place].0 {
                break;
            }
            self.heap.swap(parent, place);
            self.settle(place);
            place = parent;
        }
        self.settle(place);
        place
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            if left >= self.heap.len() {
                break;
            }
            let right = left + 1;
            let child = if right < self.heap.len() && self.heap[right].0 < self.heap[left].0 {
                right
            } else {
                left
            };
            if self.heap[place].0 <= self.heap[child].0 {
                break;
            }
            self.heap.swap(place, child);
            self.settle(place);
            place = child;
        }
        self.settle(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn agrees_with_a_map(
            steps in prop::collection::vec((0u32..20, prop::option::of(0u64..100)), 0..300)
        ) {
            let mut timers = Timers::default();
            let mut model = BTreeMap::new();
            for (member, at) in steps {
                match at {
                    Some(at) => {
                        timers.set(member, Nanos(at));
                        model.insert(member, at);
                    }
                    None => {
                        timers.remove(member);
                        model.remove(&member);
                    }
                }
                prop_assert_eq!(timers.earliest(), model.values().min().map(|&at| Nanos(at)));
            }
            let mut last = 0;
            while let Some(member) = timers.pop_due(Nanos(1000)) {
                let at = model.remove(&member).unwrap();
                prop_assert!(at >= last);
                last = at;
            }
            prop_assert!(model.is_empty());
        }
    }
}
