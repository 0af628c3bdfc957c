//! A master that is timed: how long requests were its own, how long its rounds took, and how its thread fared.

use sprat_net::{Laps, Scale, ThreadAccount};

/// What `--timed` keeps.
#[derive(Debug)]
pub(super) struct Timing {
    requests: Laps,
    scale: Scale,
    longest_round: u64,
    /// The round that tells these counters is work that nobody else's request waits for.
    told: bool,
}

impl Timing {
    /// Takes 20 ms.
    pub(super) fn new() -> Self {
        Self { requests: Laps::default(), scale: Scale::measure(), longest_round: 0, told: false }
    }

    #[inline]
    pub(super) fn request(&mut self, ticks: u64) {
        self.requests.push(ticks);
    }

    #[inline]
    pub(super) fn round(&mut self, ticks: u64) {
        if std::mem::take(&mut self.told) {
            return;
        }
        self.longest_round = self.longest_round.max(ticks);
    }

    /// Its counters, of the calling thread, which is the master's; the next who asks is told of the requests and rounds since.
    pub(super) fn counters(&mut self) -> [(&'static str, u64); 8] {
        let account = ThreadAccount::read();
        let counters = [
            ("requests_timed_total", self.requests.count()),
            ("request_p50_ns", self.nanos(self.requests.median())),
            ("longest_round_ns", self.nanos(self.longest_round)),
            ("thread_clock_ns_total", self.nanos(account.at)),
            ("thread_ran_ns_total", account.ran_ns),
            ("thread_preempted_total", account.preempted),
            ("thread_waited_total", account.waited),
            ("thread_faults_total", account.faults),
        ];
        self.requests.clear();
        self.longest_round = 0;
        self.told = true;
        counters
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times of a few ns to years")]
    fn nanos(&self, ticks: u64) -> u64 {
        self.scale.nanos(ticks) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(timing: &mut Timing, name: &str) -> u64 {
        timing.counters().into_iter().find(|counter| counter.0 == name).expect("a counter").1
    }

    #[test]
    fn the_longest_round_is_told_once_and_without_the_telling() {
        let mut timing = Timing::new();
        for ticks in [10_000_000, 90_000_000, 20_000_000] {
            timing.round(ticks);
        }
        let longest = value(&mut timing, "longest_round_ns");
        assert!(longest >= timing.nanos(89_000_000) && longest <= timing.nanos(91_000_000));
        timing.round(500_000_000); // in which the counters were told
        timing.round(30_000_000);
        let longest = value(&mut timing, "longest_round_ns");
        assert!(longest <= timing.nanos(31_000_000), "{longest}");
    }
}
