//! Assigns positions in racks, names, addresses and cables.

use crate::capacity::RACK_UNITS;
use crate::fabric::Fabric;
use crate::spec::Spec;
use ipnet::Ipv4Net;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Number of a chassis's addresses that no server can have: the network address, the switch's, and
/// the broadcast address.
const RESERVED: usize = 3;

/// The layout of a plan. It computes the positions of chassis, the names and addresses of servers
/// and instances, and all cables. It borrows the description and the fabric, and computes each
/// answer when it is called.
#[derive(Clone, Debug)]
pub struct Layout<'a> {
    spec: &'a Spec,
    fabric: &'a Fabric,
    /// Number of addresses reserved for each server: its own, and those of its instances.
    per_server: usize,
    /// Number of instances on each server.
    on_server: usize,
    /// Prefix length of a chassis's IPv4 network.
    prefix: u8,
    /// Listed addresses of instances, server by server. If the list is empty, the addresses of
    /// instances follow the address of their server.
    listed: &'a [Ipv4Addr],
}

/// A position in a rack.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RackPosition {
    /// Number of the rack, from 1.
    pub rack: usize,
    /// The lowest rack unit that the chassis takes, counted from 1 at the floor.
    pub unit: usize,
}

/// The name and addresses of a server, or of an instance on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Host {
    /// The host's name, such as `c0-n1` for a server or `c0-n1-i2` for an instance.
    pub name: String,
    /// The number of the host's chassis, from 0.
    pub chassis: usize,
    /// The number of the host's server in the chassis, from 1.
    pub slot: usize,
    /// The IPv4 address, and the prefix length of its network.
    pub v4: (Ipv4Addr, u8),
    /// The IPv6 address, in a /64.
    pub v6: Ipv6Addr,
    /// The address of the chassis's switch, which is the route to other chassis.
    pub gateway: IpAddr,
}

/// One end of a cable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CableEnd {
    /// Name of the server, chassis or switch.
    pub name: String,
    /// The port, such as `2`, `2/3` for the third part of a split port, or `d5` for a chassis's
    /// fifth port to servers.
    pub port: String,
    /// The position of the switch, of the chassis, or of the server's chassis; `None` if it has no
    /// place in a rack.
    pub position: Option<RackPosition>,
}

/// A cable.
#[derive(Clone, Debug, PartialEq)]
pub struct Cable {
    /// One end.
    pub from: CableEnd,
    /// The other end.
    pub to: CableEnd,
    /// Rate of the link, in b/s.
    pub rate: f64,
}

/// Why a rack cannot be laid out.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LayoutError {
    /// A chassis has fewer uplinks than links.
    #[error(
        "{name} needs {needed} uplinks, a chassis has {has}{}",
        if *.split { ": `fabric.split = true` splits each into several" } else { "" }
    )]
    Uplinks {
        /// Name of a chassis that has too few uplinks.
        name: String,
        /// Number of uplinks that it needs.
        needed: usize,
        /// Number of uplinks that it has.
        has: usize,
        /// Whether there would be enough uplinks if each were split.
        split: bool,
    },
    /// The IPv4 network is too small for all chassis.
    #[error(
        "addresses.v4 = {v4}: {needed} chassis with a /{prefix} each do not fit into it; \
         10.0.0.0/8 is the largest private network"
    )]
    Addresses {
        /// The network in the description.
        v4: ipnet::Ipv4Net,
        /// Number of chassis in the plan.
        needed: usize,
        /// Prefix length that each chassis needs.
        prefix: u8,
    },
    /// The list of instances' addresses is too short.
    #[error("cassandra.addresses: {has} are listed, and there are {needed} instances")]
    Few {
        /// Number of addresses that the list has.
        has: usize,
        /// Number of instances that need one.
        needed: usize,
    },
    /// A listed address cannot be the address of an instance.
    #[error("cassandra.addresses: {address} {why}")]
    Listed {
        /// The address.
        address: Ipv4Addr,
        /// Why it is invalid.
        why: String,
    },
    /// The IPv6 network is too small for all chassis.
    #[error("addresses.v6 = {v6}: {needed} chassis with a /64 each do not fit into it")]
    Networks {
        /// The network in the description.
        v6: ipnet::Ipv6Net,
        /// Number of chassis in the plan.
        needed: usize,
    },
}

impl<'a> Layout<'a> {
    /// Lays out a rack.
    ///
    /// # Errors
    /// [`LayoutError::Uplinks`] if a chassis has too few uplinks, [`LayoutError::Addresses`] or
    /// [`LayoutError::Networks`] if the IPv4 or IPv6 network is too small, [`LayoutError::Few`] if
    /// fewer addresses are listed than there are instances, and [`LayoutError::Listed`] if a listed
    /// address is unusable.
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
            // The only chassis has the whole network.
            prefix = prefix.min(spec.addresses.v4.prefix_len());
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

    /// Checks that each instance has a listed address of its own in the network of its chassis.
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

    /// Returns the first address of a chassis's network.
    fn network(&self, chassis: usize) -> Ipv4Addr {
        let base = u32::from(self.spec.addresses.v4.trunc().addr());
        Ipv4Addr::from(base + (u32::try_from(chassis).unwrap_or(u32::MAX) << (32 - self.prefix)))
    }

    /// Returns the position of a chassis. Racks are filled from the floor: first with chassis that
    /// have servers, then with switches that have none. `None` if a chassis is higher than a rack.
    #[must_use]
    pub fn position(&self, switch: usize) -> Option<RackPosition> {
        let height = self.spec.chassis.height;
        let in_rack = RACK_UNITS / height;
        (switch < self.fabric.switches && in_rack > 0).then(|| RackPosition {
            rack: switch / in_rack + 1,
            unit: switch % in_rack * height + 1,
        })
    }

    /// Returns a server by its chassis and its slot, both from 0.
    #[must_use]
    pub fn server(&self, chassis: usize, slot: usize) -> Host {
        self.host(chassis, slot, 0)
    }

    /// Returns an instance by its chassis, slot and number on the server, all from 0.
    #[must_use]
    pub fn instance(&self, chassis: usize, slot: usize, instance: usize) -> Host {
        assert!(instance < self.on_server, "an existing instance");
        self.host(chassis, slot, instance + 1)
    }

    fn host(&self, chassis: usize, slot: usize, part: usize) -> Host {
        assert!(
            chassis < self.fabric.stations && slot < self.spec.chassis.servers,
            "an existing server"
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

    /// Returns all servers, each followed by its instances.
    pub fn hosts(&self) -> impl Iterator<Item = Host> {
        let servers = self.spec.chassis.servers;
        let each = move |chassis| (0..servers).map(move |slot| (chassis, slot));
        (0..self.fabric.stations).flat_map(each).flat_map(move |(chassis, slot)| {
            (0..=self.on_server).map(move |part| self.host(chassis, slot, part))
        })
    }

    /// Returns all cables: those between switches, and those from servers to their switch unless
    /// chassis have a backplane.
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
                    CableEnd {
                        name: self.fabric.name(switch),
                        port,
                        position: self.position(switch),
                    }
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
                    let position = self.position(chassis);
                    let name = self.server(chassis, slot).name;
                    let from = CableEnd { name, port: (port + 1).to_string(), position };
                    let down = format!("d{}", slot * ports + port + 1);
                    let to = CableEnd { name: self.fabric.name(chassis), port: down, position };
                    cables.push(Cable { from, to, rate: self.spec.server.port_rate.0 });
                }
            }
        }
        cables
    }

    /// Returns the name of a switch's port. `number` counts the switch's ports in use, from 0.
    fn port(&self, switch: usize, number: usize) -> String {
        let split = self.spec.chassis.split;
        if self.spec.fabric.split && switch < self.fabric.stations {
            format!("{}/{}", number / split + 1, number % split + 1)
        } else {
            (number + 1).to_string()
        }
    }
}

/// Returns the rate of a cable between switches in b/s: the rate of an uplink, or, if uplinks are
/// split, the rate of one part of an uplink.
#[must_use]
pub fn link_rate(spec: &Spec) -> f64 {
    let parts = if spec.fabric.split { spec.chassis.split } else { 1 };
    spec.chassis.uplink_rate.0 / parts as f64
}
