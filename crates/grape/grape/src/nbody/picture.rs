//! Draws bodies as SVG.

use super::bodies::Bodies;
use std::fmt::Write as _;

/// Width of the picture, and its height without the title, in SVG units.
const SIDE: f64 = 800.0;

/// Limit on the bodies that are drawn. If there are more, an evenly spaced selection is drawn.
const MAX_DRAWN: usize = 20_000;

/// Share of the bodies that are within the frame.
const WITHIN: f64 = 0.95;

/// Returns a picture of the bodies, seen along z, with a title below. The area of a dot is
/// proportional to its mass, within limits. Slow bodies are red, fast ones blue. Bodies outside of
/// the frame are left out.
#[must_use]
pub fn picture(bodies: &Bodies, title: &str) -> String {
    let half = frame(bodies);
    let mean = bodies.mass().iter().sum::<f64>() / bodies.len() as f64;
    let every = bodies.len().div_ceil(MAX_DRAWN);
    let drawn: Vec<usize> = (0..bodies.len()).step_by(every).collect();
    let speed = |body: usize| {
        bodies.velocity.iter().map(|axis| axis[body] * axis[body]).sum::<f64>().sqrt()
    };
    let fastest = drawn.iter().map(|&body| speed(body)).fold(f64::MIN_POSITIVE, f64::max);
    let mut svg = String::new();
    let high = SIDE + 40.0;
    let _ = writeln!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE} {high}" font-family="sans-serif" font-size="16">
<rect width="{SIDE}" height="{high}" fill="#0b0e14"/>
<g fill-opacity="0.75">"##
    );
    for body in drawn {
        let place = |axis: usize| SIDE / 2.0 * (1.0 + bodies.position[axis][body] / half);
        let (x, y) = (place(0), SIDE - place(1));
        if !(0.0..=SIDE).contains(&x) || !(0.0..=SIDE).contains(&y) {
            continue;
        }
        let radius = if mean > 0.0 {
            (bodies.mass()[body] / mean).max(0.0).sqrt().clamp(0.5, 6.0) * 1.5
        } else {
            1.5
        };
        let hue = 10.0 + 210.0 * (speed(body) / fastest).sqrt();
        let _ = writeln!(
            svg,
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius:.1}" fill="hsl({hue:.0},80%,65%)"/>"#
        );
    }
    // The length of the scale bar: a power of ten between a tenth of half the frame and half the
    // frame.
    let length = 10.0_f64.powf(half.log10().floor());
    let width = SIDE / 2.0 * length / half;
    let (begin, end, at) = (SIDE - 20.0 - width, SIDE - 20.0, SIDE + 14.0);
    let title: String = title.chars().filter(|char| !char.is_control()).collect();
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        r##"</g>
<text x="20" y="{text}" fill="#c8d0e0">{title}</text>
<path d="M{begin:.1} {at}H{end:.1}" stroke="#c8d0e0" stroke-width="2"/>
<text x="{end:.1}" y="{below}" fill="#c8d0e0" text-anchor="end">{length}</text>
</svg>"##,
        text = SIDE + 24.0,
        below = SIDE + 34.0,
    );
    svg
}

/// Returns half the width of the frame, which contains most of the bodies.
fn frame(bodies: &Bodies) -> f64 {
    let places = bodies.position[0].iter().zip(&bodies.position[1]);
    let mut reach: Vec<f64> = places.map(|(x, y)| x.abs().max(y.abs())).collect();
    reach.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length"
    )]
    let last = ((reach.len() - 1) as f64 * WITHIN) as usize;
    reach[last].max(f64::MIN_POSITIVE * 1e10) * 1.1
}
