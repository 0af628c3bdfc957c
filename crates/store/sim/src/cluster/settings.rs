//! The parameters of a cluster's history, drawn from its seed.

use crate::random::Random;
use crate::settings::Settings as Work;
use sprat_net::HubOptions;
use sprat_wire::SEGLET_BYTES;
use std::time::Duration;

/// Leases are safe with a clock drift below this, in parts per million.
const WITHIN: u64 = 1_000_000 / sprat_store::coordinator::DRIFT as u64;
/// A clock drift with which leases are not safe, in parts per million.
const BEYOND: u64 = 300_000;

/// The parameters of a history.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of servers.
    pub servers: usize,
    /// Number of coordinators. A single coordinator has its metadata on its own disk.
    pub coordinators: usize,
    /// Memory of each log, in bytes.
    pub memory: usize,
    /// Bytes of a segment.
    pub segment_bytes: usize,
    /// The largest drift of a node's clock, fast or slow, in parts per million.
    pub drift: u64,
    /// Number of random faults, without the crash that every history has.
    pub faults: u64,
    /// The clients' work.
    pub work: Work,
}

impl Settings {
    /// Sets the number of operations, and changes faults and time in proportion.
    #[must_use]
    pub fn lengthened(self, operations: u64) -> Self {
        let times = |number: u64| number * operations / self.work.operations;
        let micros = u64::try_from(self.work.span.as_micros()).expect("seconds");
        let span = Duration::from_micros(times(micros));
        Self {
            faults: times(self.faults).max(1),
            work: Work { operations, span, ..self.work },
            ..self
        }
    }

    /// In every eighth history, lets clocks drift further than leases allow.
    #[must_use]
    pub fn with_clocks(self, seed: u64) -> Self {
        if seed / 2 % 8 == 4 { Self { drift: BEYOND, ..self } } else { self }
    }

    /// Returns whether clocks drift further than leases allow. Then a server may still serve a
    /// tablet that another server serves already, so that reads may be stale. Acknowledged writes
    /// must still exist exactly once, whatever the clocks show.
    #[must_use]
    pub fn is_beyond(&self) -> bool {
        self.drift >= WITHIN
    }

    /// Draws the settings of a seed.
    pub fn draw(random: &mut Random) -> Self {
        let work = Work::draw(random);
        let seglets = usize::try_from(random.between(5, 8)).expect("small");
        Self {
            servers: usize::try_from(
                random.between(u64::from(super::COPIES) + 1, u64::from(super::COPIES) + 4),
            )
            .expect("few"),
            coordinators: usize::try_from(random.between(1, 3)).expect("few"),
            memory: 4 << 20,
            segment_bytes: seglets * SEGLET_BYTES,
            drift: random.below(WITHIN),
            faults: random.between(4, 12),
            work: Work {
                ballast: 0,
                span: random.micros(1_000_000, 5_000_000),
                operations: random.between(200, 500),
                tables: usize::try_from(random.between(1, 4)).expect("few"),
                longest_value: work.longest_value.min(64 << 10),
                usual_value: work.usual_value.min(16 << 10),
                network: HubOptions { reliable: false, ..work.network },
                ..work
            },
        }
    }
}
