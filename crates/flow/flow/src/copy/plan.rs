//! Which groups are to be fetched, and by whom.
//!
//! A lane takes a run of groups and works through it. When nothing is left that nobody fetches, one
//! that is idle takes the tail of the run that would end last, as much of it as lets both end
//! together; and where only the group under way is left of that, it fetches it too: whichever comes
//! first is taken. Should all who fetch it fall silent, so does the next. So no slow, or silent,
//! connections hold up one that is well.

use crate::group::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// How often a group that arrives wrong is fetched before we give up.
pub const GROUP_ATTEMPTS: u32 = 5;

/// Fewest groups that one of several lanes is sent for: a request costs a round trip.
pub(super) const LEAST_RUN: u64 = 8;

/// Most groups that one of several lanes is sent for: its speed may change.
const LONGEST_RUN: u64 = 1024;

/// Most groups of the equal parts with which lanes to one host begin; a longer file is handed out
/// in ever shorter runs instead. Connections of one path get unequal rates: 1 GB over 2 Gb/s and
/// 200 ms took 8.2 s in sixteen equal parts, and takes 6.8 s in runs.
const LONGEST_PART: u64 = 16;

/// What a run must have left, as time, for some of it to be taken away: who loses it has to connect
/// anew, and what is on its way is lost.
const WORTH: Duration = Duration::from_secs(1);

/// How long no lane takes a run away from another: a connection needs some 7 round trips to reach
/// its rate, 1.4 s at 200 ms. Lanes that judged others by their first group took runs that were
/// about to end, and whoever lost one had to connect again.
const START: Duration = Duration::from_secs(2);

/// What a lane is to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Turn {
    /// Fetch these groups, in order.
    Run(Range<u64>),
    /// Ask again soon: others are at work, and may be too slow.
    Wait,
    /// Everything has been fetched.
    Over,
}

/// What is missing of a file, in runs of groups. Lanes take runs, tell of each group, and give back
/// what they did not get. Time is the caller's: since any moment, never backwards.
#[derive(Debug)]
pub struct Plan {
    /// Runs by their first group, those that nobody fetches; they neither touch nor overlap.
    missing: BTreeMap<u64, u64>,
    lanes: Vec<Lane>,
    wrong: BTreeMap<u64, u32>,
    has_cut: bool,
    alike: bool,
    /// Whether the first lane's run was asked for before there was a plan, and is not taken yet.
    given: bool,
}

/// What a lane is at.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// Whether it ever had a run.
    begun: bool,
    /// The group under way, to the end of the run; empty: none.
    run: Range<u64>,
    /// When the run was begun.
    from: Duration,
    /// When that group was begun.
    since: Duration,
    /// How long a group takes: `mean`, or the time of the last if that was less, for a connection
    /// begins slowly. `None` before the first.
    pace: Option<Duration>,
    /// Moving average of the times of its groups.
    mean: Duration,
    /// Whether other lanes fetch the group under way too; it is the last of its run then, for all
    /// of them.
    shared: bool,
}

impl Lane {
    /// How long a group takes, judging by those that came and the one that does not.
    fn pace(&self, now: Duration) -> Duration {
        self.pace.unwrap_or_default().max(now.saturating_sub(self.since))
    }

    /// Groups that are left of its run.
    fn left(&self) -> u32 {
        u32::try_from(self.run.end - self.run.start).unwrap_or(u32::MAX)
    }
}

impl Plan {
    /// For a file of `count` groups of which some are there, and so many lanes.
    #[must_use]
    pub fn new(count: u64, there: &BTreeMap<u64, Value>, lanes: usize) -> Self {
        let lanes = vec![Lane::default(); lanes.max(1)];
        let mut plan = Self {
            missing: BTreeMap::new(),
            lanes,
            wrong: BTreeMap::new(),
            has_cut: false,
            alike: false,
            given: false,
        };
        let mut next = 0;
        for group in there.keys().copied().chain([count]) {
            if group > next {
                plan.missing.insert(next, group);
            }
            next = group + 1;
        }
        plan
    }

    /// The same for lanes that are alike, to one host by one path: of a file that is not large each
    /// begins with an equal part, for on a long path a second request costs a lane as much as a
    /// round trip of all that it could have had.
    #[must_use]
    pub fn for_alike(self) -> Self {
        Self { alike: true, ..self }
    }

    /// The plan in which lane 0 has asked for the first `count` groups already; it takes them by
    /// its first [`take`](Self::take). Without effect where some of them are there.
    #[must_use]
    pub fn with_beginning(mut self, count: u64) -> Self {
        let all = self.missing.first_key_value().map(|(start, end)| *start..*end);
        let Some(all) = all.filter(|all| count > 0 && all.start == 0 && count <= all.end) else {
            return self;
        };
        self.missing.remove(&0);
        if count < all.end {
            self.missing.insert(count, all.end);
        }
        self.lanes[0] = Lane { begun: true, run: 0..count, ..Lane::default() };
        self.given = true;
        self
    }

    /// What a lane that has nothing to do is to do. A run is all that is missing in one piece if it
    /// is the only lane; else the less, the less is left, so that all end at about the same
    /// time.
    ///
    /// # Panics
    /// When there is no such lane, or it has not done with its run.
    pub fn take(&mut self, lane: usize, now: Duration) -> Turn {
        if lane == 0 && std::mem::take(&mut self.given) && !self.lanes[0].run.is_empty() {
            (self.lanes[0].from, self.lanes[0].since) = (now, now);
            return Turn::Run(self.lanes[0].run.clone());
        }
        assert!(self.lanes[lane].run.is_empty(), "a lane has one run at a time");
        let found = match self.first_missing(lane) {
            Some(run) => Some((run, false)),
            None if self.lanes.iter().all(|other| other.run.is_empty()) => return Turn::Over,
            None => self.part_of_anothers(lane, now),
        };
        let Some((run, shared)) = found else { return Turn::Wait };
        self.lanes[lane] = Lane {
            begun: true,
            run: run.clone(),
            from: now,
            since: now,
            shared,
            ..self.lanes[lane]
        };
        Turn::Run(run)
    }

    /// A lane has done with a group of its run, which came right, or wrong and was told so. Gives
    /// whether the next is its too: the rest of the run may have been taken away.
    pub fn done(&mut self, lane: usize, group: u64, now: Duration) -> bool {
        let this = &mut self.lanes[lane];
        if this.run.start == group && !this.run.is_empty() {
            let took = now.saturating_sub(this.since);
            this.mean = if this.pace.is_some() { (this.mean * 7 + took) / 8 } else { took };
            this.pace = Some(this.mean.min(took));
            (this.run.start, this.since) = (group + 1, now);
            if std::mem::take(&mut this.shared) {
                // Whoever fetches it too need not.
                for other in
                    self.lanes.iter_mut().filter(|other| other.shared && other.run.start == group)
                {
                    (other.run, other.shared) = (0..0, false);
                }
            }
        }
        !self.lanes[lane].run.is_empty()
    }

    /// A lane does not get on with its run: what is left of it is for everybody.
    pub fn give_back(&mut self, lane: usize) {
        let run = std::mem::take(&mut self.lanes[lane].run);
        if !run.is_empty() && !self.leave_to_others(lane, run.start) {
            self.put_back(run);
        }
    }

    /// A group that a lane got wrong, to be fetched again; it is done with then. Gives how often
    /// that was so.
    pub fn wrong(&mut self, lane: usize, group: u64) -> u32 {
        self.again(lane, group);
        let times = self.wrong.entry(group).or_default();
        *times += 1;
        *times
    }

    /// The same, where it says nothing against the group.
    pub fn again(&mut self, lane: usize, group: u64) {
        if !self.leave_to_others(lane, group) {
            self.put_back(group..group + 1);
        }
    }

    /// Groups that nobody fetches yet.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.missing.iter().map(|(start, end)| end - start).sum()
    }

    /// Whether a run was ever ended before its end.
    #[must_use]
    pub fn has_cut(&self) -> bool {
        self.has_cut
    }

    /// The beginning of what nobody fetches, as much of it as a lane is to have.
    fn first_missing(&mut self, lane: usize) -> Option<Range<u64>> {
        let (left, lanes) = (self.left(), self.lanes.len() as u64);
        let new = self.lanes.iter().filter(|lane| !lane.begun).count() as u64;
        let (start, end) = self.missing.pop_first()?;
        let most = if lanes == 1 {
            u64::MAX
        } else if self.alike && !self.lanes[lane].begun && left <= new * LONGEST_PART {
            left.div_ceil(new)
        } else {
            (left / (2 * lanes)).clamp(LEAST_RUN, LONGEST_RUN)
        };
        let cut = end.min(start.saturating_add(most));
        if cut < end {
            self.missing.insert(cut, end);
        }
        Some(start..cut)
    }

    /// What an idle lane takes over from the one that would be the last to end, if that is worth
    /// it. With it, whether others go on with it too.
    fn part_of_anothers(&mut self, idle: usize, now: Duration) -> Option<(Range<u64>, bool)> {
        let own = self.lanes[idle].pace;
        let is_old = |lane: &Lane| !lane.run.is_empty() && now.saturating_sub(lane.from) >= START;
        let busy = (0..self.lanes.len()).filter(|lane| is_old(&self.lanes[*lane]));
        let (last, pace) = busy
            .map(|lane| (lane, self.pace_at(lane, now)))
            .max_by_key(|(lane, pace)| pace.saturating_mul(self.lanes[*lane].left()))?;
        let last = &mut self.lanes[last];
        let behind = last.left() - 1;
        if behind == 0 {
            if pace < WORTH.max(own.unwrap_or_default() * 2) {
                return None;
            }
            last.shared = true;
            self.has_cut = true;
            return Some((last.run.clone(), true));
        }
        // Who has fetched nothing yet is taken to be as fast.
        let own = own.unwrap_or(pace);
        let share = pace.as_secs_f64() / (pace + own).as_secs_f64().max(f64::MIN_POSITIVE);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a u32"
        )]
        let count = ((f64::from(behind) * share).ceil() as u32).clamp(1, behind);
        if pace.saturating_mul(count) < WORTH {
            return None;
        }
        let cut = last.run.end - u64::from(count);
        self.has_cut = true;
        Some((cut..std::mem::replace(&mut last.run.end, cut), false))
    }

    /// How long a group of a lane's run takes: by the fastest, where several fetch it.
    fn pace_at(&self, lane: usize, now: Duration) -> Duration {
        let this = &self.lanes[lane];
        let others = self
            .lanes
            .iter()
            .filter(|other| this.shared && other.shared && other.run.start == this.run.start);
        others.map(|other| other.pace(now)).min().unwrap_or_else(|| this.pace(now))
    }

    /// Leaves the group that a lane is at to those who fetch it too; gives whether there are any.
    fn leave_to_others(&mut self, lane: usize, group: u64) -> bool {
        if !std::mem::take(&mut self.lanes[lane].shared) {
            return false;
        }
        let mut others =
            self.lanes.iter_mut().filter(|other| other.shared && other.run.start == group);
        let other = others.next().expect("a shared group is another's too");
        // If that one alone is left, it shares it with nobody.
        other.shared = others.next().is_some();
        true
    }

    fn put_back(&mut self, mut run: Range<u64>) {
        if run.is_empty() {
            return;
        }
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

    /// Whether a group of a run arrived wrong before.
    #[must_use]
    pub fn was_wrong(&self, run: &Range<u64>) -> bool {
        self.wrong.range(run.clone()).next().is_some()
    }
}
