//! The groups that are still to be sent.

use crate::group::Value;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// The largest run, in groups, that one of several streams gets, because the stream's rate may
/// change.
const LONGEST_RUN: u64 = 64;

/// The groups that are still to be sent and that no stream has taken, in runs.
#[derive(Debug)]
pub(super) struct Plan {
    missing: VecDeque<Range<u64>>,
    longest: u64,
    wrong: BTreeMap<u64, u32>,
}

impl Plan {
    /// Creates a plan for a file of `count` groups. The server has the groups in `there`. A single
    /// stream gets runs of any length.
    pub(super) fn new(count: u64, there: &BTreeMap<u64, Value>, streams: usize) -> Self {
        let longest = if streams > 1 { LONGEST_RUN } else { u64::MAX };
        let mut plan = Self { missing: VecDeque::new(), longest, wrong: BTreeMap::new() };
        plan.give_back(0..count);
        plan.without(there);
        plan
    }

    /// Takes a run to send.
    pub(super) fn take(&mut self) -> Option<Range<u64>> {
        let first = self.missing.front_mut()?;
        let run = first.start..first.end.min(first.start.saturating_add(self.longest));
        first.start = run.end;
        if first.is_empty() {
            self.missing.pop_front();
        }
        Some(run)
    }

    /// Takes back a run, because it is unknown whether it has arrived.
    pub(super) fn give_back(&mut self, run: Range<u64>) {
        if !run.is_empty() {
            self.missing.push_front(run);
        }
    }

    /// Takes back a group that arrived corrupt. Returns how often the group has arrived corrupt.
    pub(super) fn mark_corrupt(&mut self, group: u64) -> u32 {
        self.give_back(group..group + 1);
        let times = self.wrong.entry(group).or_default();
        *times += 1;
        *times
    }

    /// Removes the groups that the server has. Returns those of them that were still to be sent.
    pub(super) fn without(&mut self, there: &BTreeMap<u64, Value>) -> Vec<u64> {
        let (mut kept, mut gone) = (VecDeque::new(), Vec::new());
        for run in std::mem::take(&mut self.missing) {
            let mut start = run.start;
            for (group, _) in there.range(run.clone()) {
                if start < *group {
                    kept.push_back(start..*group);
                }
                gone.push(*group);
                start = group + 1;
            }
            if start < run.end {
                kept.push_back(start..run.end);
            }
        }
        self.missing = kept;
        gone
    }

    /// Returns whether every group to be sent is in a stream's run.
    pub(super) fn is_empty(&self) -> bool {
        self.missing.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_is_given_once_until_it_is_given_back() {
        let there = BTreeMap::from([2, 3, 9, 150].map(|group| (group, [0; 32])));
        let mut plan = Plan::new(151, &there, 4);
        let mut runs = Vec::new();
        while let Some(run) = plan.take() {
            runs.push(run);
        }
        assert_eq!(runs, [0..2, 4..9, 10..74, 74..138, 138..150]);
        plan.give_back(74..138);
        let more = BTreeMap::from_iter((74..100).chain(120..130).map(|group| (group, [0; 32])));
        assert_eq!(plan.without(&more).len(), 36);
        assert_eq!((plan.mark_corrupt(5), plan.mark_corrupt(5)), (1, 2));
        assert_eq!(
            [plan.take(), plan.take(), plan.take()],
            [Some(5..6), Some(5..6), Some(100..120)]
        );
        assert_eq!((plan.take(), plan.take()), (Some(130..138), None));
        assert!(plan.is_empty());
        assert_eq!(
            Plan::new(1000, &BTreeMap::new(), 1).take(),
            Some(0..1000),
            "one lane is given all"
        );
        assert_eq!(Plan::new(0, &BTreeMap::new(), 1).take(), None);
    }
}
