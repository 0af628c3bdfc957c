//! Which groups are to be fetched, and by whom.

use crate::group::Value;
use std::collections::BTreeMap;
use std::ops::Range;

/// How often a group that arrives wrong is fetched before we give up.
pub const GROUP_ATTEMPTS: u32 = 5;

/// Fewest groups that one of several streams is sent for: a request costs a round trip.
const LEAST_RUN: u64 = 8;

/// Most groups that one of several streams is sent for: its speed may change.
const LONGEST_RUN: u64 = 1024;

/// What is missing of a file, in runs of groups. Streams take runs, and give back what they did not get.
#[derive(Debug)]
pub struct Plan {
    /// Runs by their first group; they neither touch nor overlap.
    missing: BTreeMap<u64, u64>,
    streams: u64,
    wrong: BTreeMap<u64, u32>,
}

impl Plan {
    /// For a file of `count` groups of which some are there, and so many streams.
    #[must_use]
    pub fn new(count: u64, there: &BTreeMap<u64, Value>, streams: usize) -> Self {
        let mut plan = Self { missing: BTreeMap::new(), streams: streams.max(1) as u64, wrong: BTreeMap::new() };
        let mut next = 0;
        for group in there.keys().copied().chain([count]) {
            if group > next {
                plan.missing.insert(next, group);
            }
            next = group + 1;
        }
        plan
    }

    /// The next run for a stream: all that is missing in one piece if it is the only one; else the less, the less is
    /// left, so that all end at about the same time.
    pub fn take(&mut self) -> Option<Range<u64>> {
        let left: u64 = self.left();
        let (start, end) = self.missing.pop_first()?;
        let most = if self.streams == 1 { u64::MAX } else { (left / (2 * self.streams)).clamp(LEAST_RUN, LONGEST_RUN) };
        let cut = end.min(start.saturating_add(most));
        if cut < end {
            self.missing.insert(cut, end);
        }
        Some(start..cut)
    }

    /// Groups that a stream took and did not get.
    pub fn give_back(&mut self, run: Range<u64>) {
        if run.is_empty() {
            return;
        }
        let mut run = run;
        if let Some(end) = self.missing.remove(&run.end) {
            run.end = end;
        }
        if let Some((_, end)) = self.missing.range_mut(..run.start).next_back()
            && *end == run.start
        {
            *end = run.end;
            return;
        }
        self.missing.insert(run.start, run.end);
    }

    /// A group that arrived wrong, to be fetched again. Gives how often it did so far.
    pub fn wrong(&mut self, group: u64) -> u32 {
        self.give_back(group..group + 1);
        let times = self.wrong.entry(group).or_default();
        *times += 1;
        *times
    }

    /// Whether a group of a run arrived wrong before.
    #[must_use]
    pub fn was_wrong(&self, run: &Range<u64>) -> bool {
        self.wrong.range(run.clone()).next().is_some()
    }

    /// Groups that nobody fetches yet.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.missing.iter().map(|(start, end)| end - start).sum()
    }
}
