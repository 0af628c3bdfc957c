//! What the last samples say of a path.

use super::history::bytes;
use super::{LEAST_ROUND, Sample, Weir};
use std::time::Duration;

/// A queue that is shorter than this is hardly told from a machine that is busy.
pub(super) const LEAST_TOLERANCE: Duration = Duration::from_millis(3);

/// What was sent of the rate, at least, for what arrives to say something about the path.
const TRIED: f64 = 0.8;

/// A share of bytes lost that is congestion, and no accident of the line.
const CONGESTION_LOSS: f64 = 0.01;

/// Fewer segments lost than this say nothing.
pub(super) const FEWEST_LOST: f64 = 8.0;

/// Why a path pushes back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Push {
    /// A queue grows.
    Delay,
    /// More is lost than by accident.
    Loss,
}

/// What the last samples say of the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) now: Duration,
    /// A round trip without a queue.
    pub(super) rtt: Duration,
    /// Round trips since the last sample.
    pub(super) rounds: f64,
    /// Bytes of a segment.
    pub(super) mss: f64,
    /// The queue that has stood for half a round trip.
    pub(super) queue: Duration,
    pub(super) push: Option<Push>,
    /// Bytes a second that arrived in the last round trip.
    pub(super) arrives: f64,
    /// Whether what arrived had been sent at about the rate: else it says nothing of the path.
    pub(super) tried: bool,
    /// Bytes.
    pub(super) under_way: f64,
    pub(super) idle: bool,
}

impl Weir {
    /// What the last samples say.
    pub(super) fn look(&self, sample: &Sample, last: &Sample) -> Seen {
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
        Seen { now, rtt, rounds, mss, queue, push, arrives, tried, under_way, idle: sample.idle }
    }
}

/// The shortest there was; of a path so short that nobody can pace it by round trips, a bit more.
pub(super) fn round_trip(sample: &Sample) -> Duration {
    let known = if sample.min_rtt.is_zero() { sample.rtt } else { sample.min_rtt };
    known.max(Duration::from_micros(100))
}

/// The time over which is counted what is sent, arrives and is lost.
pub(super) fn counted(rtt: Duration) -> Duration {
    rtt.max(LEAST_ROUND)
}

/// A queue that may be there without anything being wrong: more where the times vary by themselves,
/// as on a busy machine.
fn tolerance(rtt: Duration, variation: Duration) -> Duration {
    (rtt / 64).max(variation.min(rtt / 8)).max(LEAST_TOLERANCE)
}
