//! Measures four TCP streams that share a distant bottleneck, first with a drop-tail queue, then
//! with the harmonizer.

use std::time::Duration;

use anyhow::Result;
use sprat_lab::line::{Discipline, LineSettings as Line};

use super::net::{Net, delayed, gigabits};
use super::stream::{Congestion, StreamResults, StreamSpec, Streams, jain, payload_share};
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;
use sprat_measure::report::svg::{self, Axis};
use sprat_measure::table::Table;
use sprat_units::figure;

/// Number of streams. Each has its own connection.
const STREAMS: usize = 4;

/// Rate of the bottleneck in Gb/s.
const RATE: f64 = 1.0;

/// Rate of the bottleneck with `--full`.
const RATE_FULL: f64 = 2.0;

/// Round-trip time without a queue.
const ROUND_TRIP: Duration = Duration::from_millis(200);

/// Receive buffer that a stream requests, in bytes. The kernel doubles it, which limits the window:
/// the frames of four windows fit into [`DEEP`].
const RECEIVE_BYTES: usize = 16 << 20;

/// Buffer in bytes with room for all windows.
const DEEP: u64 = 160_000_000;

/// Buffer of an ordinary switch, in bytes.
const SHALLOW: u64 = 10_000_000;

/// Warm-up time in which windows grow, and lower limit on the measuring time.
const GROWTH: Duration = Duration::from_secs(10);
const COUNTED: Duration = Duration::from_secs(5);

/// Warm-up time, and lower limit on the measuring time, with `--full`.
const GROWTH_FULL: Duration = Duration::from_secs(20);
const COUNTED_FULL: Duration = Duration::from_secs(20);

/// Goals for the harmonizer: index of fairness, and share of the bottleneck in %.
const FAIR: f64 = 0.99;
const SHARE: f64 = 95.0;

/// Measures the streams with each queue.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let mut table = Table::new(&[
        "bottleneck",
        "each stream, Mb/s",
        "together",
        "Jain index",
        "lost",
        "longest queue, MB",
    ]);
    let (rate, growth, counted) = match settings.full {
        true => (RATE_FULL, GROWTH_FULL, COUNTED_FULL),
        false => (RATE, GROWTH, COUNTED),
    };
    for (queue, buffer) in [
        (Discipline::DropTail, SHALLOW),
        (Discipline::DropTail, DEEP),
        (Discipline::Harmonize, DEEP),
    ] {
        let there = Line { rate: gigabits(rate), buffer, queue, ..delayed(ROUND_TRIP / 2) };
        let net = Net::pair(there, delayed(ROUND_TRIP / 2))?;
        let way = StreamSpec {
            congestion: Congestion::Cubic,
            receive_buffer: Some(RECEIVE_BYTES),
            ..StreamSpec::cubic(0, 1)
        };
        let streams = Streams::start(&net, &[way; STREAMS])?;
        let results = streams.measure(growth, settings.lab.duration.max(counted))?;
        let line = net.line(1)?.counters;
        let harmonized = queue == Discipline::Harmonize;
        let how = if harmonized { "harmonized" } else { "drop-tail" };
        let name = format!(
            "{STREAMS} streams, {rate} Gb/s, 200 ms, {how}, {} MB buffer",
            buffer / 1_000_000
        );
        let gbits = results.gbits();
        let (lost, fairness) = (line.drops.total(), jain(&gbits));
        let share = results.total_gbits() / (rate * payload_share(false)) * 100.0;
        let judged = |goal| if harmonized { goal } else { Goal::Shown };
        let row = |findings: &mut Findings, what: &str, figure, unit, goal| {
            findings.row(&format!("{name}: {what}"), Some(figure), None, unit, judged(goal));
        };
        row(findings, "lost", lost as f64, "segments", Goal::AtMost(0.0));
        row(findings, "Jain index", fairness, "", Goal::AtLeast(FAIR));
        row(findings, "share of the bottleneck", share, "%", Goal::AtLeast(SHARE));
        let each: Vec<String> = gbits.iter().map(|gbits| figure::digits(gbits * 1e3)).collect();
        table.row(vec![
            name.clone(),
            each.join(" / "),
            figure::digits(results.total_gbits() * 1e3),
            format!("{fairness:.4}"),
            lost.to_string(),
            figure::digits(line.queue_max as f64 / 1e6),
        ]);
        findings.figure(&name, picture(&results));
    }
    findings.table("Streams that merge", table);
    findings.note(format!(
        "The first {} s are for windows to grow and do not count; losses do, from the beginning. \
         Windows are at most 34 MB each: with less than \
         {} MB of buffer they do not fit. Streams are {}.",
        growth.as_secs(),
        DEEP / 1_000_000,
        Congestion::Cubic,
    ));
    Ok(())
}

/// Draws each stream's rate over time.
fn picture(results: &StreamResults) -> String {
    let streams = results.samples.first().map_or(0, |(_, counts)| counts.len());
    let rates = |stream: usize| {
        let steps = results.samples.windows(2);
        let rate = |step: &[(f64, Vec<u64>)]| {
            let ((begun, first), (ended, last)) = (&step[0], &step[1]);
            (*ended, (last[stream] - first[stream]) as f64 * 8.0 / 1e6 / (ended - begun).max(1e-9))
        };
        steps.map(rate).collect::<Vec<_>>()
    };
    let lines: Vec<svg::Line> = (0..streams)
        .map(|stream| svg::Line {
            name: format!("stream {}", stream + 1),
            points: rates(stream),
            filled: false,
        })
        .collect();
    let most =
        lines.iter().flat_map(|line| &line.points).map(|(_, rate)| *rate).fold(0.0, f64::max);
    let until = results.samples.last().map_or(1.0, |(at, _)| *at);
    let label = |at: f64| figure::short(&figure::digits(at));
    svg::chart(&Axis::linear("seconds", until, label), &Axis::linear("Mb/s", most, label), &lines)
}
