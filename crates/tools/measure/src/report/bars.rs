//! Stacked bars as inline SVG. They show the parts of a whole.

use std::fmt::Write;

use super::svg::{Axis, COLOURS, WIDTH};
use sprat_units::html::escape;

/// The height of a bar, and of a bar with the space below it, in SVG units.
const BAR: f64 = 20.0;
const STEP: f64 = 28.0;

const LEFT: f64 = 110.0;
const RIGHT: f64 = 34.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 44.0;

/// A bar: a whole and its parts, in drawing order.
#[derive(Clone, Debug, PartialEq)]
pub struct StackedBar {
    /// The bar's name, shown to its left.
    pub name: String,
    /// The parts: an index into the chart's kinds, and a length in the axis' unit. Negative and
    /// non-finite lengths count as 0.
    pub parts: Vec<(usize, f64)>,
}

/// Draws horizontal bars over one linear axis that begins at 0, as an `<svg>` element followed by a
/// legend of `kinds` as an HTML list.
#[must_use]
pub fn stacked(
    title: &str,
    kinds: &[&str],
    bars: &[StackedBar],
    label: impl Fn(f64) -> String,
) -> String {
    let length = |part: f64| if part.is_finite() { part.max(0.0) } else { 0.0 };
    let total = |bar: &StackedBar| bar.parts.iter().map(|part| length(part.1)).sum::<f64>();
    let axis = Axis::linear(title, bars.iter().map(total).fold(0.0, f64::max), &label);
    let bottom = TOP + STEP * bars.len() as f64;
    let height = bottom + BOTTOM;
    let across = |at: f64| LEFT + at / axis.to * (WIDTH - RIGHT - LEFT);
    let mut svg = format!(
        r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{}">"#,
        escape(title)
    );
    let mut add =
        |text: std::fmt::Arguments<'_>| svg.write_fmt(text).expect("a string takes every write");
    for tick in &axis.ticks {
        let (at, label) = (across(tick.at), escape(&tick.label));
        add(format_args!(r#"<path class="grid" d="M{at:.1} {TOP}V{bottom}"/>"#));
        add(format_args!(
            r#"<text x="{at:.1}" y="{}" text-anchor="middle">{label}</text>"#,
            bottom + 18.0
        ));
    }
    let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
    let name = escape(title);
    add(format_args!(
        r#"<text class="title" x="{middle}" y="{}" text-anchor="middle">{name}</text>"#,
        height - 6.0
    ));
    for (row, bar) in bars.iter().enumerate() {
        let y = TOP + STEP * row as f64 + (STEP - BAR) / 2.0;
        let name = escape(&bar.name);
        add(format_args!(
            r#"<text x="{}" y="{:.1}" text-anchor="end">{name}</text>"#,
            LEFT - 8.0,
            y + BAR - 6.0
        ));
        let mut from = 0.0;
        for &(kind, part) in &bar.parts {
            let to = from + length(part);
            let (x, width) = (across(from), across(to) - across(from));
            let tooltip =
                escape(&format!("{}: {}", kinds.get(kind).unwrap_or(&""), label(length(part))));
            let class = kind % COLOURS;
            add(format_args!(
                r#"<rect class="c{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{BAR}"><title>{tooltip}</title></rect>"#
            ));
            from = to;
        }
    }
    svg.push_str(r#"</svg><ul class="legend">"#);
    for (kind, name) in kinds.iter().enumerate() {
        let item = write!(svg, r#"<li><i class="c{}"></i>{}</li>"#, kind % COLOURS, escape(name));
        item.expect("a string takes every write");
    }
    svg.push_str("</ul>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start and width of each rectangle.
    fn rectangles(svg: &str) -> Vec<(f64, f64)> {
        let number = |text: &str, name: &str| -> f64 {
            let rest = text.split_once(&format!("{name}=\"")).expect("an attribute").1;
            rest.split('"').next().expect("a value").parse().expect("a number")
        };
        svg.split("<rect").skip(1).map(|one| (number(one, " x"), number(one, " width"))).collect()
    }

    #[test]
    fn parts_follow_one_another_and_keep_their_shares() {
        let bars = [
            StackedBar { name: "read".to_owned(), parts: vec![(0, 1.0), (1, 3.0), (0, 1.0)] },
            StackedBar {
                name: "<ping>".to_owned(),
                parts: vec![(1, 2.0), (0, -1.0), (0, f64::NAN)],
            },
        ];
        let svg = stacked("us", &["code", "way & back"], &bars, |us| format!("{us} us"));
        let found = rectangles(&svg);
        let [a, b, c, ping, none, odd] = found[..] else { panic!("{found:?}") };
        let close = |a: f64, b: f64| (a - b).abs() < 0.3;
        assert!(close(a.0 + a.1, b.0) && close(b.0 + b.1, c.0), "{found:?}");
        assert!(close(b.1, 3.0 * a.1) && close(a.1, c.1) && close(ping.1, 2.0 * a.1), "{found:?}");
        assert!(close(a.0, ping.0) && close(none.1, 0.0) && close(odd.1, 0.0), "{found:?}");
        assert!(
            svg.contains("&lt;ping&gt;")
                && svg.contains("way &amp; back")
                && !svg.contains("<ping>")
        );
    }

    #[test]
    fn no_bars_are_an_empty_drawing() {
        assert!(rectangles(&stacked("us", &[], &[], |us| us.to_string())).is_empty());
    }
}
