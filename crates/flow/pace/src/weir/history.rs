//! What was sent and delivered in the last round trips.

use super::Sample;
use std::collections::VecDeque;
use std::time::Duration;

/// Samples kept: four round trips of them.
const MAX_SAMPLES: usize = 4 * super::TICKS_PER_RTT as usize;

/// The last samples, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    samples: VecDeque<Sample>,
}

/// What happened between two moments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// How long it was, seconds.
    pub(super) seconds: f64,
    /// Bytes sent, those sent again too.
    pub(super) sent: f64,
    /// Bytes that reached the other end.
    pub(super) delivered: f64,
    /// Bytes found to be lost.
    pub(super) lost: f64,
}

impl History {
    pub(super) fn push(&mut self, sample: Sample) {
        if self.samples.len() == MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// The last sample, if there is one.
    pub(super) fn last(&self) -> Option<Sample> {
        self.samples.back().copied()
    }

    /// What happened in the last `length` before `ago` before the last sample; none when that is
    /// not all known.
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
            lost: bytes(found(to).saturating_sub(found(from))),
        })
    }

    /// The least of the smoothed round-trip times in the last `length`: what stands, where single
    /// ones are held up on the way.
    pub(super) fn least_rtt(&self, length: Duration) -> Duration {
        let since =
            self.samples.back().map_or(Duration::ZERO, |last| last.now.saturating_sub(length));
        let recent = self.samples.iter().rev().take_while(|sample| sample.now >= since);
        recent.map(|sample| sample.rtt).min().unwrap_or_default()
    }

    /// The most of them.
    pub(super) fn most_rtt(&self, length: Duration) -> Duration {
        let since =
            self.samples.back().map_or(Duration::ZERO, |last| last.now.saturating_sub(length));
        let recent = self.samples.iter().rev().take_while(|sample| sample.now >= since);
        recent.map(|sample| sample.rtt).max().unwrap_or_default()
    }

    /// The last sample at that time or before.
    fn at(&self, time: Duration) -> Option<&Sample> {
        let after = self.samples.partition_point(|sample| sample.now <= time);
        self.samples.get(after.checked_sub(1)?)
    }
}

/// Bytes that were ever found to be lost: each is sent again once it has been.
fn found(sample: &Sample) -> u64 {
    sample.retransmitted + sample.lost
}

/// Bytes as a number to calculate rates with.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
pub(super) fn bytes(count: u64) -> f64 {
    count as f64
}
