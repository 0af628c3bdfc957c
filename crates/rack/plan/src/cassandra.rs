//! Plans Cassandra on a rack: which instances form the ring, how much data it holds, and how much
//! data becomes unavailable when servers fail.

use crate::fabric::Fabric;
use crate::layout::Layout;
use crate::quantity::Bytes;
use crate::ring::{Instance, Ring, RingMember};
use crate::spec::{Cassandra, RackAssignment, Spec};
use serde::Serialize;
use sprat_chance::Chance;
use std::collections::BTreeMap;

/// Limit on the tokens that all instances of a plan have together.
pub const MAX_RING: usize = 1 << 16;

/// Seed of the token allocation. It never changes, so that a description always gives the same
/// plan.
const SEED: u64 = 0x5370_7261_7421_0001;

/// Cassandra's instances on a rack, and how much of its data depends on single servers, pairs of
/// servers and chassis. A row counts as lost when too few replicas for QUORUM are left.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CassandraSummary {
    /// Number of instances on the ring.
    pub instances: usize,
    /// Number of disks of each instance.
    pub disks_each: usize,
    /// Memory of each instance, including its heap.
    pub memory_each: Bytes,
    /// Room for rows, each counted once. It is the disks' capacity without what compaction needs,
    /// divided by the replication factor.
    pub usable: Bytes,
    /// Rows of the fullest and of the emptiest instance, each as a multiple of the mean.
    pub balance: (f64, f64),
    /// Share of rows that have two replicas on one server.
    pub doubled: f64,
    /// Share of rows without QUORUM when the worst server fails.
    pub lost_with_server: f64,
    /// Share of server pairs whose failure leaves some rows without QUORUM.
    pub pairs: f64,
    /// Share of rows without QUORUM when the worst pair of servers fails.
    pub lost_with_pair: f64,
    /// Share of rows without QUORUM when the worst chassis fails.
    pub lost_with_chassis: f64,
}

/// Why Cassandra cannot be planned on this rack.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CassandraError {
    /// There are fewer chassis or servers than replicas.
    #[error(
        "cassandra.replication = {replication}: there are {has} {what}, replicas on different ones \
         need {replication}"
    )]
    Few {
        /// The replication factor.
        replication: usize,
        /// The number of servers or chassis.
        has: usize,
        /// What there are too few of: chassis or servers.
        what: &'static str,
    },
    /// The ring would have more than [`MAX_RING`] tokens.
    #[error(
        "cassandra: {0} tokens in all, the limit is {MAX_RING}: fewer tokens an instance, or \
         several clusters"
    )]
    Large(usize),
    /// Rows have two replicas on one server although there are enough servers to avoid that.
    #[error(
        "cassandra.racks = \"one\": {doubled:.1} % of all rows have two replicas on one server and \
         lose QUORUM with it; racks = \"host\" keeps them apart (accept-loss = true plans it \
         anyway)"
    )]
    Loses {
        /// Rows with two replicas on one server, in per cent of all rows.
        doubled: f64,
    },
    /// An instance is on the ring but missing from the description.
    #[error(
        "{0} is on the ring, but no longer in the description: put it back, and remove it from the \
         ring first (sprat rack remove)"
    )]
    Unknown(String),
}

/// A ring together with the instances on it and its summary.
#[derive(Clone, Debug)]
pub(crate) struct BuiltRing {
    pub(crate) ring: Ring,
    /// For each instance on the ring, its number among all instances of the plan, which are counted
    /// server by server.
    pub(crate) numbers: Vec<usize>,
    pub(crate) summary: CassandraSummary,
}

/// Builds the ring of a rack. If `spec.members` lists the instances on a ring that exists, these
/// keep their tokens. Otherwise all instances of the plan form a new ring.
///
/// # Errors
/// [`CassandraError::Large`] for more than [`MAX_RING`] tokens; [`CassandraError::Unknown`] for a
/// member that the plan lacks; [`CassandraError::Few`] for fewer servers than replicas, or for
/// fewer chassis than replicas if each chassis counts as a rack of Cassandra;
/// [`CassandraError::Loses`] if rows would have two replicas on one server although there are
/// enough servers. With `accept_loss`, too few servers and two replicas on one server are no
/// errors.
pub(crate) fn ring(
    spec: &Spec,
    cassandra: &Cassandra,
    layout: &Layout<'_>,
    fabric: &Fabric,
) -> Result<BuiltRing, CassandraError> {
    let (replication, in_chassis) = (cassandra.replication, spec.chassis.servers);
    let total = (fabric.stations * in_chassis)
        .saturating_mul(cassandra.instances)
        .saturating_mul(cassandra.tokens);
    if total > MAX_RING {
        return Err(CassandraError::Large(total));
    }
    let all = 0..fabric.stations * in_chassis * cassandra.instances;
    let (numbers, taken): (Vec<usize>, Vec<Vec<i64>>) = match &spec.members {
        None => (all.collect(), Vec::new()),
        Some(members) => {
            let name = |number: usize| {
                let server = number / cassandra.instances;
                layout
                    .instance(
                        server / in_chassis,
                        server % in_chassis,
                        number % cassandra.instances,
                    )
                    .name
            };
            let names: BTreeMap<String, usize> = all.map(|number| (name(number), number)).collect();
            let known = |(name, member): (&String, &RingMember)| match names.get(name) {
                Some(number) => Ok((*number, member.tokens.clone())),
                None => Err(CassandraError::Unknown(name.clone())),
            };
            let mut on_it = members.iter().map(known).collect::<Result<Vec<_>, _>>()?;
            on_it.sort_unstable_by_key(|(number, _)| *number);
            on_it.into_iter().unzip()
        }
    };
    let mut of_servers: Vec<usize> =
        numbers.iter().map(|number| number / cassandra.instances).collect();
    of_servers.dedup();
    let servers = of_servers.len();
    let few = |has, what| CassandraError::Few { replication, has, what };
    if cassandra.racks == RackAssignment::Chassis && fabric.stations < replication {
        return Err(few(fabric.stations, "chassis"));
    }
    if servers < replication && !cassandra.accept_loss {
        return Err(few(servers, "servers"));
    }
    let instance = |(at, number): (usize, &usize)| {
        let server = number / cassandra.instances;
        let rack = match cassandra.racks {
            RackAssignment::Host => server,
            RackAssignment::Chassis => server / in_chassis,
            RackAssignment::One => 0,
        };
        let tokens = taken.get(at).map_or(0, Vec::len);
        Instance { server, rack, tokens: if tokens > 0 { tokens } else { cassandra.tokens } }
    };
    let instances: Vec<Instance> = numbers.iter().enumerate().map(instance).collect();
    let mut chance = Chance::new(SEED);
    let mut random = || chance.draw();
    let ring = match taken.iter().any(|tokens| !tokens.is_empty()) {
        true => Ring::extended(instances, &taken, replication),
        false => Ring::new(instances, replication, cassandra.picked, &mut random),
    };
    let placement = ring.placement(replication);
    let doubled = placement.doubled();
    if doubled > 0.0 && servers >= replication && !cassandra.accept_loss {
        return Err(CassandraError::Loses { doubled: doubled * 100.0 });
    }
    let (pairs, lost_with_pair) = placement.lost_with_two();
    let disks: Bytes = spec.server.disks.iter().copied().sum();
    let summary = CassandraSummary {
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
    Ok(BuiltRing { ring, numbers, summary })
}
