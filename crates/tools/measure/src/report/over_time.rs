//! Draws what the boxes of a lab (`docs/lab.md`) did over time, as one picture. For each line it
//! shows rate, queue, drops and round trips, one above the other.

use std::collections::{HashMap, HashSet};
use std::fmt::{Result, Write};

use sprat_lab::series::{About, FlowSample, LineAbout, LineSample, Sample};

use super::svg::{Area, Axis, COLOURS, Line, panel};
use sprat_units::figure;
use sprat_units::html::escape;

const STYLE: &str = include_str!("over_time.css");

/// The picture's width, in SVG units.
const WIDTH: f64 = 960.0;

const LEFT: f64 = 84.0;
const RIGHT: f64 = WIDTH - 24.0;

/// Heights of the title, a line's name, a row of the legend, each panel, the gap between panels,
/// and the space below the last panel.
const HEAD: f64 = 40.0;
const NAME: f64 = 26.0;
const LEGEND: f64 = 18.0;
const PANELS: [f64; 4] = [150.0, 100.0, 60.0, 100.0];
const GAP: f64 = 18.0;
const FOOT: f64 = 64.0;

/// Limit on the flows that have their own colour. The others share the last colour.
const SHOWN: usize = COLOURS - 1;

/// A flow is drawn with the others if it carried less than this share of its line's bits, and its
/// round-trip time is unknown.
const LEAST_SHARE: f64 = 0.001;

/// Limit on the flow names in a row of the legend, and on the characters of a name that are shown.
const LEGEND_COLUMNS: usize = 3;
const LEGEND_LETTERS: usize = 44;

/// A line, and its flows that have their own curves.
struct Curves<'a> {
    about: &'a LineAbout,
    flows: Vec<&'a str>,
    /// Whether the line has other flows.
    rest: bool,
}

/// Renders the picture as a self-contained SVG document, light or dark like the reader's system.
/// `samples` are in order of time.
#[must_use]
pub fn picture<'a>(about: &'a About, samples: impl IntoIterator<Item = &'a Sample>) -> String {
    let samples: Vec<_> = samples.into_iter().collect();
    let lines: Vec<_> = about.lines.iter().map(|line| curves(line, &samples)).collect();
    let height = HEAD + lines.iter().map(height_of).sum::<f64>();
    let mut svg = String::new();
    draw(&mut svg, about, &samples, &lines, height).expect("a string takes every write");
    svg
}

/// Renders the picture as an HTML page.
#[must_use]
pub fn page<'a>(about: &'a About, samples: impl IntoIterator<Item = &'a Sample>) -> String {
    let title = escape(&about.title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>{title}</title>\n<style>:root {{ color-scheme: light dark }} \
         svg {{ max-width: 100%; height: auto }}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
        picture(about, samples)
    )
}

fn height_of(line: &Curves<'_>) -> f64 {
    let rows = (line.flows.len() + usize::from(line.rest)).div_ceil(LEGEND_COLUMNS);
    NAME + LEGEND * rows as f64 + PANELS.iter().sum::<f64>() + GAP * PANELS.len() as f64 + FOOT
}

/// Selects the flows of a line that carried the most over the whole time.
fn curves<'a>(about: &'a LineAbout, samples: &[&'a Sample]) -> Curves<'a> {
    let (mut carried, mut timed) = (HashMap::<&str, f64>::new(), HashSet::<&str>::new());
    for sample in samples {
        for flow in of_line(sample, &about.line).map_or(&[][..], |line| &line.flows) {
            *carried.entry(&flow.flow).or_default() +=
                flow.figures.bits_per_second * sample.seconds();
            if flow.rtt_ms.is_some() {
                timed.insert(&flow.flow);
            }
        }
    }
    let mut flows: Vec<_> = carried.into_iter().collect();
    flows.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let (all, least) = (flows.len(), flows.iter().map(|flow| flow.1).sum::<f64>() * LEAST_SHARE);
    flows.retain(|(name, bits)| *bits >= least || timed.contains(name));
    flows.truncate(SHOWN);
    let rest = flows.len() < all;
    let mut flows: Vec<_> = flows.into_iter().map(|(name, _)| name).collect();
    flows.sort_unstable(); // keeps a flow's colour independent of its rank
    Curves { about, flows, rest }
}

fn of_line<'a>(sample: &'a Sample, name: &str) -> Option<&'a LineSample> {
    sample.lines.iter().find(|line| line.line == name)
}

fn draw(
    svg: &mut String,
    about: &About,
    samples: &[&Sample],
    lines: &[Curves<'_>],
    height: f64,
) -> Result {
    let title = escape(&about.title);
    write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n\
         <style>\n{STYLE}</style>\n<rect class=\"paper\" width=\"{WIDTH}\" \
         height=\"{height}\"/>\n<text class=\"head\" x=\"24\" y=\"27\">{title}</text>\n"
    )?;
    let (from, to) = (
        samples.first().map_or(0.0, |first| first.from),
        samples.last().map_or(1.0, |last| last.to),
    );
    let mut top = HEAD;
    for line in lines {
        draw_line(svg, top, line, samples, (from, to))?;
        top += height_of(line);
    }
    svg.push_str("</svg>\n");
    Ok(())
}

/// Draws the panels of a line.
fn draw_line(
    svg: &mut String,
    top: f64,
    line: &Curves<'_>,
    samples: &[&Sample],
    (from, to): (f64, f64),
) -> Result {
    let (name, settings) = (escape(&line.about.line), escape(&line.about.settings));
    writeln!(svg, r#"<text class="name" x="24" y="{}">{name}: {settings}</text>"#, top + 14.0)?;
    let below = legend(svg, top + NAME, line)?;
    let label = |seconds: f64| figure::short(&figure::digits(seconds));
    let mut across = Axis::linear("", to - from, label);
    across.from += from;
    across.to = to.max(from + 1e-9);
    across.ticks.iter_mut().for_each(|tick| tick.at += from);
    across.ticks.retain(|tick| tick.at <= to + 1e-9);
    across.ticks.iter_mut().for_each(|tick| tick.label = label(tick.at));
    let mut bottom = below;
    let panels = [
        rate(line, samples),
        queue(line, samples),
        drops(line, samples),
        round_trips(line, samples),
    ];
    for (index, ((down, curves), height)) in panels.into_iter().zip(PANELS).enumerate() {
        let area =
            Area { left: LEFT, right: RIGHT, top: bottom + GAP, bottom: bottom + GAP + height };
        bottom = area.bottom;
        // Only the last panel labels the time.
        let last = index + 1 == PANELS.len();
        let x = Axis {
            title: if last { "seconds since the box began".to_owned() } else { String::new() },
            ticks: across.ticks.iter().filter(|_| last).cloned().collect(),
            ..across.clone()
        };
        panel(svg, &area, &x, &down, &curves)?;
        svg.push('\n');
    }
    Ok(())
}

/// Draws the legend, and returns the position of its end.
fn legend(
    svg: &mut String,
    top: f64,
    line: &Curves<'_>,
) -> std::result::Result<f64, std::fmt::Error> {
    let rest = line.rest.then_some("all others");
    let names = line.flows.iter().copied().enumerate().chain(rest.map(|name| (SHOWN, name)));
    let mut bottom = top;
    for (index, (colour, name)) in names.enumerate() {
        let (row, column) = (index / LEGEND_COLUMNS, index % LEGEND_COLUMNS);
        let x = LEFT + column as f64 * (RIGHT - LEFT) / LEGEND_COLUMNS as f64;
        let y = top + LEGEND * row as f64;
        bottom = y + LEGEND;
        let mut short: String = name.chars().take(LEGEND_LETTERS).collect();
        if short.len() < name.len() {
            short.push_str("..");
        }
        writeln!(
            svg,
            r#"<rect class="c{colour}" x="{x:.1}" y="{y:.1}" width="10" height="10" rx="2"/><text x="{:.1}" y="{:.1}">{}</text>"#,
            x + 15.0,
            y + 9.5,
            escape(&short)
        )?;
    }
    Ok(bottom)
}

type Panel = (Axis, Vec<Line>);

/// Returns a curve for each flow of `line` that has a colour, and one for the others. `rest`
/// computes the value of the others from the line and the sum of the drawn flows.
fn by_flow(
    line: &Curves<'_>,
    samples: &[&Sample],
    of: impl Fn(Option<&FlowSample>) -> f64,
    rest: impl Fn(&LineSample, f64) -> f64,
) -> Vec<Line> {
    let mut curves: Vec<_> = line.flows.iter().map(|name| empty(name)).collect();
    // The others always have the last colour, whatever the number of flows.
    curves.resize_with(SHOWN, || empty(""));
    curves.push(empty("all others"));
    for sample in samples {
        let Some(here) = of_line(sample, &line.about.line) else { continue };
        let mut drawn = 0.0;
        for (curve, name) in curves.iter_mut().zip(&line.flows) {
            let flow = here.flows.iter().find(|flow| flow.flow == *name);
            let value = of(flow);
            drawn += value;
            curve.points.push((middle(sample), value));
        }
        if line.rest {
            curves[SHOWN].points.push((middle(sample), rest(here, drawn)));
        }
    }
    curves
}

fn empty(name: &str) -> Line {
    Line { name: name.to_owned(), points: Vec::new(), filled: false }
}

fn middle(sample: &Sample) -> f64 {
    f64::midpoint(sample.from, sample.to)
}

fn most(curves: &[Line]) -> f64 {
    curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|point| point.1)
        .filter(|y| y.is_finite())
        .fold(0.0, f64::max)
}

fn rate(line: &Curves<'_>, samples: &[&Sample]) -> Panel {
    let of = |flow: Option<&FlowSample>| flow.map_or(0.0, |flow| flow.figures.bits_per_second);
    let curves =
        by_flow(line, samples, of, |here, drawn| (here.all.bits_per_second - drawn).max(0.0));
    let axis = Axis::linear("rate", most(&curves), |bits| figure::short(&figure::bit_rate(bits)));
    (axis, curves)
}

fn queue(line: &Curves<'_>, samples: &[&Sample]) -> Panel {
    let of = |flow: Option<&FlowSample>| flow.map_or(0.0, |flow| flow.figures.queue as f64);
    let mut curves =
        by_flow(line, samples, of, |here, drawn| (here.all.queue as f64 - drawn).max(0.0));
    let all = |sample: &&Sample| {
        Some((middle(sample), of_line(sample, &line.about.line)?.all.queue as f64))
    };
    // The whole queue is an area behind the flows. It has the colour of the others.
    curves[SHOWN] = Line {
        name: "all".to_owned(),
        points: closed(samples.iter().filter_map(all)),
        filled: true,
    };
    let label = |bytes| figure::short(&figure::decimal_bytes(bytes));
    let of =
        line.about.buffer.map_or(String::new(), |buffer| format!(" of {}", label(buffer as f64)));
    (Axis::linear(&format!("queue{of}"), most(&curves), label), curves)
}

fn drops(line: &Curves<'_>, samples: &[&Sample]) -> Panel {
    let all = |sample: &&Sample| {
        Some((
            middle(sample),
            of_line(sample, &line.about.line)?.all.drops as f64 / sample.seconds(),
        ))
    };
    let mut curves: Vec<_> = (0..COLOURS).map(|_| empty("")).collect();
    curves[4] = Line {
        name: "drops".to_owned(),
        points: closed(samples.iter().filter_map(all)),
        filled: true,
    };
    let axis = Axis::linear("drops", most(&curves), |rate| figure::short(&figure::rate(rate)));
    (Axis { ticks: few(axis.ticks.clone()), ..axis }, curves)
}

fn round_trips(line: &Curves<'_>, samples: &[&Sample]) -> Panel {
    let of = |flow: Option<&FlowSample>| flow.and_then(|flow| flow.rtt_ms).unwrap_or(f64::NAN);
    let mut curves = by_flow(line, samples, of, |_, _| f64::NAN);
    curves.truncate(SHOWN);
    let axis = Axis::linear("round trip", most(&curves), |ms| figure::short_time(ms * 1e6));
    (axis, curves)
}

/// Closes the area of a staircase at the axis.
fn closed(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut points: Vec<_> = points.collect();
    points.extend(points.last().map(|last| (last.0, 0.0)));
    points
}

/// Returns every second tick, for low panels.
fn few(ticks: Vec<super::svg::Tick>) -> Vec<super::svg::Tick> {
    ticks.into_iter().step_by(2).collect()
}
