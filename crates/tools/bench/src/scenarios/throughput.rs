//! Rates and latencies with many operations in flight.

use anyhow::Result;
use sprat_measure::load::Results;

use super::{Lab, VALUE_BYTES, load, measure};
use crate::system::{Durability, Setup, System};
use sprat_measure::load::{Arrivals, KeyDistribution, LoadPlan, Pace, Workload};
use sprat_measure::target::Wait;
use sprat_units::figure;

/// The load of the clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Number of connections. Each has one client.
    pub connections: usize,
    /// Operations that each client keeps in flight. With 1, the client waits for every answer; with
    /// more, it pipelines.
    pub depth: usize,
    /// Share of reads, 0 to 1.
    pub read_share: f64,
    /// How keys are chosen.
    pub key_distribution: KeyDistribution,
    /// What each write survives.
    pub durability: Durability,
}

impl Mix {
    /// Creates a mix of reads only, of uniformly distributed keys, in memory.
    #[must_use]
    pub fn reads(connections: usize, depth: usize) -> Self {
        Self {
            connections,
            depth,
            read_share: 1.0,
            key_distribution: KeyDistribution::Uniform,
            durability: Durability::Memory,
        }
    }

    /// Creates a mix of writes only, of uniformly distributed keys, in memory.
    #[must_use]
    pub fn writes(connections: usize, depth: usize) -> Self {
        Self { read_share: 0.0, ..Self::reads(connections, depth) }
    }

    /// Makes each write synced before its answer.
    #[must_use]
    pub fn synced(self) -> Self {
        Self { durability: Durability::Sync, ..self }
    }

    fn plan(self, lab: &Lab) -> LoadPlan {
        let Self { connections, depth, read_share, key_distribution, .. } = self;
        let workload =
            Workload { read_share, key_distribution, ..Workload::reads(lab.keys, VALUE_BYTES) };
        LoadPlan {
            clients: connections,
            depth,
            ..lab.timed(LoadPlan::one_client(workload, Wait::Spin))
        }
    }
}

/// Measures operations per second on 100 B objects, with the load `mix`. One spinning
/// generator thread makes the load. The server is the bottleneck as long as the generator needs
/// less time per operation than the server.
///
/// # Errors
/// When a system cannot be started or fails.
pub fn throughput(lab: &Lab, systems: &[&dyn System], mix: Mix) -> Result<Results> {
    let plan = mix.plan(lab);
    let Mix { connections, depth, read_share, durability, .. } = mix;
    let setup = Setup { durability, ..lab.setup.clone() };
    let loaded = load(systems, &setup, connections, &plan)?;
    let reads = read_share * 100.0;
    let synced = if durability == Durability::Sync { ", each write synced" } else { "" };
    let title = format!(
        "{VALUE_BYTES} B objects, {reads:.0} % reads, {connections} connections, {depth} in \
         flight on each{synced}"
    );
    measure(lab, &title, loaded)
}

/// Measures the latencies of reads and writes of 100 B objects in memory, in an open loop:
/// operations arrive as a Poisson process at `rate` a second. The depth of `mix` only limits the
/// number of operations in flight.
///
/// # Errors
/// When a system cannot be started or fails.
pub fn offered(lab: &Lab, systems: &[&dyn System], mix: Mix, rate: f64) -> Result<Results> {
    let plan = LoadPlan { pace: Pace::Open { rate, arrivals: Arrivals::Poisson }, ..mix.plan(lab) };
    let loaded = load(systems, &lab.in_memory(), mix.connections, &plan)?;
    let (reads, connections, rate) = (mix.read_share * 100.0, mix.connections, figure::rate(rate));
    let title = format!(
        "{VALUE_BYTES} B objects, {reads:.0} % reads, {rate} offered over {connections} connections"
    );
    measure(lab, &title, loaded)
}
