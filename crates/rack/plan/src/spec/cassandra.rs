//! Apache Cassandra on the servers.

use super::error::{PLAIN, SpecError, is_plain, value, within};
use super::hardware::{Server, one};
use super::limits::{MAX_INSTANCES, MAX_REPLICATION, MAX_SEEDS, MAX_TOKENS};
use crate::addresses::AddressList;
use crate::quantity::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// Addresses of all instances, server by server; unless listed they are taken from
    /// `[addresses]`, each after its server's.
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
            let want = format!("a divisor of the server's {disks} disks, so that all have as many");
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
