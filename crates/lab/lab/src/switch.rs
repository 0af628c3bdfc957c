//! A learning switch: it chooses the ports for a frame by the frame's addresses and VLAN (IEEE
//! 802.1Q, clause 8, without spanning tree).
//!
//! Tags are kept. The switch learns addresses for each VLAN separately. Every port is in every
//! VLAN, so a flooded frame goes to all ports except the one at which it arrived.

use crate::time::Time;
use std::collections::HashMap;
use std::time::Duration;

/// Limit on the addresses that are known at the same time, in all VLANs together. Further addresses
/// are not learnt, and frames to them are flooded.
pub const MAX_STATIONS: usize = 8_192;

/// Default time after which a switch forgets an address that has sent no frame: the standard's
/// value.
pub const AGEING: Duration = Duration::from_secs(300);

/// Where a switch sends a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Egress {
    /// To this port.
    To(usize),
    /// To every port except the one at which the frame arrived.
    Flood,
    /// To no port: the station is at the port at which the frame arrived, or the destination is an
    /// address that bridges do not forward.
    Nowhere,
}

/// Counters of a switch, in packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Deserialize, serde::Serialize)]
pub struct SwitchCounters {
    /// Packets forwarded to the one port of their station.
    pub forwarded: u64,
    /// Packets flooded to all other ports, because they are multicasts or their station is unknown.
    pub flooded: u64,
    /// Packets not forwarded: their station is at the port at which they arrived, or their
    /// destination is an address that bridges do not forward.
    pub filtered: u64,
    /// Addresses learnt, at first or again at another port.
    pub learnt: u64,
    /// Packets whose source address was not learnt because the table was full.
    pub table_full: u64,
    /// Addresses in the table now, including expired ones that have not been removed yet.
    pub stations: u64,
}

/// A learning switch: its table of addresses, and its counters.
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
    /// Makes a switch with an empty table. It forgets stations that have sent nothing for `ageing`.
    #[must_use]
    pub fn new(ageing: Duration) -> Self {
        let stations = HashMap::with_capacity(MAX_STATIONS);
        Self { stations, ageing, swept: Time::ZERO, counters: SwitchCounters::default() }
    }

    /// Learns that `source` is at port `from`, unless `source` is a multicast address. Returns
    /// where a frame to `destination` goes. Frames without a tag are in VLAN 0.
    pub fn forward(
        &mut self,
        from: usize,
        vlan: u16,
        destination: [u8; 6],
        source: [u8; 6],
        now: Time,
    ) -> Egress {
        self.learn(from, vlan, source, now);
        let egress = self.egress(from, vlan, destination, now);
        match egress {
            Egress::To(_) => self.counters.forwarded += 1,
            Egress::Flood => self.counters.flooded += 1,
            Egress::Nowhere => self.counters.filtered += 1,
        }
        egress
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn counters(&self) -> SwitchCounters {
        SwitchCounters { stations: self.stations.len() as u64, ..self.counters }
    }

    fn egress(&self, from: usize, vlan: u16, destination: [u8; 6], now: Time) -> Egress {
        // Addresses that bridges do not forward: pause frames, spanning tree, link aggregation.
        if matches!(destination, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f]) {
            return Egress::Nowhere;
        }
        if destination[0] & 1 != 0 {
            return Egress::Flood;
        }
        match self.stations.get(&(vlan, destination)) {
            Some(station) if now.since(station.heard) <= self.ageing => {
                if station.port == from {
                    Egress::Nowhere
                } else {
                    Egress::To(station.port)
                }
            }
            _ => Egress::Flood,
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

    /// Forgets stations that have sent nothing for longer than the ageing time. This examines all
    /// stations, so it is done at most once per tenth of the ageing time.
    fn sweep(&mut self, now: Time) {
        if now.since(self.swept) * 10 >= self.ageing {
            self.swept = now;
            self.stations.retain(|_, station| now.since(station.heard) <= self.ageing);
        }
    }
}
