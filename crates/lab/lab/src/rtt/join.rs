//! Two halves make a round trip.

use crate::frame::Flow;
use crate::line::FlowCounters;
use std::collections::HashMap;
use std::time::Duration;

/// Protocols of which only one end asks: ICMP and `ICMPv6`.
const ECHOED: [u8; 2] = [1, 58];

/// What one direction knows.
#[derive(Clone, Copy, Debug)]
struct Known {
    samples: u64,
    half: Duration,
    /// None: nothing has come through yet, the first answer is still on the line.
    passage: Option<Duration>,
}

/// Finds the whole round trips, of flows of which both directions are known: those of all lines of
/// a box, which may have a flow more than once.
///
/// An echo of ICMP is asked for by one end only, so that there is one half. The rest of its round
/// trip is the line that the answer takes from the box, and the time on that is known.
pub fn join<'a>(flows: impl IntoIterator<Item = &'a mut (Flow, FlowCounters)>) {
    let mut flows: Vec<_> = flows.into_iter().collect();
    let mut known = HashMap::<Flow, Known>::with_capacity(flows.len());
    for (flow, counters) in flows.iter().map(|pair| &**pair) {
        let told = counters.round_trips;
        let half = Duration::from_nanos(told.smoothed_ns);
        let passage =
            (counters.left.segments > 0).then(|| Duration::from_nanos(counters.passage_ns));
        let one = Known { samples: told.samples, half, passage };
        // A copy for a mirror may have seen the answers first.
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
