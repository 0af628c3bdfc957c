//! The description of a rack, `rack.toml`.

mod cassandra;
mod error;
mod fabric;
mod hardware;
mod limits;

pub use self::cassandra::{Cassandra, Collector, RackAssignment, TokenAllocation};
pub use self::error::SpecError;
pub use self::fabric::{FabricSpec, Routes};
pub use self::hardware::{Chassis, Forwarding, Server, Switch};
pub use self::limits::{
    MAX_INSTANCES, MAX_PARTS, MAX_REPLICATION, MAX_SEEDS, MAX_SERVERS, MAX_SPEC_BYTES, MAX_TOKENS,
};

use self::error::{PLAIN, is_plain};
pub(crate) use self::error::{plain_path, value, within};
use crate::host::{Clock, Control, Storage};
use crate::jobs::Jobs;
use crate::power::Power;
use crate::ring::RingMember;
use crate::store::{Etcd, Store};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A description of a rack; the crate's documentation has an example. [`Spec::from_toml`] parses a
/// description and checks each value separately. [`Plan::new`](crate::Plan::new) checks what
/// follows from all values together.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Spec {
    /// Name of the rack.
    pub name: String,
    /// A description of the rack in one line.
    #[serde(default)]
    pub about: String,
    /// Hardware of each server.
    pub server: Server,
    /// Each chassis: a switch and its servers.
    pub chassis: Chassis,
    /// How chassis are connected. By default the rack has a single chassis.
    #[serde(default)]
    pub fabric: FabricSpec,
    /// The networks from which the plan takes addresses.
    #[serde(default)]
    pub addresses: Addresses,
    /// Apache Cassandra on the servers; `None` if there is none.
    pub cassandra: Option<Cassandra>,
    /// How servers are reached, and where files are on them.
    #[serde(default)]
    pub provision: Provision,
    /// Job managers on the servers.
    #[serde(default)]
    pub jobs: Jobs,
    /// etcd on the servers; `None` if there is none.
    pub etcd: Option<Etcd>,
    /// Sprat's store on the servers; `None` if there is none.
    pub store: Option<Store>,
    /// How power is measured, and what it costs.
    #[serde(default)]
    pub power: Power,
    /// Disks and filesystems to set up on the servers.
    pub storage: Option<Storage>,
    /// The NTP servers that the servers follow.
    pub clock: Option<Clock>,
    /// The host through which servers reach the outside.
    pub control: Option<Control>,
    /// Claims of others about the rack. The plan reports whether each claim follows from it.
    #[serde(default)]
    pub claims: BTreeMap<String, String>,
    /// Instances on the ring, by name. `None` if there is no ring yet; then all instances of the
    /// plan form a new one. This comes from the rack's folder, never from the description.
    #[serde(skip)]
    pub members: Option<BTreeMap<String, RingMember>>,
}

/// `[addresses]`: the networks from which the plan takes addresses.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Addresses {
    /// The IPv4 network; each chassis gets a part of it.
    pub v4: Ipv4Net,
    /// The IPv6 network; each chassis gets a /64 of it.
    pub v6: Ipv6Net,
    /// Number of servers per chassis for which addresses are reserved, so that adding servers later
    /// changes no address. By default the number of servers that a chassis has.
    pub servers: Option<usize>,
    /// Number of instances per server for which addresses are reserved. By default the number of
    /// instances that a server has.
    pub instances: Option<usize>,
}

impl Default for Addresses {
    fn default() -> Self {
        let v4 = Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 0, 0, 0), 8);
        let v6 =
            Ipv6Net::new_assert(std::net::Ipv6Addr::new(0xfd53, 0x7072, 0x6170, 0, 0, 0, 0, 0), 44);
        Self { v4, v6, servers: None, instances: None }
    }
}

/// `[provision]`: how servers are reached, and where files are on them.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Provision {
    /// The account for ssh.
    pub user: String,
    /// The folder that holds all data.
    pub base: String,
    /// The folder of Cassandra's jars.
    pub library: String,
    /// Whether all hosts share one kernel with its clock and disks, like namespaces on one machine.
    /// The caller sets this, never the description.
    #[serde(skip)]
    pub shared: bool,
}

impl Default for Provision {
    fn default() -> Self {
        let [user, base, library] =
            ["root", "/srv/sprat", "/opt/sprat/cassandra/lib"].map(str::to_owned);
        Self { user, base, library, shared: false }
    }
}

impl Spec {
    /// Parses and checks a description.
    ///
    /// # Errors [`SpecError::Long`] for more than 1 MiB, [`SpecError::Toml`] if the text is not
    /// TOML, has an unknown key, lacks a key or has a value that cannot be parsed, and otherwise
    /// [`SpecError::Value`] for the first invalid value, with its key.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        if text.len() > MAX_SPEC_BYTES {
            return Err(SpecError::Long(text.len()));
        }
        let spec: Self =
            toml::from_str(text).map_err(|error| SpecError::Toml(error.to_string()))?;
        spec.check()?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), SpecError> {
        if !is_plain(&self.name) {
            return Err(value("name", format!("{:?}", self.name), PLAIN));
        }
        let provision = &self.provision;
        if !is_plain(&provision.user) {
            return Err(value("provision.user", format!("{:?}", provision.user), PLAIN));
        }
        for (key, path) in
            [("provision.base", &provision.base), ("provision.library", &provision.library)]
        {
            plain_path(key, path)?;
        }
        let counts = [
            ("server.cores", self.server.cores, 1, 4_096),
            ("server.ports", self.server.ports, 1, MAX_PARTS),
            ("server.disks", self.server.disks.len(), 0, MAX_PARTS),
            ("chassis.servers", self.chassis.servers, 1, MAX_SERVERS),
            ("chassis.height", self.chassis.height, 1, 100),
            ("chassis.uplinks", self.chassis.uplinks, 0, 1_024),
            ("chassis.split", self.chassis.split, 1, 16),
            ("fabric.links", self.fabric.links, 1, 64),
        ];
        counts
            .into_iter()
            .try_for_each(|(key, count, least, most)| within(key, count, least, most))?;
        if self.server.port_rate.0 <= 0.0 {
            return Err(value(
                "server.port-rate",
                self.server.port_rate.to_string(),
                "more than 0",
            ));
        }
        let per_cycle = [
            ("server.ops-per-cycle", self.server.ops_per_cycle),
            ("server.flops-per-cycle", self.server.flops_per_cycle),
        ];
        for (key, number) in per_cycle {
            if number.is_some_and(|number| !(0.0..=1e6).contains(&number)) {
                return Err(value(key, number.unwrap_or_default().to_string(), "0 to 1000000"));
            }
        }
        let switch = &self.chassis.switch;
        if !(0.0..=1.0).contains(&switch.delay.0) {
            return Err(value("chassis.switch.delay", switch.delay.to_string(), "at most 1 s"));
        }
        let on_server = self.cassandra.as_ref().map_or(0, |cassandra| cassandra.instances);
        for (key, room, least, most) in [
            ("addresses.servers", self.addresses.servers, self.chassis.servers, MAX_SERVERS),
            ("addresses.instances", self.addresses.instances, on_server, MAX_INSTANCES),
        ] {
            room.map_or(Ok(()), |room| within(key, room, least, most))?;
        }
        self.power.check()?;
        self.storage.iter().try_for_each(Storage::check)?;
        self.clock.iter().try_for_each(Clock::check)?;
        self.check_mounts()?;
        self.etcd.iter().try_for_each(Etcd::check)?;
        self.store.iter().try_for_each(|store| store.check(&self.server))?;
        match &self.cassandra {
            Some(cassandra) => cassandra.check(&self.server),
            None => Ok(()),
        }
    }
}

impl Spec {
    /// Checks that there are as many mount points as instances on a server.
    fn check_mounts(&self) -> Result<(), SpecError> {
        let Some(mounts) = self
            .storage
            .as_ref()
            .map(|storage| &storage.mounts)
            .filter(|mounts| !mounts.is_empty())
        else {
            return Ok(());
        };
        let instances = self.cassandra.as_ref().map_or(0, |cassandra| cassandra.instances);
        if mounts.len() != instances {
            let want =
                format!("one for each of the {instances} instances of Cassandra on a server");
            return Err(value("storage.mounts", format!("{mounts:?}"), want));
        }
        if self.store.is_some() || self.etcd.is_some() {
            let want = "no [store] and no [etcd] beside them: their data is below provision.base, \
                        on none of these disks";
            return Err(value("storage.mounts", format!("{mounts:?}"), want));
        }
        Ok(())
    }
}
