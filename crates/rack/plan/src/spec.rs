//! What a rack is to be, in words: `rack.toml`.

use crate::addresses::AddressList;
use crate::cassandra::Member;
use crate::host::{Clock, Control, Storage};
use crate::jobs::Jobs;
use crate::power::Power;
use crate::quantity::{BitRate, ByteRate, Bytes, Hertz, Kilograms, Seconds, Watts};
use crate::store::{Etcd, Store};
use crate::topology::Topology;
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Longest description, bytes.
pub const MAX_SPEC_BYTES: usize = 1 << 20;

/// Most servers of a chassis.
pub const MAX_SERVERS: usize = 1_024;

/// Most disks and ports of a server.
pub const MAX_PARTS: usize = 64;

/// Most instances of Cassandra on a server.
pub const MAX_INSTANCES: usize = 16;

/// Most tokens of an instance, as Cassandra has it.
pub const MAX_TOKENS: usize = 256;

/// Most seeds: each of them is asked by all others.
pub const MAX_SEEDS: usize = 16;

/// Most replicas of data.
pub const MAX_REPLICATION: usize = 9;

/// A rack as it is wanted; see the page of the crate for an example.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// What it is, in a line.
    #[serde(default)]
    pub about: String,
    /// Each of its servers.
    pub server: Server,
    /// Each of its chassis: servers around a switch.
    pub chassis: Chassis,
    /// How the chassis are joined; none: there is one.
    #[serde(default)]
    pub fabric: Fabric,
    /// Where addresses are taken from.
    #[serde(default)]
    pub addresses: Addresses,
    /// Cassandra on the servers, if it is to be there.
    pub cassandra: Option<Cassandra>,
    /// How servers are reached, and where things go on them.
    #[serde(default)]
    pub provision: Provision,
    /// What else runs on its servers.
    #[serde(default)]
    pub jobs: Jobs,
    /// etcd on its servers, if it is to be there.
    pub etcd: Option<Etcd>,
    /// Sprat's own servers, likewise.
    pub store: Option<Store>,
    /// How its power is measured, and what it costs.
    #[serde(default)]
    pub power: Power,
    /// The disks below their data, if they are to be made that.
    pub storage: Option<Storage>,
    /// Who tells them the time, if they are to follow.
    pub clock: Option<Clock>,
    /// The host through which they reach the outside, if there is one.
    pub control: Option<Control>,
    /// What others say that the rack has; the plan says what of that follows.
    #[serde(default)]
    pub claims: BTreeMap<String, String>,
    /// Instances on the ring, by their names; none: nobody is there yet, and all of the plan begin together. Nobody describes it.
    #[serde(skip)]
    pub members: Option<BTreeMap<String, Member>>,
}

/// A server.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Server {
    /// Cores of its processors.
    pub cores: usize,
    /// Their clock.
    pub clock: Option<Hertz>,
    /// Operations that a core ends in a cycle.
    pub ops_per_cycle: Option<f64>,
    /// Of these, those with floating point.
    pub flops_per_cycle: Option<f64>,
    /// Its memory.
    pub memory: Bytes,
    /// What its memory gives.
    pub memory_rate: Option<ByteRate>,
    /// Its disks.
    #[serde(default)]
    pub disks: Vec<Bytes>,
    /// What each of its disks gives.
    pub disk_rate: Option<ByteRate>,
    /// Its ports to the switch.
    #[serde(default = "one")]
    pub ports: usize,
    /// What each of them gives.
    pub port_rate: BitRate,
    /// What it takes at most.
    pub power: Option<Watts>,
    /// What it weighs.
    pub weight: Option<Kilograms>,
}

/// Servers around a switch: in one box, or in a rack.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Chassis {
    /// Its servers.
    pub servers: usize,
    /// Rack units that it takes, servers included.
    #[serde(default = "one")]
    pub height: usize,
    /// The switch's ports to other chassis.
    #[serde(default)]
    pub uplinks: usize,
    /// What each of them gives.
    #[serde(default)]
    pub uplink_rate: BitRate,
    /// Into how many links an uplink can be split.
    #[serde(default = "one")]
    pub split: usize,
    /// Whether servers reach the switch without cables.
    #[serde(default)]
    pub backplane: bool,
    /// How the switch passes frames on.
    #[serde(default)]
    pub switch: Switch,
    /// What it takes at most besides its servers. A switch without servers takes as much.
    #[serde(default)]
    pub power: Watts,
    /// What it weighs besides its servers. A switch without servers weighs as much.
    #[serde(default)]
    pub weight: Kilograms,
}

/// A switch.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Switch {
    /// Whether frames leave it before they are in.
    pub forwarding: Forwarding,
    /// What it takes from a frame's first bit that it needs to its first bit out.
    pub delay: Seconds,
    /// What it holds of frames that wait, for each port.
    pub buffer: Bytes,
}

impl Default for Switch {
    fn default() -> Self {
        Self { forwarding: Forwarding::StoreAndForward, delay: Seconds(1e-6), buffer: Bytes(1e6) }
    }
}

/// When a switch begins to send a frame.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarding {
    /// When all of it is in.
    StoreAndForward,
    /// When its head is in.
    CutThrough,
}

/// How chassis are joined.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Fabric {
    /// Which are neighbours.
    pub topology: Topology,
    /// Links between two neighbours.
    pub links: usize,
    /// Whether uplinks are split into as many links as they can be.
    pub split: bool,
    /// Which of the shortest ways are taken.
    pub routes: Routes,
}

impl Default for Fabric {
    fn default() -> Self {
        Self { topology: Topology::Single, links: 1, split: false, routes: Routes::Ecmp }
    }
}

/// Which of the shortest ways between two chassis are taken.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Routes {
    /// All of them, in equal parts: equal-cost multipath.
    Ecmp,
    /// One: dimension by dimension where there are such, the first link elsewhere.
    Ordered,
}

/// Where addresses are taken from.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Addresses {
    /// Each chassis has a part of these.
    pub v4: Ipv4Net,
    /// And a /64 of these.
    pub v6: Ipv6Net,
    /// Servers that a chassis has addresses for: those of others stay what they are while it has no more. As many as it has, unless told.
    pub servers: Option<usize>,
    /// Instances that a server has addresses for, likewise.
    pub instances: Option<usize>,
}

impl Default for Addresses {
    fn default() -> Self {
        let v4 = Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 0, 0, 0), 8);
        let v6 = Ipv6Net::new_assert(std::net::Ipv6Addr::new(0xfd53, 0x7072, 0x6170, 0, 0, 0, 0, 0), 44);
        Self { v4, v6, servers: None, instances: None }
    }
}

/// Apache Cassandra on the servers.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cassandra {
    /// Instances on each server.
    #[serde(default = "one")]
    pub instances: usize,
    /// Replicas of each row.
    #[serde(default = "three")]
    pub replication: usize,
    /// Tokens of each instance.
    #[serde(default = "sixteen")]
    pub tokens: usize,
    /// How tokens are picked.
    #[serde(default)]
    pub picked: Picked,
    /// What Cassandra is told to be a rack.
    #[serde(default)]
    pub racks: Racks,
    /// Its datacenter's name.
    #[serde(default = "datacenter")]
    pub datacenter: String,
    /// Heap of each instance; a quarter of its memory, 8 GiB at most, unless told.
    pub heap: Option<Bytes>,
    /// Who collects what is left on it; by its size unless told.
    pub collector: Option<Collector>,
    /// Addresses of all instances, server by server; unless listed they are taken from `[addresses]`, each after its server's.
    #[serde(default)]
    pub addresses: AddressList,
    /// Instances that others ask who is there: on as many different servers, where there are.
    #[serde(default = "three")]
    pub seeds: usize,
    /// Settings of `cassandra.yaml` that are to be otherwise.
    #[serde(default)]
    pub yaml: BTreeMap<String, serde_json::Value>,
    /// Arguments for Java besides.
    #[serde(default)]
    pub java: Vec<String>,
    /// How full disks may become: compaction needs the rest.
    #[serde(default = "half")]
    pub fill: f64,
    /// Goes on where a server that fails takes data with it.
    #[serde(default)]
    pub accept_loss: bool,
}

/// Java's collectors of what is left on its heap.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collector {
    /// Beside the program: pauses under a millisecond, for memory and threads of its own.
    Z,
    /// In pauses of up to hundreds of milliseconds.
    G1,
    /// All at once, on one thread: for the smallest heaps.
    Serial,
}

/// How servers are reached, and where things go on them.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Provision {
    /// Who one is on them, over ssh.
    pub user: String,
    /// The folder below which all data is.
    pub base: String,
    /// Where Cassandra's jars are.
    pub library: String,
    /// Whether hosts share a kernel, and so its clock and disks: namespaces on one machine do. Nobody describes it.
    #[serde(skip)]
    pub shared: bool,
}

impl Default for Provision {
    fn default() -> Self {
        let [user, base, library] = ["root", "/srv/sprat", "/opt/sprat/cassandra/lib"].map(str::to_owned);
        Self { user, base, library, shared: false }
    }
}

/// How tokens are picked.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Picked {
    /// Evenly, and so that neighbours on the ring are on different servers.
    #[default]
    Even,
    /// Evenly, the instances of a server side by side: what counting up from the first does.
    Adjacent,
    /// By chance, as Cassandra does where nobody tells it.
    Random,
}

/// What is told to Cassandra to be a rack: replicas go to different ones as long as there are any.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Racks {
    /// Each server.
    #[default]
    Host,
    /// Each chassis: for as many of them as there are replicas, or more.
    Chassis,
    /// All are one.
    One,
}

/// What is wrong with a description.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// It is not TOML, or has what no rack has.
    #[error("{0}")]
    Toml(String),
    /// It is too long.
    #[error("{0} bytes: a rack is described in {MAX_SPEC_BYTES} at most")]
    Long(usize),
    /// A value means nothing.
    #[error("{key} = {value}: want {want}")]
    Value {
        /// Where.
        key: &'static str,
        /// What was given.
        value: String,
        /// What would do.
        want: String,
    },
}

impl Spec {
    /// From TOML.
    ///
    /// # Errors
    /// What is wrong, with its place.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        if text.len() > MAX_SPEC_BYTES {
            return Err(SpecError::Long(text.len()));
        }
        let spec: Self = toml::from_str(text).map_err(|error| SpecError::Toml(error.to_string()))?;
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
        for (key, path) in [("provision.base", &provision.base), ("provision.library", &provision.library)] {
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
        counts.into_iter().try_for_each(|(key, count, least, most)| within(key, count, least, most))?;
        if self.server.port_rate.0 <= 0.0 {
            return Err(value("server.port-rate", self.server.port_rate.to_string(), "more than nothing"));
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
            Some(cassandra) => cassandra.check(self),
            None => Ok(()),
        }
    }
}

impl Spec {
    /// Sees that filesystems of instances are as many as instances on a server.
    fn check_mounts(&self) -> Result<(), SpecError> {
        let Some(mounts) = self.storage.as_ref().map(|storage| &storage.mounts).filter(|mounts| !mounts.is_empty())
        else {
            return Ok(());
        };
        let instances = self.cassandra.as_ref().map_or(0, |cassandra| cassandra.instances);
        if mounts.len() != instances {
            let want = format!("one for each of the {instances} instances of Cassandra on a server");
            return Err(value("storage.mounts", format!("{mounts:?}"), want));
        }
        if self.store.is_some() || self.etcd.is_some() {
            let want =
                "no [store] and no [etcd] beside them: their data is below provision.base, on none of these disks";
            return Err(value("storage.mounts", format!("{mounts:?}"), want));
        }
        Ok(())
    }
}

impl Cassandra {
    fn check(&self, spec: &Spec) -> Result<(), SpecError> {
        within("cassandra.instances", self.instances, 1, MAX_INSTANCES)?;
        within("cassandra.replication", self.replication, 1, MAX_REPLICATION)?;
        within("cassandra.tokens", self.tokens, 1, MAX_TOKENS)?;
        within("cassandra.seeds", self.seeds, 1, MAX_SEEDS)?;
        if !is_plain(&self.datacenter) {
            return Err(value("cassandra.datacenter", format!("{:?}", self.datacenter), PLAIN));
        }
        if !(0.05..=1.0).contains(&self.fill) {
            return Err(value("cassandra.fill", self.fill.to_string(), "a share from 0.05 to 1"));
        }
        let disks = spec.server.disks.len();
        if disks == 0 {
            return Err(value(
                "cassandra",
                "[...]".to_owned(),
                "servers with disks: server.disks = [\"4TB\", \"4TB\"]",
            ));
        }
        if disks >= self.instances && !disks.is_multiple_of(self.instances) {
            let want = format!("a divisor of the server's {disks} disks, so that all have as many");
            return Err(value("cassandra.instances", self.instances.to_string(), want));
        }
        if let Some(heap) = self.heap
            && heap.times(self.instances as f64).0 > spec.server.memory.0
        {
            let want = format!("{} instances to fit into the server's {}", self.instances, spec.server.memory);
            return Err(value("cassandra.heap", heap.to_string(), want));
        }
        Ok(())
    }
}

/// Sees that a path can go into files that shells and Java read.
pub(crate) fn plain_path(key: &'static str, path: &str) -> Result<(), SpecError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    if !path.starts_with('/') || path.len() > 256 || !path.chars().all(plain) {
        let want = "an absolute path of letters, digits, dashes, dots and underscores";
        return Err(value(key, format!("{path:?}"), want));
    }
    Ok(())
}

const PLAIN: &str = "1 to 32 letters, digits and dashes";

fn is_plain(name: &str) -> bool {
    (1..=32).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

pub(crate) fn value(key: &'static str, value: String, want: impl Into<String>) -> SpecError {
    SpecError::Value { key, value, want: want.into() }
}

pub(crate) fn within(key: &'static str, count: usize, least: usize, most: usize) -> Result<(), SpecError> {
    if (least..=most).contains(&count) {
        return Ok(());
    }
    Err(value(key, count.to_string(), format!("{least} to {most}")))
}

fn datacenter() -> String {
    "dc1".to_owned()
}

fn one() -> usize {
    1
}

fn three() -> usize {
    3
}

fn sixteen() -> usize {
    16
}

fn half() -> f64 {
    0.5
}
