//! Counts operations in windows, each in the window of its scheduled start.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Limit on the windows of a run: a day with windows of one second.
pub const MAX_WINDOWS: usize = 86_400;

/// The largest time that histograms can measure, in us: two minutes.
const MAX_MICROS: u64 = 120_000_000;

/// Significant digits of the histograms.
const DIGITS: u8 = 3;

/// Quantiles of the times of operations, in us.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Quantiles {
    /// Number of operations.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// The longest time.
    pub max: u64,
}

/// A window: the operations whose scheduled start is in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Window {
    /// The start of the window, in seconds from the start of the load.
    pub begins: f64,
    /// Whether operations were scheduled during the whole window. False for the last window of a
    /// load that ends or is stopped within it.
    pub full: bool,
    /// Operations that were scheduled in this window.
    #[serde(rename = "asked")]
    pub scheduled: u64,
    /// Operations that were sent.
    pub sent: u64,
    /// Operations that were not sent, because too many were outstanding.
    pub not_sent: u64,
    /// Operations that succeeded.
    pub done: u64,
    /// Operations that failed, or had no answer when the load ended.
    pub failed: u64,
    /// Operations, of this window and of earlier ones, that succeeded during this window.
    pub delivered: u64,
    /// Time from scheduled start to answer, of successful operations.
    pub response: Quantiles,
    /// Time from actual start to answer, of successful operations.
    pub service: Quantiles,
    /// Time from scheduled to actual start: how late the load generator was.
    pub lateness: Quantiles,
}

/// A completed operation. Times are in ns from the start of the load.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The operation's scheduled start.
    pub intended: u64,
    /// The operation's actual start.
    pub sent: u64,
    /// The time at which the operation succeeded or failed.
    pub ended: u64,
    /// Whether the operation succeeded.
    pub done: bool,
}

/// The windows of a load. It keeps histograms only for windows with outstanding operations, since
/// the histograms of one window take 400 KB.
#[derive(Debug)]
pub struct Windows {
    length: u64,
    total: u64,
    counts: Vec<Counts>,
    /// Number of windows whose operations have all been dispatched.
    passed: usize,
    /// Histograms of windows that may still get results.
    open: BTreeMap<usize, Times>,
    spare: Vec<Times>,
    times: Times,
    done: u64,
    failed: u64,
    late: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent: u64,
    not_sent: u64,
    done: u64,
    failed: u64,
    delivered: u64,
    times: [Quantiles; 3],
}

/// Histograms of response time, service time and lateness.
#[derive(Debug)]
struct Times([Histogram<u64>; 3]);

impl Windows {
    /// Creates the windows of a load of this total duration.
    #[must_use]
    pub fn new(length: Duration, total: Duration) -> Self {
        let nanos = |time: Duration| {
            u64::try_from(time.as_nanos()).expect("a checked load ends within centuries")
        };
        let (length, total) = (nanos(length), nanos(total));
        let count = usize::try_from(total.div_ceil(length)).unwrap_or(usize::MAX);
        assert!(
            (1..=MAX_WINDOWS).contains(&count),
            "a checked load has some windows and not too many"
        );
        let (counts, open) = (vec![Counts::default(); count], BTreeMap::new());
        let (spare, times) = (Vec::new(), Times::new());
        Self { length, total, counts, passed: 0, open, spare, times, done: 0, failed: 0, late: 0 }
    }

    /// Returns the window that contains an offset in ns from the start. The last window also
    /// contains everything later.
    #[must_use]
    pub fn at(&self, offset: u64) -> usize {
        usize::try_from(offset / self.length).unwrap_or(usize::MAX).min(self.counts.len() - 1)
    }

    /// Counts dispatched operations of a window. After this call, all operations of windows before
    /// `passed` have been dispatched.
    pub fn dispatched(&mut self, window: usize, sent: u64, not_sent: u64, passed: usize) {
        self.counts[window].sent += sent;
        self.counts[window].not_sent += not_sent;
        let before = self.passed;
        self.passed = self.passed.max(passed).min(self.counts.len());
        (before..self.passed).for_each(|window| self.close(window));
    }

    /// Counts a completed operation.
    pub fn complete(&mut self, completion: Completion) {
        let window = self.at(completion.intended);
        let times =
            self.open.entry(window).or_insert_with(|| self.spare.pop().unwrap_or_else(Times::new));
        times.record(completion);
        if completion.done {
            self.counts[window].done += 1;
            self.done += 1;
            match self
                .counts
                .get_mut(usize::try_from(completion.ended / self.length).unwrap_or(usize::MAX))
            {
                Some(during) => during.delivered += 1,
                None => self.late += 1,
            }
        } else {
            self.counts[window].failed += 1;
            self.failed += 1;
        }
        self.close(window);
    }

    /// Returns a window's results so far. Until the window is over, operations may be missing.
    /// `scheduled_until` is the end of the schedule in ns.
    #[must_use]
    pub fn window(&self, window: usize, scheduled_until: u64) -> Window {
        let counts = &self.counts[window];
        let [response, service, lateness] =
            self.open.get(&window).map_or(counts.times, |times| times.quantiles());
        let begins = window as u64 * self.length;
        Window {
            begins: Duration::from_nanos(begins).as_secs_f64(),
            full: begins + self.length <= scheduled_until.min(self.total),
            scheduled: counts.sent + counts.not_sent,
            sent: counts.sent,
            not_sent: counts.not_sent,
            done: counts.done,
            failed: counts.failed,
            delivered: counts.delivered,
            response,
            service,
            lateness,
        }
    }

    /// Returns the numbers of operations that succeeded and that failed.
    #[must_use]
    pub fn ended(&self) -> (u64, u64) {
        (self.done, self.failed)
    }

    /// Ends all windows, and counts operations without an answer as failed. The caller has
    /// scheduled nothing from `scheduled_until` on, in ns from the start. Returns the windows that
    /// begin before `scheduled_until`, but at least the first window, and the number of operations
    /// without an answer.
    pub fn end(&mut self, scheduled_until: u64) -> (Vec<Window>, u64) {
        let mut unanswered = 0;
        for window in 0..self.counts.len() {
            let counts = &mut self.counts[window];
            let open = counts.sent.saturating_sub(counts.done + counts.failed);
            counts.failed += open;
            unanswered += open;
            self.failed += open;
        }
        self.dispatched(0, 0, 0, usize::MAX);
        let begun = usize::try_from(scheduled_until.min(self.total).div_ceil(self.length))
            .unwrap_or(usize::MAX)
            .max(1);
        (
            (0..begun.min(self.counts.len()))
                .map(|window| self.window(window, scheduled_until))
                .collect(),
            unanswered,
        )
    }

    /// Returns the quantiles of response time, service time and lateness over all windows whose
    /// operations have all ended.
    #[must_use]
    pub fn times(&self) -> [Quantiles; 3] {
        self.times.quantiles()
    }

    /// Returns the number of operations that succeeded after the end of the last window.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Reduces a window that can get no more results to its quantiles: all histograms together
    /// would be too large to keep.
    fn close(&mut self, window: usize) {
        let counts = &mut self.counts[window];
        if window >= self.passed || counts.done + counts.failed < counts.sent {
            return;
        }
        if let Some(mut times) = self.open.remove(&window) {
            counts.times = times.quantiles();
            self.times.take(&mut times);
            self.spare.push(times);
        }
    }
}

impl Times {
    fn new() -> Self {
        let histogram =
            || Histogram::new_with_bounds(1, MAX_MICROS, DIGITS).expect("bounds that are right");
        Self([histogram(), histogram(), histogram()])
    }

    fn record(&mut self, completion: Completion) {
        let Completion { intended, sent, ended, done } = completion;
        let [response, service, lateness] = &mut self.0;
        lateness.saturating_record(sent.saturating_sub(intended) / 1_000);
        if done {
            response.saturating_record(ended.saturating_sub(intended) / 1_000);
            service.saturating_record(ended.saturating_sub(sent) / 1_000);
        }
    }

    fn quantiles(&self) -> [Quantiles; 3] {
        self.0.each_ref().map(|times| Quantiles {
            count: times.len(),
            p50: times.value_at_quantile(0.5),
            p99: times.value_at_quantile(0.99),
            p999: times.value_at_quantile(0.999),
            max: times.max(),
        })
    }

    /// Adds the histograms of another window to these, and clears the other window's.
    fn take(&mut self, other: &mut Self) {
        for (all, of) in self.0.iter_mut().zip(&mut other.0) {
            all.add(&*of).expect("the same bounds");
            of.reset();
        }
    }
}
