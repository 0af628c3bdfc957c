//! A learning switch: which ports a frame goes to, by its addresses and VLAN (IEEE 802.1Q, clause
//! 8, without spanning tree).
//!
//! Tags are kept: a VLAN has a table of its own, and is flooded to every port.

use crate::time::Time;
use std::collections::HashMap;
use std::time::Duration;

/// Most addresses that are known at once. An address beyond that is not learnt, and frames to it
/// are flooded.
pub const MAX_STATIONS: usize = 8_192;

/// How long an address is remembered after its last frame, unless told: the standard's own choice.
pub const AGEING: Duration = Duration::from_secs(300);

/// Where a frame goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// To this port.
    To(usize),
    /// To every port but that it came from.
    Flood,
    /// Nowhere: its station is where it came from, or its address is one that switches do not pass
    /// on.
    Nowhere,
}

/// What a switch counts, in packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Deserialize, serde::Serialize)]
pub struct SwitchCounters {
    /// Went to the one port of their station.
    pub forwarded: u64,
    /// Went to all others: for many, or for a station that is not known.
    pub flooded: u64,
    /// Stayed: their station is on the port that they came from, or nobody may pass them on.
    pub filtered: u64,
    /// Addresses learnt, or learnt anew on another port.
    pub learnt: u64,
    /// Addresses not learnt, for the table was full.
    pub table_full: u64,
    /// Addresses known now.
    pub stations: u64,
}

/// The table of a switch.
#[derive(Debug)]
pub struct Switch {
    stations: HashMap<(u16, [u8; 6]), Station>,
    ageing: Duration,
    swept: Time,
    counters: SwitchCounters,
}

#[derive(Clone, Copy, Debug)]
struct Station {
    port: usize,
    heard: Time,
}

impl Switch {
    /// Knows nobody, and forgets stations not heard for `ageing`.
    #[must_use]
    pub fn new(ageing: Duration) -> Self {
        let stations = HashMap::with_capacity(MAX_STATIONS);
        Self { stations, ageing, swept: Time::ZERO, counters: SwitchCounters::default() }
    }

    /// Learns where `source` is, and says where a frame to `destination` goes. Frames without a
    /// VLAN are of VLAN 0.
    pub fn pass(
        &mut self,
        from: usize,
        vlan: u16,
        destination: [u8; 6],
        source: [u8; 6],
        now: Time,
    ) -> Way {
        self.learn(from, vlan, source, now);
        let way = self.way(from, vlan, destination, now);
        match way {
            Way::To(_) => self.counters.forwarded += 1,
            Way::Flood => self.counters.flooded += 1,
            Way::Nowhere => self.counters.filtered += 1,
        }
        way
    }

    /// What it did so far.
    #[must_use]
    pub fn counters(&self) -> SwitchCounters {
        SwitchCounters { stations: self.stations.len() as u64, ..self.counters }
    }

    fn way(&self, from: usize, vlan: u16, destination: [u8; 6], now: Time) -> Way {
        // Addresses that end at every bridge: pause frames, spanning tree, link aggregation.
        if matches!(destination, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f]) {
            return Way::Nowhere;
        }
        if destination[0] & 1 != 0 {
            return Way::Flood;
        }
        match self.stations.get(&(vlan, destination)) {
            Some(station) if now.since(station.heard) <= self.ageing => {
                if station.port == from {
                    Way::Nowhere
                } else {
                    Way::To(station.port)
                }
            }
            _ => Way::Flood,
        }
    }

    fn learn(&mut self, from: usize, vlan: u16, source: [u8; 6], now: Time) {
        if source[0] & 1 != 0 {
            return; // a group sends nothing
        }
        if let Some(station) = self.stations.get_mut(&(vlan, source)) {
            self.counters.learnt += u64::from(station.port != from);
            *station = Station { port: from, heard: now };
            return;
        }
        if self.stations.len() >= MAX_STATIONS {
            self.sweep(now);
        }
        if self.stations.len() >= MAX_STATIONS {
            self.counters.table_full += 1;
            return;
        }
        self.counters.learnt += 1;
        self.stations.insert((vlan, source), Station { port: from, heard: now });
    }

    /// Forgets whom nobody has heard for long. At most once in a tenth of that time: it looks at
    /// all.
    fn sweep(&mut self, now: Time) {
        if now.since(self.swept) * 10 >= self.ageing {
            self.swept = now;
            self.stations.retain(|_, station| now.since(station.heard) <= self.ageing);
        }
    }
}
