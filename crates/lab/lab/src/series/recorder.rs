//! From counters that only grow to what happened in between.

use super::{Figures, FlowSample, LineSample, MAX_SAMPLE_FLOWS, Sample};
use crate::engine::{LineReport, Report};
use crate::frame::Flow;
use crate::line::FlowCounters;
use std::collections::HashMap;
use std::time::Duration;

/// Remembers the last report of each line, bounded as that is.
#[derive(Debug, Default)]
pub struct Recorder {
    at: f64,
    lines: HashMap<String, Before>,
}

#[derive(Debug, Default)]
struct Before {
    bytes: u64,
    drops: u64,
    flows: HashMap<Flow, FlowCounters>,
}

impl Recorder {
    /// Of boxes that begin now.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What happened since the last time, or since the beginning: the reports of boxes, at so many
    /// seconds since they began, each with what goes before the names of its lines. `None` when
    /// no time has passed.
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
        let before = self.lines.entry(name.clone()).or_default();
        let counters = &line.counters;
        let (bytes, drops) = (counters.left.bytes, counters.drops.total());
        let all = Figures {
            bits_per_second: bits(bytes.saturating_sub(before.bytes), seconds),
            queue: counters.queue,
            drops: drops.saturating_sub(before.drops),
        };
        let mut flows: Vec<_> = counters
            .flows
            .iter()
            .filter_map(|(flow, now)| flow_sample(flow, now, before.flows.get(flow), seconds))
            .collect();
        let rate = |flow: &FlowSample| flow.figures.bits_per_second;
        flows.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then_with(|| a.flow.cmp(&b.flow)));
        flows.truncate(MAX_SAMPLE_FLOWS);
        *before = Before { bytes, drops, flows: counters.flows.iter().copied().collect() };
        LineSample { line: name, all, flows }
    }
}

/// What a line is called in a series.
#[must_use]
pub fn line_name(prefix: &str, to: &str) -> String {
    format!("{prefix}to {to}")
}

/// None of a flow of which nothing happened.
fn flow_sample(
    flow: &Flow,
    now: &FlowCounters,
    before: Option<&FlowCounters>,
    seconds: f64,
) -> Option<FlowSample> {
    // Fewer than before: it went, and has come again.
    let before = before.filter(|before| before.arrived.segments <= now.arrived.segments);
    let before = before.copied().unwrap_or_default();
    let (left, drops) = (now.left.bytes.saturating_sub(before.left.bytes), now.drops.total());
    let drops = drops.saturating_sub(before.drops.total());
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
