//! The rate of a transfer over the last two seconds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Period over which the rate is averaged.
const RATE_TIME: Duration = Duration::from_secs(2);

/// Limit on the samples that are kept. If there are more, the oldest sample is removed, and the
/// rate is that of less than two seconds.
const MAX_MOMENTS: usize = 64;

/// The rate over the last two seconds, computed from samples of a byte counter.
#[derive(Debug)]
pub struct RecentRate {
    moments: VecDeque<(Instant, u64)>,
}

impl Default for RecentRate {
    /// Begins to measure now, with zero bytes.
    fn default() -> Self {
        Self { moments: VecDeque::from([(Instant::now(), 0)]) }
    }
}

impl RecentRate {
    /// Adds a sample: `bytes` is the number of bytes so far. Returns the rate in bytes per second.
    pub fn per_second(&mut self, bytes: u64) -> u64 {
        let now = Instant::now();
        self.moments.push_back((now, bytes));
        let old = |(at, _): &(Instant, u64)| now.duration_since(*at) > RATE_TIME;
        while self.moments.len() > 2
            && (self.moments.len() > MAX_MOMENTS || self.moments.front().is_some_and(old))
        {
            self.moments.pop_front();
        }
        let (at, had) = self.moments[0];
        let micros = u64::try_from(now.duration_since(at).as_micros()).unwrap_or(u64::MAX);
        let bytes = bytes.saturating_sub(had);
        bytes.saturating_mul(1_000_000).checked_div(micros).unwrap_or(0)
    }
}
