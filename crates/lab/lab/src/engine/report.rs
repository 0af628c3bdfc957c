//! The counters of a box, for people and for programs.

use super::Tolerance;
use crate::filter;
use crate::line::{Counters, Traffic};
use crate::rtt;
use crate::switch::SwitchCounters;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The smallest number of late packets on a line for which a report says that the box did not keep
/// up. One late packet out of a few pings does not show that.
const LEAST_LATE: u64 = 10;

/// Counters of a port's input.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct InputReport {
    /// The port's name.
    pub port: String,
    /// Valid packets read; a super-packet counts once.
    pub packets: u64,
    /// Segments read, and their bytes on Ethernet.
    pub arrived: Traffic,
    /// Packets read that were not valid frames.
    pub malformed: u64,
    /// Packets, and copies of packets that were mirrored or flooded, lost because packet memory was
    /// exhausted.
    pub exhausted: u64,
    /// Packets that the kernel, or a device that bypasses it, dropped before the box read them.
    pub dropped_by_kernel: u64,
}

/// Counters of the line to a port.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LineReport {
    /// The port's name.
    pub to: String,
    /// The counters of the line.
    #[serde(flatten)]
    pub counters: Counters,
    /// How late packets left.
    pub lateness: Lateness,
    /// Frames that left the line, and that a device that bypasses the kernel accepted but did not
    /// send.
    pub lost_by_device: u64,
}

/// How late packets left a box, compared with when they were due. If the box did not run for a
/// time, packets that may have waited unread count as late by all of that time.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Lateness {
    /// Packets that left.
    pub packets: u64,
    /// Sum of the lateness of all packets, in nanoseconds.
    pub sum_ns: u64,
    /// The largest lateness of a packet, in nanoseconds.
    pub max_ns: u64,
    /// Packets that were late by more than [`Tolerance::late`].
    pub late_packets: u64,
    /// The segments of the late packets.
    pub late_segments: u64,
}

impl Lateness {
    /// Returns the mean lateness.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.checked_div(self.packets).unwrap_or(0))
    }
}

/// One worker's part of a report.
#[derive(Clone, Debug)]
pub(super) struct WorkerReport {
    pub(super) inputs: Vec<InputReport>,
    pub(super) lines: Vec<LineReport>,
    pub(super) switch: Option<SwitchCounters>,
    pub(super) filters: Vec<filter::Counters>,
    pub(super) memory_cells: u64,
    pub(super) memory_least_free: u64,
}

/// Counts of the packets of a box since it started.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// Seconds since the box started.
    pub seconds: f64,
    /// The packets that arrived at each port.
    pub inputs: Vec<InputReport>,
    /// The counters and the lateness of the line to each port.
    pub lines: Vec<LineReport>,
    /// The switch's counters, if the box is a switch.
    pub switch: Option<SwitchCounters>,
    /// The counters of each rule of the filter.
    pub filters: Vec<filter::Counters>,
    /// Cells of packet memory of all workers, used or free.
    pub memory_cells: u64,
    /// The fewest cells that were ever free in a worker, summed over all workers.
    pub memory_least_free: u64,
    /// Reasons to doubt what was measured with the box. Empty if the box kept up.
    pub behind: Vec<String>,
}

impl Report {
    pub(super) fn join(
        elapsed: Duration,
        workers: Vec<WorkerReport>,
        tolerance: &Tolerance,
    ) -> Self {
        let mut report = Self {
            seconds: elapsed.as_secs_f64(),
            inputs: Vec::new(),
            lines: Vec::new(),
            switch: None,
            filters: Vec::new(),
            memory_cells: 0,
            memory_least_free: 0,
            behind: Vec::new(),
        };
        for worker in workers {
            report.inputs.extend(worker.inputs);
            report.lines.extend(worker.lines);
            report.switch = report.switch.or(worker.switch);
            // Every worker has all the rules.
            report.filters.resize(
                report.filters.len().max(worker.filters.len()),
                filter::Counters::default(),
            );
            report.filters.iter_mut().zip(worker.filters).for_each(|(sum, seen)| sum.add(seen));
            report.memory_cells += worker.memory_cells;
            report.memory_least_free += worker.memory_least_free;
        }
        rtt::join(report.lines.iter_mut().flat_map(|line| &mut line.counters.flows));
        report.behind = report.reasons(tolerance);
        report
    }

    /// Returns whether the box kept up, which means that [`behind`](Self::behind) gives no reason
    /// to doubt a measurement.
    #[must_use]
    pub fn kept_up(&self) -> bool {
        self.behind.is_empty()
    }

    fn reasons(&self, tolerance: &Tolerance) -> Vec<String> {
        let mut reasons = Vec::new();
        for input in &self.inputs {
            let InputReport { port, exhausted, dropped_by_kernel, .. } = input;
            if *exhausted > 0 {
                reasons.push(format!(
                    "{port}: {exhausted} packets found no memory: give more with --memory"
                ));
            }
            if *dropped_by_kernel > 0 {
                reasons.push(format!(
                    "{port}: {dropped_by_kernel} packets were dropped by the kernel before they \
                     were read"
                ));
            }
        }
        for LineReport { to, counters, lateness, lost_by_device } in &self.lines {
            let drops = counters.drops;
            if drops.memory > 0 {
                reasons.push(format!(
                    "to {to}: {} segments found no memory: give more with --memory",
                    drops.memory
                ));
            }
            if drops.refused > 0 {
                reasons.push(format!(
                    "to {to}: the port refused {} segments: is it up, and does it carry frames so \
                     long?",
                    drops.refused
                ));
            }
            if *lost_by_device > 0 {
                reasons.push(format!(
                    "to {to}: the device took {lost_by_device} frames and did not send them"
                ));
            }
            if lateness.late_packets >= LEAST_LATE
                && tolerance.exceeded(lateness.late_segments, counters.left.segments)
            {
                reasons.push(format!(
                    "to {to}: {} of {} segments left more than {:?} late, {:.1} ms at worst: give \
                     it more of a processor, or --tolerate more",
                    lateness.late_segments,
                    counters.left.segments,
                    tolerance.late,
                    Duration::from_nanos(lateness.max_ns).as_secs_f64() * 1e3,
                ));
            }
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Probability;

    /// Returns whether a box is behind if `late_packets` packets, with `late_segments` of 1,000
    /// segments, were late.
    fn behind(late_packets: u64, late_segments: u64, tolerance: Tolerance) -> bool {
        let mut counters = Counters::default();
        counters.left.segments = 1_000;
        let lateness =
            Lateness { packets: 1_000, late_packets, late_segments, ..Lateness::default() };
        let line = LineReport { to: "b0".into(), counters, lateness, lost_by_device: 0 };
        let worker = WorkerReport {
            inputs: Vec::new(),
            lines: vec![line],
            switch: None,
            filters: Vec::new(),
            memory_cells: 0,
            memory_least_free: 0,
        };
        !Report::join(Duration::ZERO, vec![worker], &tolerance).kept_up()
    }

    #[test]
    fn a_share_of_many_is_late_before_the_box_is() {
        let usual = Tolerance::default();
        assert!(!behind(9, 400, usual), "a few packets, however long");
        assert!(!behind(10, 10, usual), "one in a hundred");
        assert!(behind(11, 11, usual));
        let none = Tolerance { share: Probability::NEVER, ..usual };
        assert!(behind(10, 10, none));
        assert!(!behind(1_000, 1_000, Tolerance { share: Probability::ALWAYS, ..usual }));
    }
}
