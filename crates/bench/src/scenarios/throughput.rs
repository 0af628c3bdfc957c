//! Many operations at once.

use anyhow::Result;

use super::{Lab, Results, VALUE_BYTES, load, measure};
use crate::load::{Choice, Plan, Workload};
use crate::system::{Durability, Setup, System};
use crate::target::Wait;

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Connections, one client each.
    pub connections: usize,
    /// Operations each keeps in flight: 1 waits for every answer, 16 pipelines.
    pub depth: usize,
    /// Share of reads, 0 to 1.
    pub read_share: f64,
    /// How keys are drawn.
    pub choice: Choice,
}

impl Mix {
    /// Reads only, uniformly.
    #[must_use]
    pub fn reads(connections: usize, depth: usize) -> Self {
        Self { connections, depth, read_share: 1.0, choice: Choice::Uniform }
    }

    /// Writes only, uniformly.
    #[must_use]
    pub fn writes(connections: usize, depth: usize) -> Self {
        Self { read_share: 0.0, ..Self::reads(connections, depth) }
    }
}

/// Operations a second on 100 B objects in memory, as `mix` has it, from one generator thread that spins: the server
/// is the bottleneck as long as the generator's core is the faster of the two.
///
/// # Errors
/// When a system cannot be started or breaks.
pub fn throughput(lab: &Lab, systems: &[&dyn System], mix: Mix) -> Result<Results> {
    let Mix { connections, depth, read_share, choice } = mix;
    let workload = Workload { read_share, choice, ..Workload::reads(lab.keys, VALUE_BYTES) };
    let plan = Plan { clients: connections, depth, ..lab.timed(Plan::one_client(workload, Wait::Spin)) };
    let setup = Setup { durability: Durability::Memory, ..lab.setup.clone() };
    let loaded = load(systems, &setup, connections, &plan)?;
    let reads = read_share * 100.0;
    let title =
        format!("{VALUE_BYTES} B objects, {reads:.0} % reads, {connections} connections, {depth} in flight on each");
    measure(lab, &title, loaded)
}
