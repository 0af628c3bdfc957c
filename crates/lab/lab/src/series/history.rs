//! Samples in bounded room: when it is full, two neighbours become one, all along.

use super::{Figures, FlowSample, LineSample, MAX_SAMPLE_FLOWS, MAX_SAMPLE_LINES, Sample};

/// Most samples that are kept, an even number. After so many, each is joined with the next, and
/// from then on twice as many that come make one.
pub const MAX_SAMPLES: usize = 1_200;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct History {
    kept: Vec<Sample>,
    /// What has come of the next one, and of how many.
    part: Option<Sample>,
    parts: u64,
    /// How often the room was full: two to that power make one.
    halvings: u32,
}

impl History {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what happened next.
    pub fn push(&mut self, sample: Sample) {
        let part = match self.part.take() {
            None => sample,
            Some(part) => join(part, sample),
        };
        self.parts += 1;
        if self.parts < 1 << self.halvings.min(63) {
            self.part = Some(part);
            return;
        }
        self.parts = 0;
        self.kept.push(part);
        if self.kept.len() == MAX_SAMPLES {
            let mut all = std::mem::take(&mut self.kept).into_iter();
            while let Some(first) = all.next() {
                self.kept.push(match all.next() {
                    Some(second) => join(first, second),
                    None => first,
                });
            }
            self.halvings += 1;
        }
    }

    /// What is kept, in order of time.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> + Clone {
        self.kept.iter().chain(&self.part)
    }
}

/// Two that follow one another as one. Rates are means, queues the longest, drops sums, round trips
/// the latest.
fn join(first: Sample, second: Sample) -> Sample {
    let (one, other) = (first.seconds(), second.seconds());
    let weights = (one / (one + other), other / (one + other));
    let mut joined = Sample { from: first.from, to: second.to, lines: first.lines };
    for line in &mut joined.lines {
        scale(&mut line.all, weights.0);
        line.flows.iter_mut().for_each(|flow| scale(&mut flow.figures, weights.0));
    }
    for LineSample { line: name, all, flows } in second.lines {
        let Some(line) = line_called(&mut joined.lines, name) else { continue };
        add(&mut line.all, all, weights.1);
        for FlowSample { flow: name, figures, rtt_ms } in flows {
            let at = line.flows.iter().position(|flow| flow.flow == name).unwrap_or_else(|| {
                line.flows.push(FlowSample { flow: name, ..FlowSample::default() });
                line.flows.len() - 1
            });
            let flow = &mut line.flows[at];
            add(&mut flow.figures, figures, weights.1);
            flow.rtt_ms = rtt_ms.or(flow.rtt_ms);
        }
        line.flows.sort_by(|a, b| b.figures.bits_per_second.total_cmp(&a.figures.bits_per_second));
        line.flows.truncate(MAX_SAMPLE_FLOWS);
    }
    joined
}

/// None when there is no room for another.
fn line_called(lines: &mut Vec<LineSample>, name: String) -> Option<&mut LineSample> {
    let at = match lines.iter().position(|line| line.line == name) {
        Some(at) => at,
        None if lines.len() == MAX_SAMPLE_LINES => return None,
        None => {
            lines.push(LineSample { line: name, ..LineSample::default() });
            lines.len() - 1
        }
    };
    lines.get_mut(at)
}

fn scale(figures: &mut Figures, weight: f64) {
    figures.bits_per_second *= weight;
}

fn add(figures: &mut Figures, more: Figures, weight: f64) {
    figures.bits_per_second += more.bits_per_second * weight;
    figures.queue = figures.queue.max(more.queue);
    figures.drops = figures.drops.saturating_add(more.drops);
}
