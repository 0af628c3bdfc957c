//! Where things stand, what they are called, and what leads where: places in racks, names,
//! addresses, cables.

use crate::capacity::RACK_UNITS;
use crate::fabric::Fabric;
use crate::spec::Spec;
use ipnet::Ipv4Net;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses of a chassis that are no server's: the network's own, the switch's, and the last,
/// which means all.
const RESERVED: usize = 3;

/// How things are laid out.
#[derive(Clone, Debug)]
pub struct Layout<'a> {
    spec: &'a Spec,
    fabric: &'a Fabric,
    /// Addresses of each server: its own, and those for instances.
    per_server: usize,
    /// Instances on each server.
    on_server: usize,
    /// Length of the IPv4 prefix of a chassis.
    prefix: u8,
    /// Addresses of instances, server by server; none: each has the one after its server's.
    listed: &'a [Ipv4Addr],
}

/// A place in a rack.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// The rack, from 1.
    pub rack: usize,
    /// The lowest unit, from 1 at the floor.
    pub unit: usize,
}

/// A server, or an instance on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its chassis, by number.
    pub chassis: usize,
    /// Its server in the chassis, from 1.
    pub slot: usize,
    /// Its IPv4 address, with the length of its network's prefix.
    pub v4: (Ipv4Addr, u8),
    /// Its IPv6 address, in a /64.
    pub v6: Ipv6Addr,
    /// The switch's address, by which other chassis are reached.
    pub gateway: IpAddr,
}

/// An end of a cable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct End {
    /// What it is in: a server, a chassis, a switch.
    pub name: String,
    /// Its port: `2`, or `2/3` where that is the third part of a split one.
    pub port: String,
    /// Where that stands.
    pub place: Option<Place>,
}

/// A cable.
#[derive(Clone, Debug, PartialEq)]
pub struct Cable {
    /// One end.
    pub from: End,
    /// The other.
    pub to: End,
    /// What it carries, b/s.
    pub rate: f64,
}

/// A rack that cannot be laid out.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LayoutError {
    /// Chassis have too few ports.
    #[error(
        "{name} needs {needed} uplinks, a chassis has {has}{}",
        if *.split { ": `fabric.split = true` makes more of them of each" } else { "" }
    )]
    Uplinks {
        /// One that has too few.
        name: String,
        /// What it needs.
        needed: usize,
        /// What there is.
        has: usize,
        /// Whether splitting would do.
        split: bool,
    },
    /// There are too few addresses.
    #[error(
        "addresses.v4 = {v4}: {needed} chassis with a /{prefix} each do not fit into it; 10.0.0.0/8 is the largest private network"
    )]
    Addresses {
        /// What was given.
        v4: ipnet::Ipv4Net,
        /// Chassis.
        needed: usize,
        /// What each needs.
        prefix: u8,
    },
    /// A list of instances' addresses is too short.
    #[error("cassandra.addresses: {has} are listed, and there are {needed} instances")]
    Few {
        /// Listed.
        has: usize,
        /// Instances.
        needed: usize,
    },
    /// An address in that list cannot be an instance's.
    #[error("cassandra.addresses: {address} {why}")]
    Listed {
        /// It.
        address: Ipv4Addr,
        /// Why.
        why: String,
    },
    /// There are too few networks.
    #[error("addresses.v6 = {v6}: {needed} chassis with a /64 each do not fit into it")]
    Networks {
        /// What was given.
        v6: ipnet::Ipv6Net,
        /// Chassis.
        needed: usize,
    },
}

impl<'a> Layout<'a> {
    /// Lays out.
    ///
    /// # Errors
    /// Ports or addresses are too few.
    pub fn new(spec: &'a Spec, fabric: &'a Fabric) -> Result<Self, LayoutError> {
        let chassis = &spec.chassis;
        let has = chassis.uplinks * if spec.fabric.split { chassis.split } else { 1 };
        for station in 0..fabric.stations {
            let needed = fabric.cables(station);
            if needed > has {
                let split = !spec.fabric.split && needed <= chassis.uplinks * chassis.split;
                return Err(LayoutError::Uplinks {
                    name: fabric.name(station),
                    needed,
                    has,
                    split,
                });
            }
        }
        let on_server = spec.cassandra.as_ref().map_or(0, |cassandra| cassandra.instances);
        let listed = spec.cassandra.as_ref().map_or(&[][..], |cassandra| &cassandra.addresses.0);
        let per_server = 1 + spec.addresses.instances.unwrap_or(on_server);
        let servers = spec.addresses.servers.unwrap_or(chassis.servers);
        let each = if listed.is_empty() { per_server } else { 1 };
        let addresses = (servers * each + RESERVED).next_power_of_two();
        let mut prefix = 32 - u8::try_from(addresses.trailing_zeros()).unwrap_or(32);
        if !listed.is_empty() && fabric.stations == 1 {
            prefix = prefix.min(spec.addresses.v4.prefix_len()); // all of it is one network
        }
        let (v4, v6, needed) =
            (spec.addresses.v4.trunc(), spec.addresses.v6.trunc(), fabric.stations);
        let room = |networks: u32| 1_u64.checked_shl(networks).unwrap_or(u64::MAX);
        if prefix < v4.prefix_len() || room(u32::from(prefix - v4.prefix_len())) < needed as u64 {
            return Err(LayoutError::Addresses { v4, needed, prefix });
        }
        if v6.prefix_len() > 64 || room(u32::from(64 - v6.prefix_len())) < needed as u64 {
            return Err(LayoutError::Networks { v6, needed });
        }
        let layout = Self { spec, fabric, per_server, on_server, prefix, listed };
        layout.check_listed()?;
        Ok(layout)
    }

    /// Sees that each instance has an address of its own in the list, in its chassis's network.
    fn check_listed(&self) -> Result<(), LayoutError> {
        let needed = self.fabric.stations * self.spec.chassis.servers * self.on_server;
        if self.listed.is_empty() || needed == 0 {
            return Ok(());
        }
        if self.listed.len() < needed {
            return Err(LayoutError::Few { has: self.listed.len(), needed });
        }
        let mut seen = HashSet::new();
        for host in self.hosts() {
            let (address, prefix) = host.v4;
            let wrong = |why: String| Err(LayoutError::Listed { address, why });
            let network = Ipv4Net::new_assert(self.network(host.chassis), prefix);
            if !network.contains(&address)
                || [network.network(), network.broadcast()].contains(&address)
            {
                return wrong(format!("is {}'s, and not in its network, {network}", host.name));
            }
            if IpAddr::V4(address) == host.gateway || !seen.insert(address) {
                return wrong(format!(
                    "is {}'s, and another's too: a server's, the switch's or an instance's",
                    host.name
                ));
            }
        }
        Ok(())
    }

    /// The first address of a chassis's network.
    fn network(&self, chassis: usize) -> Ipv4Addr {
        let base = u32::from(self.spec.addresses.v4.trunc().addr());
        Ipv4Addr::from(base + (u32::try_from(chassis).unwrap_or(u32::MAX) << (32 - self.prefix)))
    }

    /// Where a chassis stands: racks are filled from the floor, with chassis first and switches
    /// without servers after them.
    #[must_use]
    pub fn place(&self, switch: usize) -> Option<Place> {
        let height = self.spec.chassis.height;
        let in_rack = RACK_UNITS / height;
        (switch < self.fabric.switches && in_rack > 0)
            .then(|| Place { rack: switch / in_rack + 1, unit: switch % in_rack * height + 1 })
    }

    /// A server, by its chassis and its number in it from 0.
    #[must_use]
    pub fn server(&self, chassis: usize, slot: usize) -> Host {
        self.host(chassis, slot, 0)
    }

    /// An instance on a server, from 0.
    #[must_use]
    pub fn instance(&self, chassis: usize, slot: usize, instance: usize) -> Host {
        assert!(instance < self.on_server, "an instance that there is");
        self.host(chassis, slot, instance + 1)
    }

    fn host(&self, chassis: usize, slot: usize, part: usize) -> Host {
        assert!(
            chassis < self.fabric.stations && slot < self.spec.chassis.servers,
            "a server that there is"
        );
        let name = match part {
            0 => format!("c{chassis}-n{}", slot + 1),
            part => format!("c{chassis}-n{}-i{part}", slot + 1),
        };
        let network = u32::from(self.network(chassis));
        let offset =
            |per_server: usize| u32::try_from(2 + slot * per_server + part).unwrap_or(u32::MAX);
        let number = (chassis * self.spec.chassis.servers + slot) * self.on_server;
        let v4 = match part.checked_sub(1) {
            Some(instance) if !self.listed.is_empty() => self.listed[number + instance],
            _ => Ipv4Addr::from(
                network + offset(if self.listed.is_empty() { self.per_server } else { 1 }),
            ),
        };
        let wide = u128::from(self.spec.addresses.v6.trunc().addr()) + ((chassis as u128) << 64);
        Host {
            name,
            chassis,
            slot: slot + 1,
            v4: (v4, self.prefix),
            v6: Ipv6Addr::from(wide + u128::from(offset(self.per_server))),
            gateway: IpAddr::V4(Ipv4Addr::from(network + 1)),
        }
    }

    /// All servers, and after each its instances.
    pub fn hosts(&self) -> impl Iterator<Item = Host> {
        let servers = self.spec.chassis.servers;
        let each = move |chassis| (0..servers).map(move |slot| (chassis, slot));
        (0..self.fabric.stations).flat_map(each).flat_map(move |(chassis, slot)| {
            (0..=self.on_server).map(move |part| self.host(chassis, slot, part))
        })
    }

    /// All cables: between switches, and where there is no backplane from servers to their switch.
    #[must_use]
    pub fn cables(&self) -> Vec<Cable> {
        let mut used = vec![0; self.fabric.switches];
        let mut cables = Vec::new();
        let rate = link_rate(self.spec);
        for link in &self.fabric.links {
            for _ in 0..link.count {
                let mut end = |switch: usize| {
                    used[switch] += 1;
                    let port = self.port(switch, used[switch] - 1);
                    End { name: self.fabric.name(switch), port, place: self.place(switch) }
                };
                cables.push(Cable { from: end(link.a), to: end(link.b), rate });
            }
        }
        if !self.spec.chassis.backplane {
            for chassis in 0..self.fabric.stations {
                let ports = self.spec.server.ports;
                for (slot, port) in (0..self.spec.chassis.servers)
                    .flat_map(|slot| (0..ports).map(move |port| (slot, port)))
                {
                    let place = self.place(chassis);
                    let name = self.server(chassis, slot).name;
                    let from = End { name, port: (port + 1).to_string(), place };
                    let down = format!("d{}", slot * ports + port + 1);
                    let to = End { name: self.fabric.name(chassis), port: down, place };
                    cables.push(Cable { from, to, rate: self.spec.server.port_rate.0 });
                }
            }
        }
        cables
    }

    /// A switch's port by how many come before it.
    fn port(&self, switch: usize, number: usize) -> String {
        let split = self.spec.chassis.split;
        if self.spec.fabric.split && switch < self.fabric.stations {
            format!("{}/{}", number / split + 1, number % split + 1)
        } else {
            (number + 1).to_string()
        }
    }
}

/// What a cable between switches carries, b/s: an uplink, or a part of it.
#[must_use]
pub fn link_rate(spec: &Spec) -> f64 {
    let parts = if spec.fabric.split { spec.chassis.split } else { 1 };
    spec.chassis.uplink_rate.0 / parts as f64
}
