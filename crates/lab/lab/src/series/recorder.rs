//! Computes samples from counters, which only grow.

use super::{Figures, FlowSample, LineSample, MAX_SAMPLE_FLOWS, Sample};
use crate::engine::{LineReport, Report};
use crate::frame::Flow;
use crate::line::FlowCounters;
use std::collections::HashMap;
use std::time::Duration;

/// Keeps the last report of each line, and computes what happened until the next report.
#[derive(Debug, Default)]
pub struct Recorder {
    at: f64,
    lines: HashMap<String, Previous>,
}

#[derive(Debug, Default)]
struct Previous {
    bytes: u64,
    drops: u64,
    flows: HashMap<Flow, FlowCounters>,
}

impl Recorder {
    /// Makes a recorder for boxes that have just started.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns what happened since the last call, or since the start. `reports` are the boxes'
    /// reports at `seconds` after they started, each with a prefix for the names of its lines.
    /// Returns `None` if no time has passed since the last call.
    pub fn sample(&mut self, seconds: f64, reports: &[(String, Report)]) -> Option<Sample> {
        let from = self.at;
        if seconds <= from {
            return None;
        }
        self.at = seconds;
        let lines = reports
            .iter()
            .flat_map(|(prefix, report)| report.lines.iter().map(move |line| (prefix, line)));
        let lines = lines
            .map(|(prefix, line)| self.line(line_name(prefix, &line.to), line, seconds - from))
            .collect();
        Some(Sample { from, to: seconds, lines })
    }

    fn line(&mut self, name: String, line: &LineReport, seconds: f64) -> LineSample {
        let previous = self.lines.entry(name.clone()).or_default();
        let counters = &line.counters;
        let (bytes, drops) = (counters.left.bytes, counters.drops.total());
        let all = Figures {
            bits_per_second: bits(bytes.saturating_sub(previous.bytes), seconds),
            queue: counters.queue,
            drops: drops.saturating_sub(previous.drops),
        };
        let mut flows: Vec<_> = counters
            .flows
            .iter()
            .filter_map(|(flow, now)| flow_sample(flow, now, previous.flows.get(flow), seconds))
            .collect();
        let rate = |flow: &FlowSample| flow.figures.bits_per_second;
        flows.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then_with(|| a.flow.cmp(&b.flow)));
        flows.truncate(MAX_SAMPLE_FLOWS);
        *previous = Previous { bytes, drops, flows: counters.flows.iter().copied().collect() };
        LineSample { line: name, all, flows }
    }
}

/// Returns the name that a line has in a series.
#[must_use]
pub fn line_name(prefix: &str, to: &str) -> String {
    format!("{prefix}to {to}")
}

/// Returns the figures of a flow; `None` if nothing happened to it.
fn flow_sample(
    flow: &Flow,
    now: &FlowCounters,
    previous: Option<&FlowCounters>,
    seconds: f64,
) -> Option<FlowSample> {
    // If fewer segments arrived than in the last report, the flow lost its slot and got a new one.
    let previous = previous.filter(|previous| previous.arrived.segments <= now.arrived.segments);
    let previous = previous.copied().unwrap_or_default();
    let (left, drops) = (now.left.bytes.saturating_sub(previous.left.bytes), now.drops.total());
    let drops = drops.saturating_sub(previous.drops.total());
    if left == 0 && drops == 0 && now.queue == 0 {
        return None;
    }
    let rtt = now.round_trips.whole_ns.map(|whole| Duration::from_nanos(whole).as_secs_f64() * 1e3);
    let figures = Figures { bits_per_second: bits(left, seconds), queue: now.queue, drops };
    Some(FlowSample { flow: flow.to_string(), figures, rtt_ms: rtt })
}

#[expect(clippy::cast_precision_loss, reason = "a rate, of which three digits count")]
fn bits(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 * 8.0 / seconds
}
