//! Line and bar charts as inline SVG. Colours are CSS classes, so that the page's style sheet can
//! define light and dark ones.

use sprat_units::html::escape;
use std::fmt::Write;

/// Width of a chart, in SVG units (CSS pixels at full size).
pub const WIDTH: f64 = 720.0;

/// Height of a chart, in SVG units.
pub const HEIGHT: f64 = 340.0;

/// Number of colours. Further series use the colours again.
pub const COLOURS: usize = 8;

const LEFT: f64 = 72.0;
const RIGHT: f64 = 34.0;
const TOP: f64 = 14.0;

/// The position of the titles of vertical axes.
const TITLE: f64 = 14.0;
const BOTTOM: f64 = 48.0;

/// A labelled position on an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// The position, in the axis' unit.
    pub at: f64,
    /// The label.
    pub label: String,
}

/// An axis: its ends, in its own unit, and its ticks. On a logarithmic axis the unit is log10.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The axis's title.
    pub title: String,
    /// The value at the start of the axis.
    pub from: f64,
    /// The value at the end of the axis, above `from`.
    pub to: f64,
    /// The ticks of the axis, between `from` and `to`.
    pub ticks: Vec<Tick>,
}

impl Axis {
    /// Creates a linear axis from 0 to at least `to`, with about five round ticks.
    #[must_use]
    pub fn linear(title: &str, to: f64, label: impl Fn(f64) -> String) -> Self {
        let to = if to.is_finite() && to > 0.0 { to } else { 1.0 };
        let rough = to / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|&step| step >= rough)
            .unwrap_or(rough);
        let count = (to / step).ceil();
        let ticks =
            (0..).map(f64::from).take_while(|&index| index <= count).map(|index| index * step);
        let ticks: Vec<Tick> = ticks.map(|at| Tick { at, label: label(at) }).collect();
        Self { title: title.to_owned(), from: 0.0, to: count * step, ticks }
    }

    /// Creates a decimal logarithmic axis around `least..=most`. Positions on it are log10.
    #[must_use]
    pub fn decades(title: &str, least: f64, most: f64, label: impl Fn(f64) -> String) -> Self {
        let least = if least.is_finite() && least > 0.0 { least } else { 1.0 };
        let most = if most.is_finite() && most > least { most } else { least * 10.0 };
        let steps = [1.0, 2.0, 5.0];
        let below = |value: f64| {
            let power = 10_f64.powf(value.log10().floor());
            steps.iter().rev().map(|step| step * power).find(|&edge| edge <= value).unwrap_or(power)
        };
        let above = |value: f64| {
            let power = 10_f64.powf(value.log10().floor());
            steps
                .iter()
                .chain(&[10.0])
                .map(|step| step * power)
                .find(|&edge| edge >= value)
                .unwrap_or(power * 10.0)
        };
        let (from, to) = (below(least), above(most));
        // With few decades there is room for ticks at 2 and 5 too.
        let fine = (to / from).log10() <= 3.5;
        let mut ticks = Vec::new();
        let mut power = 10_f64.powf(from.log10().floor());
        while power <= to * 1.001 {
            for step in steps.iter().filter(|&&step| fine || step <= 1.0) {
                let at = step * power;
                if at >= from * 0.999 && at <= to * 1.001 {
                    ticks.push(Tick { at: at.log10(), label: label(at) });
                }
            }
            power *= 10.0;
        }
        Self { title: title.to_owned(), from: from.log10(), to: to.log10(), ticks }
    }
}

/// A series: its name and its points in the axes' units.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The name of the series in the legend.
    pub name: String,
    /// Points, left to right.
    pub points: Vec<(f64, f64)>,
    /// Whether the series is drawn as a filled staircase from the bottom, like a histogram.
    pub filled: bool,
}

/// Renders a chart as an `<svg>` element followed by a legend as an HTML list.
#[must_use]
pub fn chart(x: &Axis, y: &Axis, lines: &[Line]) -> String {
    let mut svg = String::new();
    draw(&mut svg, x, y, lines).expect("a string takes every write");
    svg
}

fn draw(svg: &mut String, x: &Axis, y: &Axis, lines: &[Line]) -> std::fmt::Result {
    let name = escape(&format!("{} by {}", y.title, x.title));
    write!(svg, r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">"#)?;
    panel(
        svg,
        &Area { left: LEFT, right: WIDTH - RIGHT, top: TOP, bottom: HEIGHT - BOTTOM },
        x,
        y,
        lines,
    )?;
    svg.push_str("</svg>");
    svg.push_str(r#"<ul class="legend">"#);
    for (index, line) in lines.iter().enumerate() {
        write!(svg, r#"<li><i class="c{}"></i>{}</li>"#, index % COLOURS, escape(&line.name))?;
    }
    svg.push_str("</ul>");
    Ok(())
}

/// The area of a panel's curves, in SVG units. Ticks and titles lie around the area.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// Draws axes and curves. A point that is not finite is a gap in its curve. Empty titles and empty
/// lists of ticks are not drawn.
pub(super) fn panel(
    svg: &mut String,
    area: &Area,
    x: &Axis,
    y: &Axis,
    lines: &[Line],
) -> std::fmt::Result {
    assert!(x.to > x.from && y.to > y.from, "an axis has a length");
    let &Area { left, right, top, bottom } = area;
    let across = |at: f64| left + (at - x.from) / (x.to - x.from) * (right - left);
    let down = |at: f64| bottom - (at - y.from) / (y.to - y.from) * (bottom - top);
    for tick in &x.ticks {
        let (at, label) = (across(tick.at), escape(&tick.label));
        write!(svg, r#"<path class="grid" d="M{at:.1} {top}V{bottom}"/>"#)?;
        write!(
            svg,
            r#"<text x="{at:.1}" y="{}" text-anchor="middle">{label}</text>"#,
            bottom + 18.0
        )?;
    }
    for tick in &y.ticks {
        let (at, label) = (down(tick.at), escape(&tick.label));
        write!(svg, r#"<path class="grid" d="M{left} {at:.1}H{right}"/>"#)?;
        write!(
            svg,
            r#"<text x="{}" y="{:.1}" text-anchor="end">{label}</text>"#,
            left - 8.0,
            at + 4.0
        )?;
    }
    if !x.title.is_empty() {
        let (middle, title) = (f64::midpoint(left, right), escape(&x.title));
        write!(
            svg,
            r#"<text class="title" x="{middle}" y="{}" text-anchor="middle">{title}</text>"#,
            bottom + 40.0
        )?;
    }
    let middle = f64::midpoint(top, bottom);
    write!(
        svg,
        r#"<text class="title" transform="translate({TITLE} {middle}) rotate(-90)" text-anchor="middle">{}</text>"#,
        escape(&y.title)
    )?;
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| !line.points.is_empty()) {
        let class = index % COLOURS;
        let points = line
            .points
            .iter()
            .map(|&(px, py)| (across(px.clamp(x.from, x.to)), down(py.clamp(y.from, y.to))));
        let mut path = String::new();
        let mut drawn = false;
        for (px, py) in points {
            let here = px.is_finite() && py.is_finite();
            match (here, drawn, line.filled) {
                (false, _, _) => {}
                (true, false, true) => write!(path, "M{px:.1} {bottom}V{py:.1}")?,
                (true, false, false) => write!(path, "M{px:.1} {py:.1}")?,
                (true, true, true) => write!(path, "H{px:.1}V{py:.1}")?,
                (true, true, false) => write!(path, "L{px:.1} {py:.1}")?,
            }
            drawn = here;
        }
        let kind = if line.filled { "area" } else { "line" };
        write!(
            svg,
            r#"<path class="{kind} c{class}" d="{path}"><title>{}</title></path>"#,
            escape(&line.name)
        )?;
    }
    Ok(())
}
