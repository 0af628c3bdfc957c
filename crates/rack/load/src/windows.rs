//! What was asked and what came of it, window by window of intended starts.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most windows of a run: a day of seconds.
pub const MAX_WINDOWS: usize = 86_400;

/// Longest time that histograms tell from longer ones, us: two minutes.
const MAX_MICROS: u64 = 120_000_000;

/// Digits of times that histograms keep.
const DIGITS: u8 = 3;

/// Times of operations, us.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Quantiles {
    /// How many there are.
    pub count: u64,
    /// Half of them are no longer.
    pub p50: u64,
    /// 99 of 100 are no longer.
    pub p99: u64,
    /// 999 of 1000 are no longer.
    pub p999: u64,
    /// None is longer.
    pub max: u64,
}

/// A window of time: operations whose intended start is in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Window {
    /// When it begins, seconds from the beginning.
    pub begins: f64,
    /// Whether operations were asked for during all of it: not in the last one of a run that was
    /// stopped.
    pub full: bool,
    /// Operations that were to start in it.
    pub asked: u64,
    /// Of these, those that were sent.
    pub sent: u64,
    /// Those that were not, because too many were under way.
    pub not_sent: u64,
    /// Of those sent, those that were done.
    pub done: u64,
    /// Those that failed, or had no answer when the time for it was up.
    pub failed: u64,
    /// Operations of this window and of those before it that were done during it.
    pub delivered: u64,
    /// From the intended start to the answer, of those done.
    pub response: Quantiles,
    /// From the actual start to the answer, of those done.
    pub service: Quantiles,
    /// From the intended start to the actual one: what the load itself is late.
    pub lateness: Quantiles,
}

/// An operation's end. Times are ns from the beginning.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// When it was to start.
    pub intended: u64,
    /// When it did.
    pub sent: u64,
    /// When it was done, or failed.
    pub ended: u64,
    /// Whether it was done.
    pub done: bool,
}

/// All windows of a run.
#[derive(Debug)]
pub struct Windows {
    length: u64,
    total: u64,
    counts: Vec<Counts>,
    /// Windows before this one are asked for in full.
    passed: usize,
    /// Times in windows that may still get some: of those without answers there are none.
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

/// Response, service, lateness.
#[derive(Debug)]
struct Times([Histogram<u64>; 3]);

impl Windows {
    /// For a run so long, in windows so long.
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

    /// Which window an offset from the beginning is in, ns. The last one has what is behind it,
    /// too.
    #[must_use]
    pub fn at(&self, offset: u64) -> usize {
        usize::try_from(offset / self.length).unwrap_or(usize::MAX).min(self.counts.len() - 1)
    }

    /// Operations were sent, or not, and all of windows before `window` have been.
    pub fn dispatched(&mut self, window: usize, sent: u64, not_sent: u64, passed: usize) {
        self.counts[window].sent += sent;
        self.counts[window].not_sent += not_sent;
        let before = self.passed;
        self.passed = self.passed.max(passed).min(self.counts.len());
        (before..self.passed).for_each(|window| self.close(window));
    }

    /// An operation ended.
    pub fn answered(&mut self, answered: Answered) {
        let window = self.at(answered.intended);
        let times =
            self.open.entry(window).or_insert_with(|| self.spare.pop().unwrap_or_else(Times::new));
        times.record(answered);
        if answered.done {
            self.counts[window].done += 1;
            self.done += 1;
            match self
                .counts
                .get_mut(usize::try_from(answered.ended / self.length).unwrap_or(usize::MAX))
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

    /// A window as it is by now. Operations of one that is not yet over, ns from the beginning, may
    /// be missing.
    #[must_use]
    pub fn window(&self, window: usize, asked_until: u64) -> Window {
        let counts = &self.counts[window];
        let [response, service, lateness] =
            self.open.get(&window).map_or(counts.times, |times| times.quantiles());
        let begins = window as u64 * self.length;
        Window {
            begins: Duration::from_nanos(begins).as_secs_f64(),
            full: begins + self.length <= asked_until.min(self.total),
            asked: counts.sent + counts.not_sent,
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

    /// Operations that were done and that failed, so far.
    #[must_use]
    pub fn ended(&self) -> (u64, u64) {
        (self.done, self.failed)
    }

    /// Ends all windows: nothing was asked from `asked_until` on, ns from the beginning, and what
    /// has no answer by now has failed. Gives the windows that have begun by then, and how many
    /// operations had no answer.
    pub fn end(&mut self, asked_until: u64) -> (Vec<Window>, u64) {
        let mut unanswered = 0;
        for window in 0..self.counts.len() {
            let counts = &mut self.counts[window];
            let open = counts.sent.saturating_sub(counts.done + counts.failed);
            counts.failed += open;
            unanswered += open;
            self.failed += open;
        }
        self.dispatched(0, 0, 0, usize::MAX);
        let begun = usize::try_from(asked_until.min(self.total).div_ceil(self.length))
            .unwrap_or(usize::MAX)
            .max(1);
        (
            (0..begun.min(self.counts.len()))
                .map(|window| self.window(window, asked_until))
                .collect(),
            unanswered,
        )
    }

    /// Of all windows that are over, response, service and lateness.
    #[must_use]
    pub fn times(&self) -> [Quantiles; 3] {
        self.times.quantiles()
    }

    /// Operations that were done after the last window.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Reduces a window that nothing can come to any more: histograms are too large to keep one for
    /// each.
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

    fn record(&mut self, answered: Answered) {
        let Answered { intended, sent, ended, done } = answered;
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

    /// Adds another's times, which are then none.
    fn take(&mut self, other: &mut Self) {
        for (all, of) in self.0.iter_mut().zip(&mut other.0) {
            all.add(&*of).expect("the same bounds");
            of.reset();
        }
    }
}
