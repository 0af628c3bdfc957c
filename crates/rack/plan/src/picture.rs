//! Draws a plan as SVG: racks with their chassis, and the links between switches.

use crate::Plan;
use crate::capacity::RACK_UNITS;
use crate::layout::RackPosition;
use std::f64::consts::{PI, TAU};
use std::fmt::Write as _;

/// Limit on the switches of a picture. A picture of more would not be legible.
pub const MAX_DRAWN: usize = 256;

/// Sizes, in user units of the SVG.
const UNIT: f64 = 12.0;
const RACK_WIDTH: f64 = 120.0;
const GAP: f64 = 30.0;
const TOP: f64 = 70.0;
const CIRCLE: f64 = 240.0;

/// Fill colours of chassis with servers, and of switches without.
const SERVERS: &str = "#dbe9f6";
const NO_SERVERS: &str = "#fff3d6";

/// Colours of links by class: Okabe and Ito's palette, which colour-blind readers can distinguish.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"];

/// Returns the plan's picture as SVG, or `None` if it has more than [`MAX_DRAWN`] switches.
#[must_use]
pub fn picture(plan: &Plan) -> Option<String> {
    if plan.fabric.switches > MAX_DRAWN {
        return None;
    }
    let racks = plan.summary.capacity.racks;
    let left = racks as f64 * (RACK_WIDTH + GAP) + GAP;
    let (width, height) = (left + 2.0 * CIRCLE + 2.0 * GAP, TOP + RACK_UNITS as f64 * UNIT + GAP);
    let mut svg = Svg(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"10\">\n"
    ));
    svg.rectangle(0.0, 0.0, width, height, "#ffffff", "none");
    let has = &plan.summary.capacity;
    let network = &plan.summary.network;
    svg.text(GAP, 24.0, 16, "start", &plan.summary.name);
    let line = format!(
        "{} servers, {} cores, {} of memory, {} on disks; {}, {} hops at most, {} cables of {}",
        has.servers,
        has.cores,
        has.memory,
        has.disks,
        network.topology,
        network.diameter,
        network.cables,
        network.link_rate
    );
    svg.text(GAP, 42.0, 11, "start", &line);
    for rack in 0..racks {
        draw_rack(&mut svg, plan, rack);
    }
    draw_links(&mut svg, plan, left + CIRCLE, TOP + RACK_UNITS as f64 * UNIT / 2.0);
    svg.0.push_str("</svg>\n");
    Some(svg.0)
}

fn draw_rack(svg: &mut Svg, plan: &Plan, rack: usize) {
    let left = GAP + rack as f64 * (RACK_WIDTH + GAP);
    let floor = TOP + RACK_UNITS as f64 * UNIT;
    svg.text(left + RACK_WIDTH / 2.0, TOP - 6.0, 10, "middle", &format!("rack {}", rack + 1));
    svg.rectangle(left, TOP, RACK_WIDTH, RACK_UNITS as f64 * UNIT, "#f4f4f4", "#888888");
    let layout = plan.layout();
    let here = |chassis: usize| {
        Some((chassis, layout.position(chassis).filter(|position| position.rack == rack + 1)?))
    };
    for (chassis, RackPosition { unit, .. }) in (0..plan.fabric.switches).filter_map(here) {
        let height = plan.spec.chassis.height as f64 * UNIT;
        let y = floor - (unit - 1) as f64 * UNIT - height;
        let (fill, stroke, has) = match chassis < plan.fabric.stations {
            true => (SERVERS, "#0072b2", format!("{} servers", plan.spec.chassis.servers)),
            false => (NO_SERVERS, "#e69f00", "a switch".to_owned()),
        };
        svg.rectangle(left + 4.0, y + 1.0, RACK_WIDTH - 8.0, height - 2.0, fill, stroke);
        let label = format!("{}: {has}", plan.fabric.name(chassis));
        svg.text(left + RACK_WIDTH / 2.0, y + height / 2.0 + 3.5, 9, "middle", &label);
    }
}

fn draw_links(svg: &mut Svg, plan: &Plan, x: f64, y: f64) {
    let (fabric, place) = (&plan.fabric, places(plan));
    let at = |switch: usize| {
        (x + place[switch].0 * (CIRCLE - 30.0), y + place[switch].1 * (CIRCLE - 30.0))
    };
    let rate = plan.summary.network.link_rate;
    for link in &fabric.links {
        let width = 1.0 + 0.6 * (link.count - 1).min(6) as f64;
        let (from, to) = (fabric.name(link.a), fabric.name(link.b));
        let label = format!("{from} to {to}: {} x {rate}", link.count);
        svg.line(at(link.a), at(link.b), COLOURS[link.class % COLOURS.len()], width, &label);
    }
    let radius = (220.0 / fabric.switches as f64).clamp(3.0, 14.0);
    for switch in 0..fabric.switches {
        let (x, y) = at(switch);
        let fill = if switch < fabric.stations { SERVERS } else { NO_SERVERS };
        svg.circle(x, y, radius, fill);
        if radius > 7.0 {
            svg.text(x, y + 3.0, 8, "middle", &fabric.name(switch));
        }
    }
}

/// Returns the position of each switch, both coordinates from -1 to 1: chassis are on a circle, and
/// a chassis that is joined to all others is in its centre.
fn places(plan: &Plan) -> Vec<(f64, f64)> {
    let fabric = &plan.fabric;
    let circle = |number: usize, of: usize, radius: f64| {
        let angle = TAU * number as f64 / of.max(1) as f64 - PI / 2.0;
        (radius * angle.cos(), radius * angle.sin())
    };
    let centre = fabric.stations > 2
        && fabric.neighbours(0).len() == fabric.switches - 1
        && fabric.links.len() == fabric.switches - 1;
    let mut places: Vec<(f64, f64)> = match centre {
        true => std::iter::once((0.0, 0.0))
            .chain((1..fabric.stations).map(|leaf| circle(leaf - 1, fabric.stations - 1, 1.0)))
            .collect(),
        false => {
            (0..fabric.stations).map(|chassis| circle(chassis, fabric.stations, 1.0)).collect()
        }
    };
    // Switches without servers that have a neighbour with servers go on the outer circle; the
    // others go on the inner one.
    let without = fabric.stations..fabric.switches;
    let stage = |switch: usize| {
        let nearest = |neighbour: &crate::fabric::Neighbour| neighbour.switch < fabric.stations;
        usize::from(!fabric.neighbours(switch).iter().any(nearest))
    };
    let inner: Vec<usize> = without.clone().filter(|switch| stage(*switch) == 1).collect();
    let outer: Vec<usize> = without.clone().filter(|switch| stage(*switch) == 0).collect();
    for switch in without {
        let (ring, radius) = if stage(switch) == 1 { (&inner, 0.25) } else { (&outer, 0.62) };
        let number = ring.iter().position(|one| *one == switch).unwrap_or(0);
        places.push(circle(number, ring.len(), radius));
    }
    places
}

struct Svg(String);

impl Svg {
    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        self.0.write_fmt(element).expect("a string takes all");
    }

    fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str, stroke: &str) {
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{fill}\" stroke=\"{stroke}\"/>\n"
        ));
    }

    fn circle(&mut self, x: f64, y: f64, radius: f64, fill: &str) {
        self.add(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"{fill}\" \
             stroke=\"#333333\"/>\n"
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64, label: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.add(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" \
             stroke-width=\"{width:.1}\" \
             stroke-opacity=\"0.7\"><title>{label}</title></line>\n"
        ));
    }

    /// Adds `text` without escaping it: the texts of this crate contain no character that XML
    /// escapes.
    fn text(&mut self, x: f64, y: f64, size: usize, anchor: &str, text: &str) {
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" \
             text-anchor=\"{anchor}\">{text}</text>\n"
        ));
    }
}
