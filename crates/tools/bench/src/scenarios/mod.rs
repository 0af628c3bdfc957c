//! What the store is measured by. Every scenario starts the systems it is given, puts all of them
//! under the same load turn by turn, and returns their figures; goals are judged by whoever knows
//! which system is ours.
//!
//! | scenario | question |
//! | --- | --- |
//! | [`read_latency`] | how long one 100 B read takes, beside the bare echo |
//! | [`write_latency`] | the same for writes kept in memory |
//! | [`durable_write`] | how long, and how many a second, when a write must survive |
//! | [`reads_and_writes`] | both, of systems that keep what is written elsewhere too |
//! | [`throughput`] | operations a second with many connections, and pipelined |
//! | [`offered`] | latency at a given rate, whether or not the server keeps up |
//! | [`contention`] | one read's latency when a hog wants the cores too |
//! | [`memory`] | resident bytes an object |
//! | [`restart`] | objects a second replayed |
//! | [`idle`] | CPU used by a server nobody asks anything |
//! | [`ladder`] | what each path costs, and what the store adds |
//! | [`volume`] | how much goes through |
//! | [`utilisation`] | what cleaning costs when memory is nearly full |

mod capacity;
mod ladder;
mod latency;
mod throughput;
mod utilisation;

use std::time::Duration;

use anyhow::{Context, Result};

pub use capacity::{Idle, Memory, Restart, idle, memory, restart};
pub use ladder::{DEPTH, LARGE_BYTES, Path, ladder, shared_memory, volume};
pub use latency::{contention, durable_write, read_latency, reads_and_writes, write_latency};
pub use throughput::{Mix, offered, throughput};
pub use utilisation::{BESIDE_RATE, Utilisation, utilisation};

use crate::system::{Durability, Server, Setup, System};
use sprat_measure::cpu::Fifo;
use sprat_measure::load::{LoadPlan, Results};
use sprat_measure::target::LoadTarget;

/// Length of the values most scenarios use, bytes.
pub const VALUE_BYTES: usize = 100;

/// Where and how long scenarios measure.
#[derive(Clone, Debug)]
pub struct Lab {
    /// How servers are started; each scenario sets the durability it needs.
    pub setup: Setup,
    /// The core of the load generator; any, if `None`.
    pub client_core: Option<usize>,
    /// The generator's SCHED_FIFO priority, if it is to have one: no other process then delays it,
    /// on a core that is its own.
    pub client_fifo: Option<u8>,
    /// Turns each system gets.
    pub rounds: usize,
    /// Time before a turn counts.
    pub warm_up: Duration,
    /// Time a turn counts.
    pub duration: Duration,
    /// Objects that are read and written.
    pub keys: u64,
}

impl Lab {
    /// Servers on the last core and the generator on the first, if there are two; three rounds of a
    /// second.
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

    /// The same with a generator that nothing ordinary can delay, where this process may ask for
    /// that.
    #[must_use]
    pub fn undisturbed(&self) -> Self {
        const PRIORITY: u8 = 10;
        let may = self.client_core.is_some() && Fifo::current_thread(PRIORITY).is_ok();
        Self { client_fifo: may.then_some(PRIORITY), ..self.clone() }
    }

    /// How servers are started that keep what is written in memory only.
    pub(crate) fn in_memory(&self) -> Setup {
        Setup { durability: Durability::Memory, ..self.setup.clone() }
    }

    /// The load's times are the lab's.
    fn timed(&self, plan: LoadPlan) -> LoadPlan {
        LoadPlan { warm_up: self.warm_up, duration: self.duration, ..plan }
    }
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

/// A target with what it needs to stay alive.
struct Loaded {
    target: Box<dyn LoadTarget>,
    label: String,
    plan: LoadPlan,
    server: Option<Box<dyn Server>>,
}

/// Starts every system with `setup`, opens `connections`, fills it with the plan's keys.
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

/// Measures all of them turn by turn, then stops them.
fn measure(lab: &Lab, title: &str, loaded: Vec<Loaded>) -> Result<Results> {
    let with_its_plan = |one: Loaded| {
        let plans = vec![("", one.plan.clone())];
        (one, plans)
    };
    ladder::climb(lab, title, loaded.into_iter().map(with_its_plan).collect())
}
