//! Scenarios that compare systems. Each scenario starts the given systems, puts all of them under
//! the same load alternately, and returns their figures. The caller judges the figures against
//! goals.
//!
//! | scenario | what it measures |
//! | --- | --- |
//! | [`read_latency`] | latency of one 100 B read, and of a bare echo |
//! | [`write_latency`] | latency of one 100 B write in memory |
//! | [`durable_write`] | latency and rate of durable writes |
//! | [`reads_and_writes`] | latency and rate of reads and writes, for systems with replicas |
//! | [`batch_reads`] | latency of reads of many objects in one request, and of single reads |
//! | [`transactions`] | latency of transactions, of a write, and of a batch of reads |
//! | [`contended`] | transactions per second, and aborted ones, of clients that share objects |
//! | [`throughput`] | operations per second with many connections, or pipelined |
//! | [`offered`] | latency at a given rate, whether or not the server keeps up |
//! | [`contention`] | latency of one read while another thread burns CPU |
//! | [`memory`] | resident bytes per object |
//! | [`restart`] | objects replayed per second |
//! | [`idle`] | CPU use of a server without requests |
//! | [`ladder`] | latency of each path, with and without the store |
//! | [`volume`] | throughput of large objects, and of many small ones |
//! | [`utilisation`] | cost of cleaning when memory is nearly full |

mod capacity;
mod contended;
mod ladder;
mod latency;
mod throughput;
mod utilisation;

use std::time::Duration;

use anyhow::{Context, Result};

pub use capacity::{Idle, Memory, Restart, idle, memory, restart};
pub use contended::{CLIENTS, Contended, Contender, EXPONENT, OBJECTS, OpenContender, contended};
pub(crate) use contended::{number_of, value_of};
pub(crate) use ladder::climb;
pub use ladder::{DEPTH, LARGE_BYTES, Path, ladder, shared_memory, volume};
pub use latency::{
    READ_TOGETHER, WRITTEN_TOGETHER, batch_reads, contention, durable_write, read_latency,
    reads_and_writes, transactions, write_latency,
};
pub use throughput::{Mix, offered, throughput};
pub use utilisation::{BESIDE_RATE, Utilisation, utilisation};

use crate::system::{Durability, Server, Setup, System};
use sprat_measure::cpu::Fifo;
use sprat_measure::load::{LoadPlan, Results};
use sprat_measure::target::LoadTarget;

/// Bytes of the values in most scenarios.
pub const VALUE_BYTES: usize = 100;

/// Where and how long scenarios measure.
#[derive(Clone, Debug)]
pub struct Lab {
    /// How servers are started. Each scenario sets the durability that it needs.
    pub setup: Setup,
    /// The core to which the load generator is pinned, if any.
    pub client_core: Option<usize>,
    /// The SCHED_FIFO priority of the generator, if any. If the generator has its own core, no
    /// ordinary process then delays it.
    pub client_fifo: Option<u8>,
    /// Number of measurements of each system.
    pub rounds: usize,
    /// Warm-up time of a measurement. It does not count.
    pub warm_up: Duration,
    /// Time of a measurement.
    pub duration: Duration,
    /// Number of objects to read and write.
    pub keys: u64,
}

impl Lab {
    /// Returns the defaults. If there are at least two cores, servers run on the last core and the
    /// generator on the first. There are three rounds of a second.
    #[must_use]
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let apart = cores > 1;
        Self {
            setup: Setup { core: apart.then_some(cores - 1), ..Setup::new() },
            client_core: apart.then_some(0),
            client_fifo: None,
            rounds: 3,
            warm_up: Duration::from_millis(200),
            duration: Duration::from_secs(1),
            keys: 100_000,
        }
    }

    /// Returns this lab with a SCHED_FIFO generator, which no ordinary process can delay. The
    /// generator is unchanged if this process is not allowed to use SCHED_FIFO, or if the generator
    /// has no core.
    #[must_use]
    pub fn undisturbed(&self) -> Self {
        const PRIORITY: u8 = 10;
        let may = self.client_core.is_some() && Fifo::current_thread(PRIORITY).is_ok();
        Self { client_fifo: may.then_some(PRIORITY), ..self.clone() }
    }

    /// Returns the setup for servers that keep writes in memory only.
    pub(crate) fn in_memory(&self) -> Setup {
        Setup { durability: Durability::Memory, ..self.setup.clone() }
    }

    /// Sets a plan's times to the lab's.
    fn timed(&self, plan: LoadPlan) -> LoadPlan {
        LoadPlan { warm_up: self.warm_up, duration: self.duration, ..plan }
    }
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

/// A target that is filled with objects, and its server.
pub(crate) struct Loaded {
    pub(crate) target: Box<dyn LoadTarget>,
    pub(crate) label: String,
    pub(crate) plan: LoadPlan,
    pub(crate) server: Option<Box<dyn Server>>,
}

/// Starts every system that offers the setup's durability, opens `connections` to each, and fills
/// each with the plan's keys.
fn load(
    systems: &[&dyn System],
    setup: &Setup,
    connections: usize,
    plan: &LoadPlan,
) -> Result<Vec<Loaded>> {
    let offering = systems.iter().filter(|system| system.offers(setup.durability));
    let loaded = offering.map(|system| {
        let server = system.start(setup).with_context(|| format!("starting {}", system.name()))?;
        let mut target = server.connect(connections)?;
        sprat_measure::load::preload(target.as_mut(), &plan.workload)?;
        target.set_active(false);
        Ok(Loaded {
            target,
            label: system.name().to_owned(),
            plan: plan.clone(),
            server: Some(server),
        })
    });
    loaded.collect()
}

/// Measures all targets alternately, then stops them.
fn measure(lab: &Lab, title: &str, loaded: Vec<Loaded>) -> Result<Results> {
    let with_its_plan = |one: Loaded| {
        let plans = vec![("", one.plan.clone())];
        (one, plans)
    };
    ladder::climb(lab, title, loaded.into_iter().map(with_its_plan).collect())
}
