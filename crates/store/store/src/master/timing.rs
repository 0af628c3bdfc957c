//! A master that is timed: how long requests were its own, how long its rounds took, and how its
//! thread fared.

use sprat_net::{EventCounter, RecentSamples, Scale, ThreadAccount, stamp};

/// How far a request has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
    /// It has been handed to the master.
    Entered,
    /// It is known what it asks.
    Parsed,
    /// The object has been looked up, or appended.
    Found,
    /// Its answer is ready for the RPC layer.
    Done,
}

/// Stages of a request and their counters: what RPC does before and behind the master, then the
/// marks' distances.
const STAGES: [&str; 4] = [
    "request_rpc_p50_ns",
    "request_parse_p50_ns",
    "request_object_p50_ns",
    "request_answer_p50_ns",
];

/// The same stages where events are counted, with the pairs of stamps that each holds.
const EVENTS: [(&str, u64); 4] = [
    ("request_rpc_events_milli", 2),
    ("request_parse_events_milli", 1),
    ("request_object_events_milli", 1),
    ("request_answer_events_milli", 1),
];

/// What `--timed` keeps, and `--counted`.
#[derive(Debug)]
pub(super) struct Timing {
    requests: RecentSamples,
    /// Requests timed, whole and in stages.
    seen: u64,
    /// Whether the frame at hand brought a request: of a long one its end, and no grant for a long
    /// answer.
    entered: bool,
    /// Every other request is stamped between its stages. It is left out of the whole, which would
    /// hold the stamps too.
    staged: bool,
    marks: [u64; STAGES.len()],
    stages: [RecentSamples; STAGES.len()],
    scale: Scale,
    /// What stamps count instead of time.
    count: Option<EventCounter>,
    longest_round: u64,
    /// The round that tells these counters is work that nobody else's request waits for.
    told: bool,
}

impl Timing {
    /// Stamps tell the time, or what `count` counts. Takes 20 ms.
    pub(super) fn new(count: Option<EventCounter>) -> Self {
        Self {
            requests: RecentSamples::default(),
            seen: 0,
            entered: false,
            staged: false,
            marks: [0; STAGES.len()],
            stages: Default::default(),
            scale: Scale::measure(),
            count,
            longest_round: 0,
            told: false,
        }
    }

    #[inline]
    pub(super) fn mark(&mut self, mark: Mark) {
        self.entered = true;
        if self.staged {
            self.marks[mark as usize] = stamp();
        }
    }

    /// What came in a frame, and left then.
    #[inline]
    pub(super) fn request(&mut self, came: u64, left: u64) {
        if !std::mem::take(&mut self.entered) {
            return;
        }
        self.seen += 1;
        if self.staged {
            let [entered, parsed, found, done] = std::mem::take(&mut self.marks);
            // Requests that neither find nor append have no such mark; of a frame of many, these
            // are the last one's.
            if [came, entered, parsed, found, done, left].is_sorted() {
                let times = [
                    (entered - came) + (left - done),
                    parsed - entered,
                    found - parsed,
                    done - found,
                ];
                self.stages.iter_mut().zip(times).for_each(|(stage, ticks)| stage.push(ticks));
            }
        } else {
            self.requests.push(left.saturating_sub(came));
        }
        self.staged = !self.staged;
    }

    #[inline]
    pub(super) fn round(&mut self, ticks: u64) {
        self.entered = false; // whose answer waits for the disk is not timed
        if std::mem::take(&mut self.told) {
            return;
        }
        self.longest_round = self.longest_round.max(ticks);
    }

    /// Its counters, of the calling thread, which is the master's; the next who asks is told of the
    /// requests and rounds since.
    pub(super) fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let account = ThreadAccount::read();
        let mut counters = vec![
            ("requests_timed_total", self.seen),
            ("longest_round_ns", self.nanos(self.longest_round)),
            ("thread_clock_ns_total", self.nanos(account.at)),
            ("thread_ran_ns_total", account.ran_ns),
            ("thread_preempted_total", account.preempted),
            ("thread_waited_total", account.waited),
            ("thread_faults_total", account.faults),
        ];
        match &self.count {
            None => {
                counters.push(("request_p50_ns", self.nanos(self.requests.median())));
                let stages = STAGES.iter().zip(&self.stages);
                counters.extend(stages.map(|(&name, stage)| (name, self.nanos(stage.median()))));
            }
            Some(count) => {
                let events = |laps: &RecentSamples, pairs| events_milli(laps, pairs * count.cost());
                counters.push(("request_events_milli", events(&self.requests, 1)));
                let stages = EVENTS.iter().zip(&self.stages);
                counters.extend(stages.map(|(&(name, pairs), stage)| (name, events(stage, pairs))));
            }
        }
        self.requests.clear();
        self.stages.iter_mut().for_each(RecentSamples::clear);
        self.longest_round = 0;
        self.told = true;
        counters
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times of a few ns to years"
    )]
    fn nanos(&self, ticks: u64) -> u64 {
        self.scale.nanos(ticks) as u64
    }
}

/// The mean of what was counted without what the counting itself did, in thousandths; 0 where that
/// was more.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a mean of counts below 2^32"
)]
fn events_milli(laps: &RecentSamples, cost: u64) -> u64 {
    ((laps.mean() - cost as f64) * 1000.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(timing: &mut Timing, name: &str) -> u64 {
        timing.counters().into_iter().find(|counter| counter.0 == name).expect("a counter").1
    }

    #[test]
    fn stages_are_told_beside_the_whole_and_not_in_it() {
        let mut timing = Timing::new(None);
        let at = |micros: u64| 1_000_000_000 + micros * 10_000; // ticks of any length
        let pass = |timing: &mut Timing, marks, left| {
            timing.request(at(0), at(900)); // a frame that brings no request
            timing.mark(Mark::Entered);
            timing.marks = marks;
            timing.request(at(0), at(left));
        };
        for _ in 0..5 {
            pass(&mut timing, [0; 4], 100); // a whole one
            pass(&mut timing, [10, 30, 60, 100].map(at), 500); // in stages, which cost more
            pass(&mut timing, [0; 4], 100);
            pass(&mut timing, [at(10), 0, 0, at(100)], 500); // neither found nor appended
        }
        let ns = |micros: u64| timing.scale.nanos(micros * 10_000);
        let wanted = [
            ("request_p50_ns", ns(100)),
            ("request_rpc_p50_ns", ns(10) + ns(400)),
            ("request_parse_p50_ns", ns(20)),
            ("request_object_p50_ns", ns(30)),
            ("request_answer_p50_ns", ns(40)),
        ];
        let counters = timing.counters();
        for (name, wanted) in wanted {
            let told = counters.iter().find(|counter| counter.0 == name).expect("a counter").1;
            assert!((told as f64 - wanted).abs() <= 1.0, "{name}: {told}, not {wanted}");
        }
        assert_eq!(counters[0], ("requests_timed_total", 20));
    }

    #[test]
    fn counts_are_told_without_the_counting() {
        let mut laps = RecentSamples::default();
        assert_eq!(events_milli(&laps, 0), 0);
        [12, 13].into_iter().for_each(|events| laps.push(events));
        assert_eq!(
            (events_milli(&laps, 0), events_milli(&laps, 4), events_milli(&laps, 13)),
            (12_500, 8_500, 0)
        );
    }

    #[test]
    fn the_longest_round_is_told_once_and_without_the_telling() {
        let mut timing = Timing::new(None);
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
