//! The load of each tablet, as a master reports it to the coordinator.

use sprat_log::Log;
use sprat_net::Nanos;
use sprat_wire::op::{Load, MAX_LOADS};
use sprat_wire::tablet::Tablet;
use std::collections::BTreeMap;
use std::time::Duration;

/// Interval between reports.
const PERIOD: Duration = Duration::from_secs(1);

/// Smoothing: the newest period contributes one part in this number to a reported rate.
const MEMORY: u64 = 8;

/// Requests to a tablet, counted separately for each half of its range. All requests to a tablet
/// that is a whole table count in the first half, because balancing divides no such tablet.
#[derive(Clone, Copy)]
pub(super) struct RequestCounts {
    /// First position of the second half.
    second: u64,
    halves: [u64; 2],
}

impl RequestCounts {
    pub(super) fn of(tablet: Tablet) -> Self {
        let second = tablet.range.parts(2).get(1).map_or(u64::MAX, |range| range.first);
        Self { second, halves: [0; 2] }
    }

    /// Counts a request for an object at this position of the tablet.
    #[inline]
    pub(super) fn count(&mut self, position: u64) {
        self.halves[usize::from(position >= self.second)] += 1;
    }
}

/// Requests per second to each tablet, for each half of its range.
#[derive(Default)]
pub(super) struct Loads {
    rates: BTreeMap<Tablet, [u64; 2]>,
    since: Nanos,
}

impl Loads {
    /// Returns the time at which the next report is due.
    pub(super) fn due(&self) -> Nanos {
        self.since + PERIOD
    }

    /// Returns the loads of the first [`MAX_LOADS`] of `tablets`, which are ascending. `requests`
    /// has the requests to each tablet since the last call, and is reset.
    pub(super) fn report(
        &mut self,
        now: Nanos,
        log: &Log,
        tablets: &[Tablet],
        requests: &mut [RequestCounts],
    ) -> Vec<Load> {
        assert_eq!(tablets.len(), requests.len());
        let elapsed = u64::try_from(now.since(self.since).as_millis()).unwrap_or(u64::MAX).max(1);
        self.since = now;
        let before = std::mem::take(&mut self.rates);
        let mut loads = Vec::with_capacity(tablets.len().min(MAX_LOADS));
        for of_table in tablets.chunk_by(|one, other| one.table == other.table) {
            let table = of_table[0].table;
            let bytes = u128::from(log.table_stats(table).bytes);
            let all: u128 = of_table.iter().map(width).sum();
            for tablet in of_table {
                let count = std::mem::take(&mut requests[self.rates.len()].halves);
                let last = count.map(|count| count.saturating_mul(1000) / elapsed);
                let before = before.get(tablet).copied().unwrap_or(last);
                let rate = [0, 1].map(|half| (before[half] * (MEMORY - 1) + last[half]) / MEMORY);
                self.rates.insert(*tablet, rate);
                if loads.len() < MAX_LOADS {
                    // Positions are hashes, so bytes are spread evenly over a table's range.
                    let bytes =
                        u64::try_from(bytes * width(tablet) / all).expect("a part of the whole");
                    let rate = [rate[0] + rate[1], rate[1]];
                    let [requests, second_half] =
                        rate.map(|rate| u32::try_from(rate).unwrap_or(u32::MAX).into());
                    let (table, bytes, range) = (table.into(), bytes.into(), tablet.range.into());
                    loads.push(Load { table, requests, second_half, bytes, range });
                }
            }
        }
        loads
    }
}

/// Returns how many positions a tablet covers, in units of 256, so that the product with bytes
/// fits.
fn width(tablet: &Tablet) -> u128 {
    u128::from((tablet.range.last - tablet.range.first) >> 8) + 1
}
