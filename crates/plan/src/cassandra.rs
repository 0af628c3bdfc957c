//! Cassandra on a rack: who is on the ring, what it holds, and whether a server that fails takes data with it.

use crate::fabric::Fabric;
use crate::quantity::Bytes;
use crate::ring::{Instance, Ring};
use crate::spec::{Cassandra, Racks, Spec};
use serde::Serialize;
use sprat_chance::splitmix;

/// Most tokens of all instances.
pub const MAX_RING: usize = 1 << 16;

/// Where chance begins: the same plan each time.
const SEED: u64 = 0x5370_7261_7421_0001;

/// Instances on a rack.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    /// Instances.
    pub instances: usize,
    /// Disks of each.
    pub disks_each: usize,
    /// Memory of each, heap included.
    pub memory_each: Bytes,
    /// Room for rows, each counted once: what replicas take is taken off, and what compaction needs.
    pub usable: Bytes,
    /// What the fullest instance has, against the mean; and the emptiest.
    pub balance: (f64, f64),
    /// Of all rows those with two replicas on one server.
    pub doubled: f64,
    /// Of all rows those without QUORUM when the worst server fails.
    pub lost_with_server: f64,
    /// Of all pairs of servers those that take the QUORUM of some rows with them.
    pub pairs: f64,
    /// Of all rows those without QUORUM when the worst pair of servers fails.
    pub lost_with_pair: f64,
    /// Of all rows those without QUORUM when the worst chassis fails.
    pub lost_with_chassis: f64,
}

/// Cassandra that cannot be, or that would lose data.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CassandraError {
    /// There are too few of something for the replicas.
    #[error(
        "cassandra.replication = {replication}: there are {has} {what}, replicas on different ones need {replication}"
    )]
    Few {
        /// Replicas.
        replication: usize,
        /// What there is.
        has: usize,
        /// Of what.
        what: &'static str,
    },
    /// The ring is too large.
    #[error("cassandra: {0} tokens in all, {MAX_RING} are the most: fewer tokens an instance, or several clusters")]
    Large(usize),
    /// A server that fails takes data with it, and need not.
    #[error(
        "cassandra.racks = \"one\": {doubled:.1} % of all rows have two replicas on one server and lose QUORUM with it; \
         racks = \"host\" keeps them apart (accept-loss = true plans it all the same)"
    )]
    Loses {
        /// Rows, per cent.
        doubled: f64,
    },
}

/// The ring of a rack, and what it comes to.
///
/// # Errors
/// It cannot be, or would lose data with a server although it need not.
pub fn ring(spec: &Spec, cassandra: &Cassandra, fabric: &Fabric) -> Result<(Ring, Summary), CassandraError> {
    let (replication, in_chassis) = (cassandra.replication, spec.chassis.servers);
    let servers = fabric.stations * in_chassis;
    let total = servers.saturating_mul(cassandra.instances).saturating_mul(cassandra.tokens);
    if total > MAX_RING {
        return Err(CassandraError::Large(total));
    }
    let few = |has, what| CassandraError::Few { replication, has, what };
    if cassandra.racks == Racks::Chassis && fabric.stations < replication {
        return Err(few(fabric.stations, "chassis"));
    }
    if servers < replication && !cassandra.accept_loss {
        return Err(few(servers, "servers"));
    }
    let instance = |number: usize| {
        let server = number / cassandra.instances;
        let rack = match cassandra.racks {
            Racks::Host => server,
            Racks::Chassis => server / in_chassis,
            Racks::One => 0,
        };
        Instance { server, rack, tokens: cassandra.tokens }
    };
    let instances = (0..servers * cassandra.instances).map(instance).collect();
    let mut state = SEED;
    let mut random = || splitmix(&mut state);
    let ring = Ring::new(instances, replication, cassandra.picked, &mut random);
    let placement = ring.place(replication);
    let doubled = placement.doubled();
    if doubled > 0.0 && servers >= replication && !cassandra.accept_loss {
        return Err(CassandraError::Loses { doubled: doubled * 100.0 });
    }
    let (pairs, lost_with_pair) = placement.lost_with_two();
    let disks: Bytes = spec.server.disks.iter().copied().sum();
    let summary = Summary {
        instances: ring.instances.len(),
        disks_each: spec.server.disks.len() / cassandra.instances,
        memory_each: spec.server.memory.times(1.0 / cassandra.instances as f64),
        usable: disks.times(servers as f64).times(cassandra.fill / replication as f64),
        balance: placement.balance(),
        doubled,
        lost_with_server: placement.lost_with(&|server| server),
        pairs,
        lost_with_pair,
        lost_with_chassis: placement.lost_with(&|server| server / in_chassis),
    };
    Ok((ring, summary))
}
