//! Timing of a master: how long requests took from arrival to departure, how long the node's loop
//! iterations took, and how its thread was scheduled.

use sprat_net::{EventCounter, RecentSamples, Scale, ThreadAccount, stamp};

/// The stages of a request, as [`Timing::mark`] records them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
    /// The RPC layer has handed the request to the master.
    Entered,
    /// The request is parsed.
    Parsed,
    /// The request's object has been looked up, or appended.
    Found,
    /// The request's reply is ready for the RPC layer.
    Done,
}

/// Names of the counters of a request's stages: first the time that the RPC layer takes before and
/// after the master, then the time between the marks.
const STAGES: [&str; 4] = [
    "request_rpc_p50_ns",
    "request_parse_p50_ns",
    "request_object_p50_ns",
    "request_answer_p50_ns",
];

/// Names of the counters of the stages where events are counted in place of time, with the number
/// of pairs of stamps within each stage.
const EVENTS: [(&str, u64); 4] = [
    ("request_rpc_events_milli", 2),
    ("request_parse_events_milli", 1),
    ("request_object_events_milli", 1),
    ("request_answer_events_milli", 1),
];

/// The measurements that `Master::timed` or `Master::counted` begins.
#[derive(Debug)]
pub(super) struct Timing {
    requests: RecentSamples,
    /// Frames with requests that were timed since the start, both whole and in stages.
    seen: u64,
    /// Whether the frame at hand brought a request: the last frame of a long request counts, a
    /// grant for a long reply does not.
    entered: bool,
    /// Whether the current request is stamped between its stages. Every second request is. Such a
    /// request is left out of the totals, which would otherwise include the cost of the stamps.
    staged: bool,
    marks: [u64; STAGES.len()],
    stages: [RecentSamples; STAGES.len()],
    scale: Scale,
    /// The counter of events; if there is one, events are counted instead of time.
    count: Option<EventCounter>,
    longest_round: u64,
    /// Whether the counters were read in this iteration. That iteration is not timed, since only
    /// the reader waits for it.
    reported: bool,
}

impl Timing {
    /// Makes the measurements: of events if `count` is given, otherwise of times. Takes 20 ms to
    /// calibrate the clock.
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
            reported: false,
        }
    }

    #[inline]
    pub(super) fn mark(&mut self, mark: Mark) {
        self.entered = true;
        if self.staged {
            self.marks[mark as usize] = stamp();
        }
    }

    /// Records a frame that arrived and whose reply departed at these stamps.
    #[inline]
    pub(super) fn request(&mut self, arrived: u64, departed: u64) {
        if !std::mem::take(&mut self.entered) {
            return;
        }
        self.seen += 1;
        if self.staged {
            let [entered, parsed, found, done] = std::mem::take(&mut self.marks);
            // Requests that neither find nor append an object lack that mark. In a frame of many
            // requests, the marks are those of the last request.
            if [arrived, entered, parsed, found, done, departed].is_sorted() {
                let times = [
                    (entered - arrived) + (departed - done),
                    parsed - entered,
                    found - parsed,
                    done - found,
                ];
                self.stages.iter_mut().zip(times).for_each(|(stage, ticks)| stage.push(ticks));
            }
        } else {
            self.requests.push(departed.saturating_sub(arrived));
        }
        self.staged = !self.staged;
    }

    #[inline]
    pub(super) fn iteration(&mut self, ticks: u64) {
        self.entered = false; // a request whose reply waits for the disk is not timed
        if std::mem::take(&mut self.reported) {
            return;
        }
        self.longest_round = self.longest_round.max(ticks);
    }

    /// Returns the counters, including those of the calling thread, which must be the master's.
    /// Resets the times, so that the next call reports only the requests and iterations after this
    /// one.
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
        self.reported = true;
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

/// Returns the mean of the events without the cost of the counting itself, in thousandths; 0 where
/// the cost is more than the mean.
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
    fn stages_are_reported_separately_from_totals() {
        let mut timing = Timing::new(None);
        let at = |micros: u64| 1_000_000_000 + micros * 10_000; // ticks of any length
        let pass = |timing: &mut Timing, marks, departed| {
            timing.request(at(0), at(900)); // a frame that brings no request
            timing.mark(Mark::Entered);
            timing.marks = marks;
            timing.request(at(0), at(departed));
        };
        for _ in 0..5 {
            pass(&mut timing, [0; 4], 100); // a request timed as a whole
            pass(&mut timing, [10, 30, 60, 100].map(at), 500); // timed in stages: takes longer
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
            let reported = counters.iter().find(|counter| counter.0 == name).expect("a counter").1;
            assert!((reported as f64 - wanted).abs() <= 1.0, "{name}: {reported}, not {wanted}");
        }
        assert_eq!(counters[0], ("requests_timed_total", 20));
    }

    #[test]
    fn counts_exclude_the_cost_of_counting() {
        let mut laps = RecentSamples::default();
        assert_eq!(events_milli(&laps, 0), 0);
        [12, 13].into_iter().for_each(|events| laps.push(events));
        assert_eq!(
            (events_milli(&laps, 0), events_milli(&laps, 4), events_milli(&laps, 13)),
            (12_500, 8_500, 0)
        );
    }

    #[test]
    fn longest_iteration_is_reported_once_without_the_reading() {
        let mut timing = Timing::new(None);
        for ticks in [10_000_000, 90_000_000, 20_000_000] {
            timing.iteration(ticks);
        }
        let longest = value(&mut timing, "longest_round_ns");
        assert!(longest >= timing.nanos(89_000_000) && longest <= timing.nanos(91_000_000));
        timing.iteration(500_000_000); // the iteration that read the counters
        timing.iteration(30_000_000);
        let longest = value(&mut timing, "longest_round_ns");
        assert!(longest <= timing.nanos(31_000_000), "{longest}");
    }
}
