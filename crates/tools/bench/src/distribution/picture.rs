//! Draws distributions.

use super::Distributions;
use sprat_measure::hist::Latencies;
use sprat_measure::report::svg::{Axis, Line, Tick, chart};
use sprat_units::figure;

/// Approximate limit on the points of a line, because a drawing is 600 pixels wide. Latencies that
/// fewer than 1,000 operations exceed always have a point.
const POINTS: usize = 1_500;

/// Draws the share of operations that took longer than a latency, on logarithmic axes. Each path of
/// each result has a line. Each result has one more line: the delays that the machine alone would
/// cause to operations of the first path.
#[must_use]
pub fn ccdf(all: &[&Distributions]) -> String {
    let mut lines = Vec::new();
    let mut least_share = 1.0_f64;
    for one in all {
        for path in &one.paths {
            let latencies = &path.samples.latencies;
            least_share = least_share.min(1.0 / latencies.count().max(1) as f64);
            lines.push(Line {
                name: name(one, &path.name, all.len()),
                points: beyond(latencies),
                filled: false,
            });
        }
        lines.extend(machine(one, all.len()));
    }
    let (least, most) = ends(all);
    // A report has room for eight decades.
    let decades = (-least_share.log10()).ceil().clamp(1.0, 8.0);
    let ticks = (0_u8..=8).filter(|&decade| f64::from(decade) <= decades).map(|decade| {
        let decimals = usize::from(decade.saturating_sub(2));
        let percent = 10_f64.powf(2.0 - f64::from(decade));
        Tick { at: -f64::from(decade), label: format!("{percent:.decimals$} %") }
    });
    let ticks = ticks.collect();
    let y = Axis { title: "share that took longer".to_owned(), from: -decades, to: 0.0, ticks };
    let x = Axis::decades("latency", least, most, figure::short_time);
    for line in &mut lines {
        line.points.retain(|point| point.0 >= x.from && point.1 >= -decades);
    }
    chart(&x, &y, &lines)
}

/// Draws the share of operations that took at most a latency, over the logarithm of the latency.
#[must_use]
pub fn cdf(all: &[&Distributions]) -> String {
    let mut lines = Vec::new();
    for one in all {
        for path in &one.paths {
            let points = beyond(&path.samples.latencies);
            let points = points
                .into_iter()
                .map(|(x, share)| (x, (1.0 - 10_f64.powf(share)) * 100.0))
                .collect();
            lines.push(Line { name: name(one, &path.name, all.len()), points, filled: false });
        }
    }
    let (least, most) = ends(all);
    let y = Axis::linear("share that took at most as long", 100.0, |share| format!("{share:.0} %"));
    chart(&Axis::decades("latency", least, most, figure::short_time), &y, &lines)
}

fn name(one: &Distributions, path: &str, results: usize) -> String {
    if results > 1 { format!("{}, {path}", one.label) } else { path.to_owned() }
}

/// Returns pairs of a latency and the share beyond it, as decimal logarithms.
fn beyond(latencies: &Latencies) -> Vec<(f64, f64)> {
    let counts = latencies.counts();
    let all = latencies.count().max(1) as f64;
    let every = counts.len().div_ceil(POINTS).max(1);
    let mut points = Vec::new();
    let mut left = latencies.count();
    for (index, &(ns, count)) in counts.iter().enumerate() {
        if index == 0 {
            points.push(((ns.max(1) as f64).log10(), 0.0));
        }
        left = left.saturating_sub(count);
        if left > 0 && (index % every == 0 || left < 1_000) {
            points.push(((ns.max(1) as f64).log10(), (left as f64 / all).log10()));
        }
    }
    points
}

/// Returns the line of the machine alone: the latencies that operations would have if each took the
/// median plus the gaps that the jitter meter found.
fn machine(one: &Distributions, results: usize) -> Option<Line> {
    let latencies = &one.paths.first()?.samples.latencies;
    let (median, mean) = (latencies.quantile(0.5), latencies.summary().mean);
    let lengths: std::collections::BTreeSet<u64> =
        one.jitter.iter().flat_map(|meter| meter.gaps.counts()).map(|(ns, _)| ns).collect();
    let points = lengths.into_iter().filter_map(|gap| {
        let rate: f64 = one.jitter.iter().map(|meter| meter.rate_beyond(gap)).sum();
        let share = (rate * mean / 1e9).min(1.0);
        (share > 0.0).then(|| (((median + gap) as f64).log10(), share.log10()))
    });
    Some(Line {
        name: name(one, "the machine alone, by the jitter meter", results),
        points: points.collect(),
        filled: false,
    })
}

/// Returns the shortest and the longest latency.
fn ends(all: &[&Distributions]) -> (f64, f64) {
    let mut ends = (f64::INFINITY, 0.0_f64);
    for path in all.iter().flat_map(|one| &one.paths) {
        let summary = path.samples.latencies.summary();
        ends = (ends.0.min(summary.min as f64), ends.1.max(summary.max as f64));
    }
    ends
}
