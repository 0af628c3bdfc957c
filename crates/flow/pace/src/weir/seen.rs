//! Derives the state of a path from the last samples.

use super::history::bytes;
use super::{LEAST_ROUND, Sample, Weir};
use std::time::Duration;

/// The shortest queue that counts. A shorter queue looks like the delays of a busy machine.
pub(super) const LEAST_TOLERANCE: Duration = Duration::from_millis(3);

/// If less than this share of the current rate was sent, the arrivals say nothing about that rate.
const TRIED: f64 = 0.8;

/// Share of lost bytes above which congestion is the cause rather than errors of the line.
const CONGESTION_LOSS: f64 = 0.01;

/// Losses of at most this many segments are ignored.
pub(super) const FEWEST_LOST: f64 = 8.0;

/// How a path pushes back: a sign that more is sent than the path carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Push {
    /// A queue grows.
    Delay,
    /// More is lost than errors of the line explain.
    Loss,
}

/// The state of a path, derived from samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    pub(super) now: Duration,
    /// Round-trip time without a queue.
    pub(super) rtt: Duration,
    /// Round trips since the last sample.
    pub(super) rounds: f64,
    /// Bytes of a full segment.
    pub(super) mss: f64,
    /// Delay that the queue has caused for at least half a round trip.
    pub(super) queue: Duration,
    pub(super) push: Option<Push>,
    /// The rate at which bytes arrived in the last round trip (or in the last [`LEAST_ROUND`], if
    /// that is longer), in bytes a second. The current rate while the history is shorter than that.
    pub(super) arrives: f64,
    /// Whether the bytes that arrived were sent at about the current rate. Otherwise the arrivals
    /// say nothing about that rate.
    pub(super) tried: bool,
    /// Bytes in flight.
    pub(super) under_way: f64,
    pub(super) idle: bool,
}

impl Weir {
    /// Derives the state of the path from the history, `sample` and the sample before it, `last`.
    pub(super) fn observe(&self, sample: &Sample, last: &Sample) -> Observation {
        let rtt = round_trip(sample);
        let now = sample.now;
        let rounds = now.saturating_sub(last.now).as_secs_f64() / rtt.as_secs_f64();
        let length = counted(rtt);
        let round = self.history.span(Duration::ZERO, length);
        let queue = self.history.least_rtt(length / 2).saturating_sub(rtt);
        let mss = f64::from(sample.mss.max(536));
        let (mut arrives, mut push) = (self.rate, None);
        if let Some(round) = round {
            arrives = round.delivered / round.seconds;
            if round.lost > FEWEST_LOST * mss && round.lost > CONGESTION_LOSS * round.sent {
                push = Some(Push::Loss);
            } else if queue > tolerance(rtt, sample.rtt_variation) {
                push = Some(Push::Delay);
            }
        }
        let under_way = bytes(
            sample.sent.saturating_sub(sample.delivered + sample.retransmitted + sample.lost),
        );
        let before = self.history.span(rtt + queue, length);
        let tried = before.is_some_and(|before| before.sent / before.seconds >= TRIED * self.rate);
        Observation {
            now,
            rtt,
            rounds,
            mss,
            queue,
            push,
            arrives,
            tried,
            under_way,
            idle: sample.idle,
        }
    }
}

/// Returns the minimum round-trip time, or the smoothed one if the minimum is unknown, but at least
/// 100 µs: the round trips of a shorter path are too short for pacing.
pub(super) fn round_trip(sample: &Sample) -> Duration {
    let known = if sample.min_rtt.is_zero() { sample.rtt } else { sample.min_rtt };
    known.max(Duration::from_micros(100))
}

/// Returns the period over which sent, arrived and lost bytes are counted.
pub(super) fn counted(rtt: Duration) -> Duration {
    rtt.max(LEAST_ROUND)
}

/// Returns the delay of a queue that is tolerated. It is longer if round-trip times vary without a
/// queue, as they do on a busy machine.
fn tolerance(rtt: Duration, variation: Duration) -> Duration {
    (rtt / 64).max(variation.min(rtt / 8)).max(LEAST_TOLERANCE)
}
