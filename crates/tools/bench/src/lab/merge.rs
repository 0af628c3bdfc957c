//! Four TCP streams that merge into one bottleneck far away: by a queue whose end is cut off, and
//! by the harmonizer.

use std::time::Duration;

use anyhow::Result;
use sprat_lab::line::{Discipline, LineSettings as Line};

use super::net::{Net, delayed, gigabits};
use super::stream::{Congestion, Flowed, Streams, Way, jain, payload_share};
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;
use sprat_measure::report::svg::{self, Axis};
use sprat_measure::table::Table;
use sprat_units::figure;

/// Streams that merge, each a connection of its own.
const STREAMS: usize = 4;

/// Rate of the bottleneck, Gb/s.
const RATE: f64 = 1.0;

/// The same with `--full`.
const RATE_FULL: f64 = 2.0;

/// Round trip without a queue.
const ROUND_TRIP: Duration = Duration::from_millis(200);

/// Receive buffer that a stream asks for, bytes. The kernel takes twice that, and no window is
/// larger: four of them, as frames, fit into [`DEEP`].
const RECEIVE_BYTES: usize = 16 << 20;

/// Buffer in which all windows find room, bytes.
const DEEP: u64 = 160_000_000;

/// Buffer as in an ordinary switch, bytes.
const SHALLOW: u64 = 10_000_000;

/// Time for windows to grow, and least time that counts.
const GROWTH: Duration = Duration::from_secs(10);
const COUNTED: Duration = Duration::from_secs(5);

/// The same with `--full`.
const GROWTH_FULL: Duration = Duration::from_secs(20);
const COUNTED_FULL: Duration = Duration::from_secs(20);

/// Least index of fairness, and least share of the bottleneck, of the harmonizer.
const FAIR: f64 = 0.99;
const SHARE: f64 = 95.0;

/// See the module.
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
        let way = Way {
            congestion: Congestion::Cubic,
            receive_buffer: Some(RECEIVE_BYTES),
            ..Way::cubic(0, 1)
        };
        let streams = Streams::start(&net, &[way; STREAMS])?;
        let flowed = streams.measure(growth, settings.lab.duration.max(counted))?;
        let line = net.line(1)?.counters;
        let harmonized = queue == Discipline::Harmonize;
        let how = if harmonized { "harmonized" } else { "drop-tail" };
        let name = format!(
            "{STREAMS} streams, {rate} Gb/s, 200 ms, {how}, {} MB buffer",
            buffer / 1_000_000
        );
        let gbits = flowed.gbits();
        let (lost, fairness) = (line.drops.total(), jain(&gbits));
        let share = flowed.total_gbits() / (rate * payload_share(false)) * 100.0;
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
            figure::digits(flowed.total_gbits() * 1e3),
            format!("{fairness:.4}"),
            lost.to_string(),
            figure::digits(line.queue_max as f64 / 1e6),
        ]);
        findings.figure(&name, picture(&flowed));
    }
    findings.table("Streams that merge", table);
    findings.note(format!(
        "The first {} s are for windows to grow and do not count; losses do, from the beginning. Windows are at most 34 MB each: with less than \
         {} MB of buffer they do not fit. Streams are {}.",
        growth.as_secs(),
        DEEP / 1_000_000,
        Congestion::Cubic,
    ));
    Ok(())
}

/// Each stream's rate by and by.
fn picture(flowed: &Flowed) -> String {
    let streams = flowed.samples.first().map_or(0, |(_, counts)| counts.len());
    let rates = |stream: usize| {
        let steps = flowed.samples.windows(2);
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
    let until = flowed.samples.last().map_or(1.0, |(at, _)| *at);
    let label = |at: f64| figure::short(&figure::digits(at));
    svg::chart(&Axis::linear("seconds", until, label), &Axis::linear("Mb/s", most, label), &lines)
}
