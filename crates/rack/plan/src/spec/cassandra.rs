//! `[cassandra]` of a description.

use super::error::{PLAIN, SpecError, is_plain, value, within};
use super::hardware::{Server, one};
use super::limits::{MAX_INSTANCES, MAX_REPLICATION, MAX_SEEDS, MAX_TOKENS};
use crate::addresses::AddressList;
use crate::quantity::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `[cassandra]`: Apache Cassandra on the servers.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cassandra {
    /// Number of instances on each server.
    #[serde(default = "one")]
    pub instances: usize,
    /// Replication factor.
    #[serde(default = "three")]
    pub replication: usize,
    /// Number of tokens of each instance (`num_tokens`).
    #[serde(default = "sixteen")]
    pub tokens: usize,
    /// How tokens are placed on the ring.
    #[serde(default)]
    pub picked: TokenAllocation,
    /// What counts as a rack for Cassandra.
    #[serde(default)]
    pub racks: RackAssignment,
    /// Name of the datacenter.
    #[serde(default = "datacenter")]
    pub datacenter: String,
    /// Heap of each instance. By default a quarter of the instance's memory, but at least 256 MiB
    /// and at most 8 GiB.
    pub heap: Option<Bytes>,
    /// Garbage collector of the JVM. The default depends on the heap's size.
    pub collector: Option<Collector>,
    /// Addresses of all instances, server by server. By default the addresses of instances follow
    /// the address of their server.
    #[serde(default)]
    pub addresses: AddressList,
    /// Number of servers that have a seed: the first instance of each of the first servers on the
    /// ring. With fewer servers there are fewer seeds.
    #[serde(default = "three")]
    pub seeds: usize,
    /// Settings of `cassandra.yaml` that take the place of the plan's.
    #[serde(default)]
    pub yaml: BTreeMap<String, serde_json::Value>,
    /// Further arguments for the JVM.
    #[serde(default)]
    pub java: Vec<String>,
    /// The largest share of a disk that data may fill; compaction needs the rest.
    #[serde(default = "half")]
    pub fill: f64,
    /// Whether to plan the ring even if the failure of one server leaves some rows without QUORUM.
    #[serde(default)]
    pub accept_loss: bool,
}

/// Garbage collectors of the JVM.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collector {
    /// ZGC: concurrent, with pauses below a millisecond, at the cost of memory and threads.
    Z,
    /// G1: pauses of up to hundreds of milliseconds.
    G1,
    /// The serial collector, for the smallest heaps.
    Serial,
}

/// How tokens are placed on the ring.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum TokenAllocation {
    /// At equal distances, with neighbours on different servers.
    #[default]
    Even,
    /// At equal distances, in the order of the instances' numbers, so that instances of one server
    /// are neighbours.
    Adjacent,
    /// At random, as Cassandra does unless it is configured to allocate tokens for a replication
    /// factor.
    Random,
}

/// What counts as a rack for Cassandra. Cassandra puts the replicas of a row into different racks
/// as long as there are enough racks.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum RackAssignment {
    /// Each server is a rack.
    #[default]
    Host,
    /// Each chassis is a rack. There must be at least as many chassis as replicas.
    Chassis,
    /// All servers are in one rack.
    One,
}

impl Cassandra {
    pub(super) fn check(&self, server: &Server) -> Result<(), SpecError> {
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
        let disks = server.disks.len();
        if disks == 0 {
            return Err(value(
                "cassandra",
                "[...]".to_owned(),
                "servers with disks: server.disks = [\"4TB\", \"4TB\"]",
            ));
        }
        if disks >= self.instances && !disks.is_multiple_of(self.instances) {
            let want = format!(
                "a divisor of the server's {disks} disks, so that all instances have equally many"
            );
            return Err(value("cassandra.instances", self.instances.to_string(), want));
        }
        if let Some(heap) = self.heap
            && heap.times(self.instances as f64).0 > server.memory.0
        {
            let want =
                format!("{} instances to fit into the server's {}", self.instances, server.memory);
            return Err(value("cassandra.heap", heap.to_string(), want));
        }
        Ok(())
    }
}

fn datacenter() -> String {
    "dc1".to_owned()
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
