//! Decides which stream fetches which groups.
//!
//! A stream takes a run of groups and works through the run. When every missing group is in some
//! run, an idle stream takes over the tail of the run that would end last. The tail is so long that
//! both streams end together.
//!
//! If only the group in progress is left of that run, the idle stream fetches that group too, and
//! the first copy to arrive is used. If all streams that fetch the group fall silent, the next idle
//! stream joins them. A slow or silent connection thus does not hold up the others.

use crate::group::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// The number of corrupt arrivals of a group at which the transfer fails.
pub const GROUP_ATTEMPTS: u32 = 5;

/// The smallest run, in groups, into which missing groups are divided for several streams, because
/// each request costs a round trip. A run is shorter if fewer groups are missing together, or if
/// the streams begin with equal parts.
pub(super) const LEAST_RUN: u64 = 8;

/// The largest run, in groups, that one of several streams gets, because the stream's rate may
/// change.
const LONGEST_RUN: u64 = 1024;

/// Streams to one host begin with equal parts of the file if these have at most this many groups. A
/// longer file is divided into ever shorter runs instead, because the connections of one path get
/// unequal rates: 1 GB over 2 Gb/s and 200 ms took 8.2 s in sixteen equal parts, and takes 6.8 s in
/// runs.
const LONGEST_PART: u64 = 16;

/// A part of a run may be taken away only if it would take at least this long. The last group of a
/// run is fetched by a further stream only if the group takes at least this long. The stream that
/// loses a part must reconnect, and bytes in flight are lost.
const WORTH: Duration = Duration::from_secs(1);

/// The least age of a run from which a part may be taken away. A connection needs some 7 round
/// trips to reach its rate: 1.4 s at 200 ms. Before this limit existed, streams were judged by
/// their first group and lost runs that were about to end, and each had to reconnect.
const START: Duration = Duration::from_secs(2);

/// What a stream is to do next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Assignment {
    /// Fetch these groups, in order.
    Run(Range<u64>),
    /// Call [`Plan::take`] again soon. Other streams are at work, and may prove too slow.
    Wait,
    /// The file is complete.
    Done,
}

/// The groups that a file still lacks, and the runs that its streams fetch.
///
/// A stream calls [`Plan::take`] for a run, [`Plan::done`] after each group, and
/// [`Plan::give_back`] when it cannot continue. For a group that arrives corrupt it calls
/// [`Plan::mark_corrupt`], so that the group is fetched again. The plan does no I/O and has no
/// clock. Callers pass the time since an arbitrary moment; this time must not go backwards.
#[derive(Debug)]
pub struct Plan {
    /// Runs of groups that no stream fetches: the end of each run by its start. Runs neither touch
    /// nor overlap.
    missing: BTreeMap<u64, u64>,
    streams: Vec<StreamState>,
    wrong: BTreeMap<u64, u32>,
    has_cut: bool,
    alike: bool,
    /// Whether stream 0 has a run that was requested before the plan was made, and has not taken it
    /// yet.
    given: bool,
}

/// The state of one stream.
#[derive(Clone, Debug, Default)]
struct StreamState {
    /// Whether the stream ever had a run.
    begun: bool,
    /// The groups from the one in progress to the end of the run; empty if the stream is idle.
    run: Range<u64>,
    /// When the run began, on the clock of the caller.
    from: Duration,
    /// When the group in progress began.
    since: Duration,
    /// Time per group: `mean`, or the last group's time if that was less, because a connection
    /// accelerates. `None` before the first group.
    pace: Option<Duration>,
    /// Moving average of the times that the stream's groups took.
    mean: Duration,
    /// Whether other streams fetch the group in progress too. If so, this group is the last of the
    /// run of each of these streams.
    shared: bool,
}

impl StreamState {
    /// Returns the time per group: the time that the received groups took, or the time that the
    /// group in progress has taken so far, if that is longer.
    fn pace(&self, now: Duration) -> Duration {
        self.pace.unwrap_or_default().max(now.saturating_sub(self.since))
    }

    /// Returns how many groups of the stream's run are left.
    fn left(&self) -> u32 {
        u32::try_from(self.run.end - self.run.start).unwrap_or(u32::MAX)
    }
}

impl Plan {
    /// Creates a plan for a file of `count` groups. The groups in `there` are present.
    #[must_use]
    pub fn new(count: u64, there: &BTreeMap<u64, Value>, streams: usize) -> Self {
        let streams = vec![StreamState::default(); streams.max(1)];
        let mut plan = Self {
            missing: BTreeMap::new(),
            streams,
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

    /// Declares that all streams go to one host by one path. Each stream of a file that is not
    /// large then begins with an equal part. On a long path the round trip of a second request
    /// would cost as much as the stream could fetch in that time.
    #[must_use]
    pub fn for_alike(self) -> Self {
        Self { alike: true, ..self }
    }

    /// Declares that stream 0 has already requested the first `count` groups. The first
    /// [`take`](Self::take) of stream 0 returns these groups. Has no effect if some of them are
    /// present.
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
        self.streams[0] = StreamState { begun: true, run: 0..count, ..StreamState::default() };
        self.given = true;
        self
    }

    /// Assigns work to an idle stream. A single stream gets the whole first missing run. One of
    /// several streams gets a shorter run the less is left, so that all streams end at about the
    /// same time.
    /// # Panics
    /// If there is no such stream, or the stream has not finished its run.
    pub fn take(&mut self, stream: usize, now: Duration) -> Assignment {
        if stream == 0 && std::mem::take(&mut self.given) && !self.streams[0].run.is_empty() {
            (self.streams[0].from, self.streams[0].since) = (now, now);
            return Assignment::Run(self.streams[0].run.clone());
        }
        assert!(self.streams[stream].run.is_empty(), "a lane has one run at a time");
        let found = match self.first_missing(stream) {
            Some(run) => Some((run, false)),
            None if self.streams.iter().all(|other| other.run.is_empty()) => {
                return Assignment::Done;
            }
            None => self.take_tail(stream, now),
        };
        let Some((run, shared)) = found else { return Assignment::Wait };
        self.streams[stream] = StreamState {
            begun: true,
            run: run.clone(),
            from: now,
            since: now,
            shared,
            ..self.streams[stream]
        };
        Assignment::Run(run)
    }

    /// Records that a stream has finished a group of its run: the group was stored, or reported as
    /// corrupt. Returns whether the stream continues with the next group. It does not if its run
    /// has ended, or if another stream has taken over the remaining groups.
    pub fn done(&mut self, stream: usize, group: u64, now: Duration) -> bool {
        let this = &mut self.streams[stream];
        if this.run.start == group && !this.run.is_empty() {
            let took = now.saturating_sub(this.since);
            this.mean = if this.pace.is_some() { (this.mean * 7 + took) / 8 } else { took };
            this.pace = Some(this.mean.min(took));
            (this.run.start, this.since) = (group + 1, now);
            if std::mem::take(&mut this.shared) {
                // Other streams that fetch this group can stop.
                for other in
                    self.streams.iter_mut().filter(|other| other.shared && other.run.start == group)
                {
                    (other.run, other.shared) = (0..0, false);
                }
            }
        }
        !self.streams[stream].run.is_empty()
    }

    /// Makes the remaining groups of a stream's run available to all streams, because the stream
    /// cannot continue.
    pub fn give_back(&mut self, stream: usize) {
        let run = std::mem::take(&mut self.streams[stream].run);
        if !run.is_empty() && !self.leave_to_others(stream, run.start) {
            self.put_back(run);
        }
    }

    /// Makes a group that a stream received corrupt available again. Returns how often the group
    /// has arrived corrupt.
    pub fn mark_corrupt(&mut self, stream: usize, group: u64) -> u32 {
        self.retry(stream, group);
        let times = self.wrong.entry(group).or_default();
        *times += 1;
        *times
    }

    /// Makes a group available again without counting it as corrupt, because a host other than the
    /// first sent it.
    pub fn retry(&mut self, stream: usize, group: u64) {
        if !self.leave_to_others(stream, group) {
            self.put_back(group..group + 1);
        }
    }

    /// Returns how many groups no stream fetches.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.missing.iter().map(|(start, end)| end - start).sum()
    }

    /// Returns whether a part of a run was ever taken away, or a group fetched by two streams.
    #[must_use]
    pub fn has_cut(&self) -> bool {
        self.has_cut
    }

    /// Takes the beginning of the first run that no stream fetches, up to the number of groups that
    /// this stream should get.
    fn first_missing(&mut self, stream: usize) -> Option<Range<u64>> {
        let (left, streams) = (self.left(), self.streams.len() as u64);
        let new = self.streams.iter().filter(|stream| !stream.begun).count() as u64;
        let (start, end) = self.missing.pop_first()?;
        let most = if streams == 1 {
            u64::MAX
        } else if self.alike && !self.streams[stream].begun && left <= new * LONGEST_PART {
            left.div_ceil(new)
        } else {
            (left / (2 * streams)).clamp(LEAST_RUN, LONGEST_RUN)
        };
        let cut = end.min(start.saturating_add(most));
        if cut < end {
            self.missing.insert(cut, end);
        }
        Some(start..cut)
    }

    /// Takes over a part of the run that would end last, if this saves enough time. Returns the
    /// part, and whether other streams continue to fetch it too.
    fn take_tail(&mut self, idle: usize, now: Duration) -> Option<(Range<u64>, bool)> {
        let own = self.streams[idle].pace;
        let is_old = |stream: &StreamState| {
            !stream.run.is_empty() && now.saturating_sub(stream.from) >= START
        };
        let busy = (0..self.streams.len()).filter(|stream| is_old(&self.streams[*stream]));
        let (last, pace) = busy
            .map(|stream| (stream, self.pace_at(stream, now)))
            .max_by_key(|(stream, pace)| pace.saturating_mul(self.streams[*stream].left()))?;
        let last = &mut self.streams[last];
        let behind = last.left() - 1;
        if behind == 0 {
            if pace < WORTH.max(own.unwrap_or_default() * 2) {
                return None;
            }
            last.shared = true;
            self.has_cut = true;
            return Some((last.run.clone(), true));
        }
        // An idle stream that has fetched nothing yet is assumed to be as fast as the other.
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

    /// Returns the time per group of a stream's run. If several streams fetch its group, this is
    /// the time of the fastest.
    fn pace_at(&self, stream: usize, now: Duration) -> Duration {
        let this = &self.streams[stream];
        let others = self
            .streams
            .iter()
            .filter(|other| this.shared && other.shared && other.run.start == this.run.start);
        others.map(|other| other.pace(now)).min().unwrap_or_else(|| this.pace(now))
    }

    /// Leaves a stream's group to the other streams that fetch it too. Returns whether there are
    /// any.
    fn leave_to_others(&mut self, stream: usize, group: u64) -> bool {
        if !std::mem::take(&mut self.streams[stream].shared) {
            return false;
        }
        let mut others =
            self.streams.iter_mut().filter(|other| other.shared && other.run.start == group);
        let other = others.next().expect("a shared group is another's too");
        // If only one stream remains, it does not share the group any more.
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

    /// Returns whether any group of the run has arrived corrupt.
    #[must_use]
    pub fn was_corrupt(&self, run: &Range<u64>) -> bool {
        self.wrong.range(run.clone()).next().is_some()
    }
}
