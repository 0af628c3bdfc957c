//! Keeps samples in bounded memory: when the memory is full, every pair of neighbouring samples is
//! joined into one sample.

use super::{Figures, FlowSample, LineSample, MAX_SAMPLE_FLOWS, MAX_SAMPLE_LINES, Sample};

/// The number of samples at which the history halves itself; an even number. Every pair of
/// neighbouring samples is then joined, and each later sample that is kept covers twice as many new
/// samples as before.
pub const MAX_SAMPLES: usize = 1_200;

/// Keeps the samples of any length of time in bounded memory, by joining neighbours.
#[derive(Clone, Debug, Default)]
pub struct History {
    kept: Vec<Sample>,
    /// The sample that is being joined, and how many samples it contains so far.
    partial: Option<Sample>,
    partial_samples: u64,
    /// The number of times that the history was halved. Each sample that is kept joins two to the
    /// power of this number of new samples.
    halvings: u32,
}

impl History {
    /// Makes an empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next sample.
    pub fn push(&mut self, sample: Sample) {
        let partial = match self.partial.take() {
            None => sample,
            Some(partial) => join(partial, sample),
        };
        self.partial_samples += 1;
        if self.partial_samples < 1 << self.halvings.min(63) {
            self.partial = Some(partial);
            return;
        }
        self.partial_samples = 0;
        self.kept.push(partial);
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

    /// Returns the samples, in order of time. The last one may still grow.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> + Clone {
        self.kept.iter().chain(&self.partial)
    }
}

/// Joins two consecutive samples. Takes the mean of the rates, the longest of the queues, the sum
/// of the drops, and the latest round trips.
fn join(first: Sample, second: Sample) -> Sample {
    let (one, other) = (first.seconds(), second.seconds());
    let weights = (one / (one + other), other / (one + other));
    let mut joined = Sample { from: first.from, to: second.to, lines: first.lines };
    for line in &mut joined.lines {
        scale(&mut line.all, weights.0);
        line.flows.iter_mut().for_each(|flow| scale(&mut flow.figures, weights.0));
    }
    for LineSample { line: name, all, flows } in second.lines {
        let Some(line) = find_or_add_line(&mut joined.lines, name) else { continue };
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

/// Returns the line with this name, and adds it if it is new. `None` if there is no room for it.
fn find_or_add_line(lines: &mut Vec<LineSample>, name: String) -> Option<&mut LineSample> {
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
