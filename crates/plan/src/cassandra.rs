//! Cassandra on a rack: who is on the ring, what it holds, and whether a server that fails takes data with it.

use crate::fabric::Fabric;
use crate::quantity::Bytes;
use crate::ring::{Instance, Ring};
use crate::spec::{Cassandra, Racks, Spec};
use serde::Serialize;

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

/// The ring of a rack.
///
/// # Errors
/// It cannot be, or would lose data with a server although it need not.
pub fn ring(spec: &Spec, cassandra: &Cassandra, fabric: &Fabric) -> Result<Ring, CassandraError> {
    let servers = fabric.stations * spec.chassis.servers;
    let total = servers.saturating_mul(cassandra.instances).saturating_mul(cassandra.tokens);
    if total > MAX_RING {
        return Err(CassandraError::Large(total));
    }
    let replication = cassandra.replication;
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
            Racks::Chassis => server / spec.chassis.servers,
            Racks::One => 0,
        };
        Instance { server, rack, tokens: cassandra.tokens }
    };
    let instances = (0..servers * cassandra.instances).map(instance).collect();
    let mut state = SEED;
    let mut random = || splitmix(&mut state);
    let ring = Ring::new(instances, replication, cassandra.picked, &mut random);
    let doubled = ring.place(replication).doubled();
    if doubled > 0.0 && servers >= replication && !cassandra.accept_loss {
        return Err(CassandraError::Loses { doubled: doubled * 100.0 });
    }
    Ok(ring)
}

/// What a ring comes to.
#[must_use]
pub fn summary(spec: &Spec, cassandra: &Cassandra, fabric: &Fabric, ring: &Ring) -> Summary {
    let (replication, servers) = (cassandra.replication, spec.chassis.servers);
    let placement = ring.place(replication);
    let (pairs, lost_with_pair) = placement.lost_with_two();
    let disks: Bytes = spec.server.disks.iter().copied().sum();
    let all = disks.times((fabric.stations * servers) as f64);
    Summary {
        instances: ring.instances.len(),
        disks_each: spec.server.disks.len() / cassandra.instances,
        memory_each: spec.server.memory.times(1.0 / cassandra.instances as f64),
        usable: all.times(cassandra.fill / replication as f64),
        balance: placement.balance(),
        doubled: placement.doubled(),
        lost_with_server: placement.lost_with(&|server| server),
        pairs,
        lost_with_pair,
        lost_with_chassis: placement.lost_with(&|server| server / servers),
    }
}

/// Steele, Lea and Flood's SplitMix64 (2014): chance enough to mix servers.
pub(crate) fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
