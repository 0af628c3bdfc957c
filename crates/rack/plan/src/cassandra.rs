//! Cassandra on a rack: who is on the ring, what it holds, and whether a server that fails takes
//! data with it.

use crate::fabric::Fabric;
use crate::layout::Layout;
use crate::quantity::Bytes;
use crate::ring::{Instance, Member, Ring};
use crate::spec::{Cassandra, Racks, Spec};
use serde::Serialize;
use sprat_chance::Chance;
use std::collections::BTreeMap;

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
    /// Room for rows, each counted once: what replicas take is taken off, and what compaction
    /// needs.
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
    #[error(
        "cassandra: {0} tokens in all, {MAX_RING} are the most: fewer tokens an instance, or several clusters"
    )]
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
    /// Somebody is on the ring whom the description does not have.
    #[error(
        "{0} is on the ring, and the description has it no more: put it back, and have it leave (sprat rack remove) before it goes from there"
    )]
    Unknown(String),
}

/// A ring, who is on it, and what it comes to.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) ring: Ring,
    /// The ring's instances, each by its number among all of the plan's, counted server by server.
    pub(crate) numbers: Vec<usize>,
    pub(crate) summary: Summary,
}

/// The ring of a rack, and what it comes to.
///
/// # Errors
/// It cannot be, or would lose data with a server although it need not.
pub(crate) fn ring(
    spec: &Spec,
    cassandra: &Cassandra,
    layout: &Layout<'_>,
    fabric: &Fabric,
) -> Result<Made, CassandraError> {
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
            let known = |(name, member): (&String, &Member)| match names.get(name) {
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
    if cassandra.racks == Racks::Chassis && fabric.stations < replication {
        return Err(few(fabric.stations, "chassis"));
    }
    if servers < replication && !cassandra.accept_loss {
        return Err(few(servers, "servers"));
    }
    let instance = |(at, number): (usize, &usize)| {
        let server = number / cassandra.instances;
        let rack = match cassandra.racks {
            Racks::Host => server,
            Racks::Chassis => server / in_chassis,
            Racks::One => 0,
        };
        let tokens = taken.get(at).map_or(0, Vec::len);
        Instance { server, rack, tokens: if tokens > 0 { tokens } else { cassandra.tokens } }
    };
    let instances: Vec<Instance> = numbers.iter().enumerate().map(instance).collect();
    let mut chance = Chance::new(SEED);
    let mut random = || chance.draw();
    let ring = match taken.iter().any(|tokens| !tokens.is_empty()) {
        true => Ring::grown(instances, &taken, replication),
        false => Ring::new(instances, replication, cassandra.picked, &mut random),
    };
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
    Ok(Made { ring, numbers, summary })
}
