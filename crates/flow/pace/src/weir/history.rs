//! Keeps the samples of the last round trips.

use super::Sample;
use std::collections::VecDeque;
use std::time::Duration;

/// Limit on the samples that are kept: four round trips of `TICKS_PER_RTT` samples.
const MAX_SAMPLES: usize = 4 * super::TICKS_PER_RTT as usize;

/// The last samples, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    samples: VecDeque<Sample>,
}

/// Sums of what happened in a period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// The length of the period in seconds.
    pub(super) seconds: f64,
    /// Bytes sent, including retransmissions.
    pub(super) sent: f64,
    /// Bytes that reached the other end.
    pub(super) delivered: f64,
    /// Bytes detected as lost.
    pub(super) lost: f64,
}

impl History {
    pub(super) fn push(&mut self, sample: Sample) {
        if self.samples.len() == MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Returns the last sample.
    pub(super) fn last(&self) -> Option<Sample> {
        self.samples.back().copied()
    }

    /// Returns what happened in the period of `length` that ended `ago` before the last sample.
    /// `None` if the samples do not cover all of the period, or if none was taken during it.
    pub(super) fn span(&self, ago: Duration, length: Duration) -> Option<Span> {
        let end = self.samples.back()?.now.checked_sub(ago)?;
        let (from, to) = (self.at(end.checked_sub(length)?)?, self.at(end)?);
        let passed = to.now.checked_sub(from.now)?;
        if passed.is_zero() {
            return None;
        }
        Some(Span {
            seconds: passed.as_secs_f64(),
            sent: bytes(to.sent - from.sent),
            delivered: bytes(to.delivered - from.delivered),
            lost: bytes(ever_lost(to).saturating_sub(ever_lost(from))),
        })
    }

    /// Returns the minimum of the smoothed round-trip time in the last `length`. The minimum shows
    /// a standing queue, and ignores packets that were delayed alone.
    pub(super) fn least_rtt(&self, length: Duration) -> Duration {
        let since =
            self.samples.back().map_or(Duration::ZERO, |last| last.now.saturating_sub(length));
        let recent = self.samples.iter().rev().take_while(|sample| sample.now >= since);
        recent.map(|sample| sample.rtt).min().unwrap_or_default()
    }

    /// Returns the maximum of the smoothed round-trip time in the last `length`.
    pub(super) fn most_rtt(&self, length: Duration) -> Duration {
        let since =
            self.samples.back().map_or(Duration::ZERO, |last| last.now.saturating_sub(length));
        let recent = self.samples.iter().rev().take_while(|sample| sample.now >= since);
        recent.map(|sample| sample.rtt).max().unwrap_or_default()
    }

    /// Returns the last sample that is not later than `time`.
    fn at(&self, time: Duration) -> Option<&Sample> {
        let after = self.samples.partition_point(|sample| sample.now <= time);
        self.samples.get(after.checked_sub(1)?)
    }
}

/// Returns how many bytes were ever detected as lost, whether or not they have been retransmitted.
fn ever_lost(sample: &Sample) -> u64 {
    sample.retransmitted + sample.lost
}

/// Converts bytes for rate calculations.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
pub(super) fn bytes(count: u64) -> f64 {
    count as f64
}
