//! Finds steps ("cliffs") in the tail of a distribution: latencies that many operations have, while
//! hardly any operation has a slightly lower one.
//!
//! On logarithmic axes the share of operations beyond a latency falls smoothly if delays have many
//! small causes. A single cause with a fixed duration (a timer interrupt, a time slice, a
//! retransmission) makes a step: the curve is flat up to that duration, then drops. In the density
//! over the logarithm of the latency such a step is a hill. [`find`] searches the tail for hills
//! that rise above the preceding valley by more than chance explains.

use serde::{Deserialize, Serialize};

use sprat_measure::hist::Latencies;

/// Bars of the histogram per decade: each is 15 % wide, about the width of a step.
const BARS_PER_DECADE: f64 = 16.0;

/// The tail begins at this multiple of the median latency.
pub const TAIL_FROM_MEDIANS: f64 = 1.5;

/// Lower limit on the operations of a step.
pub const MIN_COUNT: u64 = 20;

/// A hill is higher than the preceding valley by at least this many standard deviations. There are
/// some hundred bars: with three standard deviations, every second smooth tail would have a hill.
const SIGNIFICANT: f64 = 5.0;

/// A hill is at least this many times as high as the preceding valley.
const RISE: f64 = 1.5;

/// A hill ends at the first bar whose height is at most the hill's height divided by this number,
/// or at the lowest bar before another hill begins. The search for further hills continues at that
/// bar.
const FOOT: u64 = 16;

/// Limit on the steps that are returned. If there are more, the largest are returned.
pub const MAX_CLIFFS: usize = 12;

/// A step in the tail.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cliff {
    /// Position of the step: the median latency of its operations, in ns.
    pub at_ns: u64,
    /// The smallest latency in the step, above the preceding valley, in ns.
    pub from_ns: u64,
    /// The largest latency in the step, in ns.
    pub to_ns: u64,
    /// Number of operations in the step.
    pub count: u64,
    /// The step's share of all operations, 0 to 1.
    pub share: f64,
}

/// Returns the steps in the tail, ordered by latency.
#[must_use]
pub fn find(latencies: &Latencies) -> Vec<Cliff> {
    let counts = latencies.counts();
    let total = latencies.count();
    let tail = latencies.quantile(0.5) as f64 * TAIL_FROM_MEDIANS;
    let (Some(&(first, _)), Some(&(last, _))) = (counts.first(), counts.last()) else {
        return Vec::new();
    };
    let (low, high) = (bar_of(first), bar_of(last));
    let mut bars = vec![0_u64; high - low + 1];
    for &(ns, count) in &counts {
        bars[bar_of(ns) - low] += count;
    }
    let mut cliffs = Vec::new();
    for [valley, end] in hills(&bars) {
        let within = |ns: u64| (valley + low + 1..=end + low).contains(&bar_of(ns));
        let hill: Vec<(u64, u64)> = counts.iter().copied().filter(|&(ns, _)| within(ns)).collect();
        let count = hill.iter().map(|&(_, count)| count).sum();
        let at_ns = median(&hill, count);
        if count >= MIN_COUNT && at_ns as f64 >= tail {
            let (from_ns, to_ns) =
                (hill.first().map_or(0, |one| one.0), hill.last().map_or(0, |one| one.0));
            cliffs.push(Cliff {
                at_ns,
                from_ns,
                to_ns,
                count,
                share: count as f64 / total.max(1) as f64,
            });
        }
    }
    cliffs.sort_by_key(|cliff| std::cmp::Reverse(cliff.count));
    cliffs.truncate(MAX_CLIFFS);
    cliffs.sort_by_key(|cliff| cliff.at_ns);
    cliffs
}

/// Returns the hills that follow the highest one. Each is given by two indices: that of the lowest
/// bar before the hill, and that of the last bar of the hill.
fn hills(bars: &[u64]) -> Vec<[usize; 2]> {
    let Some(main) = (0..bars.len()).max_by_key(|&at| (bars[at], std::cmp::Reverse(at))) else {
        return Vec::new();
    };
    let mut hills = Vec::new();
    // The valley is the lowest bar since the last hill. A bar that stands out from it begins a
    // hill.
    let (mut valley, mut top) = (main, None);
    let mut at = main + 1;
    while at < bars.len() {
        match top {
            None if bars[at] <= bars[valley] => valley = at,
            None if stands_out(bars[at], bars[valley]) => top = Some(at),
            None => {}
            Some(highest) if bars[at] > bars[highest] => top = Some(at),
            Some(highest) if stands_out(bars[highest], bars[at]) => {
                at = foot(bars, at, bars[highest] / FOOT);
                hills.push([valley, at]);
                (valley, top) = (at, None);
            }
            Some(_) => {}
        }
        at += 1;
    }
    if top.is_some() {
        hills.push([valley, bars.len() - 1]);
    }
    hills
}

/// Returns the end of a hill, searching from a bar on its falling side: the first bar that is not
/// higher than `low`, or the lowest bar before another hill begins.
fn foot(bars: &[u64], from: usize, low: u64) -> usize {
    let mut lowest = from;
    for at in from..bars.len() {
        if bars[at] <= bars[lowest] {
            lowest = at;
        } else if stands_out(bars[at], bars[lowest]) {
            break;
        }
        if bars[lowest] <= low {
            break;
        }
    }
    lowest
}

fn stands_out(hill: u64, valley: u64) -> bool {
    let (hill, valley) = (hill as f64, valley as f64);
    hill >= valley * RISE && hill - valley >= SIGNIFICANT * (hill + valley).sqrt()
}

fn median(hill: &[(u64, u64)], count: u64) -> u64 {
    let mut seen = 0;
    let middle = hill.iter().find(|&&(_, count_here)| {
        seen += count_here;
        seen * 2 >= count
    });
    middle.map_or(0, |&(ns, _)| ns)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "16 log10 of a u64 from 1 on is 0 to 309"
)]
fn bar_of(ns: u64) -> usize {
    ((ns.max(1) as f64).log10() * BARS_PER_DECADE) as usize
}
