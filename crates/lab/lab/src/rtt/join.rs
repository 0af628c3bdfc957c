//! Adds the two halves of a round trip.

use crate::frame::Flow;
use crate::line::FlowCounters;
use std::collections::HashMap;
use std::time::Duration;

/// Protocols in which only one end sends requests: ICMP and `ICMPv6`.
const ECHOED: [u8; 2] = [1, 58];

/// What is known of a flow from one of its two directions.
#[derive(Clone, Copy, Debug)]
struct Direction {
    samples: u64,
    half: Duration,
    /// Time that the last packet spent on the line. `None` if no packet has left the line yet.
    passage: Option<Duration>,
}

/// Computes the whole round trips of flows for which both directions are known. `flows` are those
/// of all lines of a box, and may contain a flow more than once.
///
/// Only one end requests ICMP echoes, so there is only one half. The rest of an echo's round trip
/// is the time that the reply spends on the line of the box, which is known.
pub fn join<'a>(flows: impl IntoIterator<Item = &'a mut (Flow, FlowCounters)>) {
    let mut flows: Vec<_> = flows.into_iter().collect();
    let mut known = HashMap::<Flow, Direction>::with_capacity(flows.len());
    for (flow, counters) in flows.iter().map(|pair| &**pair) {
        let round_trips = counters.round_trips;
        let half = Duration::from_nanos(round_trips.smoothed_ns);
        let passage =
            (counters.left.segments > 0).then(|| Duration::from_nanos(counters.passage_ns));
        let one = Direction { samples: round_trips.samples, half, passage };
        // Another line may have a mirrored copy of the flow. The line with the most samples counts.
        let known = known.entry(*flow).or_insert(one);
        if one.samples > known.samples {
            *known = one;
        }
    }
    for (flow, counters) in &mut flows {
        let halves =
            [*flow, flow.reversed()].map(|flow| known.get(&flow).filter(|known| known.samples > 0));
        let whole = match halves {
            [Some(one), Some(other)] if !ECHOED.contains(&flow.protocol) => {
                Some(one.half + other.half)
            }
            [Some(one), _] | [None, Some(one)] if ECHOED.contains(&flow.protocol) => {
                one.passage.map(|passage| one.half + passage)
            }
            _ => None,
        };
        counters.round_trips.whole_ns = whole.map(crate::time::nanos);
    }
}
