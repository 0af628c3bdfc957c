//! Measures the memory of an object, the time of a restart, and the CPU use of an idle server.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use super::{Lab, VALUE_BYTES};
use crate::system::{Durability, Setup, System};
use sprat_measure::cpu;
use sprat_measure::load::{LoadPlan, Workload, preload, run};
use sprat_measure::target::Wait;
use sprat_measure::usage;

/// Memory to configure per byte of objects: enough for each system.
const MEMORY_PER_BYTE: u64 = 4;

/// Lower limit on the memory to configure.
const MEMORY_FLOOR: u64 = 1 << 30;

/// Number of objects that are verified after a restart.
const CHECKED: u64 = 1_000;

/// Time between a load's end and a measurement of the idle server.
const SETTLE: Duration = Duration::from_millis(500);

/// The resident memory of a system with a number of objects.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// Name of the system.
    pub system: String,
    /// Number of objects with keys of 30 B and values of 100 B.
    pub objects: u64,
    /// Resident bytes when empty.
    pub empty_bytes: u64,
    /// Resident bytes when full.
    pub full_bytes: u64,
    /// Objects per second while filling over one pipelined connection.
    pub fill_per_second: f64,
}

impl Memory {
    /// Returns the resident bytes per object, which include the resident bytes of the empty server.
    #[must_use]
    pub fn per_object(&self) -> f64 {
        self.full_bytes as f64 / self.objects as f64
    }
}

/// The restart of a killed system.
#[derive(Clone, Debug, Serialize)]
pub struct Restart {
    /// Name of the system.
    pub system: String,
    /// Number of objects with keys of 30 B and values of 100 B.
    pub objects: u64,
    /// Seconds from the start to the first answer.
    pub seconds: f64,
    /// CPU seconds of the restart.
    pub cpu_seconds: f64,
    /// Missing or wrong objects, among a thousand that were verified.
    pub lost: u64,
}

impl Restart {
    /// Returns the objects replayed per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.objects as f64 / self.seconds
    }

    /// Returns the objects replayed per second of CPU time, which is comparable between systems
    /// with different numbers of threads.
    #[must_use]
    pub fn per_cpu_second(&self) -> f64 {
        self.objects as f64 / self.cpu_seconds
    }
}

/// An idle server with one open connection.
#[derive(Clone, Debug, Serialize)]
pub struct Idle {
    /// The system.
    pub system: String,
    /// CPU use as a share of one core.
    pub cores: f64,
}

/// Fills every system that can keep objects in memory with `objects` of 30 B + 100 B. Measures the
/// resident memory of each.
///
/// # Errors
/// When a system cannot be started or fails.
pub fn memory(lab: &Lab, systems: &[&dyn System], objects: u64) -> Result<Vec<Memory>> {
    let workload = Workload::writes(objects, VALUE_BYTES);
    let setup = sized(lab, Durability::Memory, &workload);
    let fill = |system: &&dyn System| -> Result<Memory> {
        let server = system.start(&setup)?;
        let empty_bytes = usage::rss_bytes(server.pid())?;
        let mut target = server.connect(1)?;
        let took = preload(target.as_mut(), &workload)?;
        cpu::pause(SETTLE);
        Ok(Memory {
            system: system.name().to_owned(),
            objects,
            empty_bytes,
            full_bytes: usage::rss_bytes(server.pid())?,
            fill_per_second: objects as f64 / took.as_secs_f64(),
        })
    };
    let offering = systems.iter().filter(|system| system.offers(Durability::Memory));
    offering.map(|system| fill(system).with_context(|| system.name().to_owned())).collect()
}

/// Fills every durable system with `objects` of 30 B + 100 B, kills it, restarts it, and verifies a
/// thousand of the objects. Objects are written with `buffered` durability and get time to be
/// synced, since the disk's write rate does not matter here.
///
/// # Errors
/// When a system cannot be started or restarted, or fails.
pub fn restart(lab: &Lab, systems: &[&dyn System], objects: u64) -> Result<Vec<Restart>> {
    let workload = Workload::writes(objects, VALUE_BYTES);
    let setup = sized(lab, Durability::Buffered, &workload);
    let cycle = |system: &&dyn System| -> Result<Restart> {
        let mut server = system.start(&setup)?;
        preload(server.connect(1)?.as_mut(), &workload)?;
        cpu::pause(Duration::from_secs(2)); // Redis's `everysec` has synced by then
        let took = server.restart()?;
        let cpu_seconds = usage::cpu_time(server.pid())?.as_secs_f64();
        let mut check = LoadPlan::one_client(Workload::reads(objects, VALUE_BYTES), Wait::Sleep);
        check.warm_up = Duration::ZERO;
        check.duration = Duration::from_secs(10);
        check.max_ops = Some(CHECKED.min(objects));
        let read = run(server.connect(1)?.as_mut(), &check)?;
        let (system, seconds) = (system.name().to_owned(), took.as_secs_f64());
        Ok(Restart { system, objects, seconds, cpu_seconds, lost: read.failures() })
    };
    let offering = systems.iter().filter(|system| system.offers(Durability::Buffered));
    offering.map(|system| cycle(system).with_context(|| system.name().to_owned())).collect()
}

/// Measures the CPU use of each system over `span`, with one open connection and no requests, after
/// a short load.
///
/// # Errors
/// When a system cannot be started or fails.
pub fn idle(lab: &Lab, systems: &[&dyn System], span: Duration) -> Result<Vec<Idle>> {
    let workload = Workload::writes(1_000, VALUE_BYTES);
    let setup = Setup { durability: Durability::Memory, ..lab.setup.clone() };
    let rest = |system: &&dyn System| -> Result<Idle> {
        let server = system.start(&setup)?;
        let mut target = server.connect(1)?;
        preload(target.as_mut(), &workload)?;
        cpu::pause(SETTLE);
        let cores = usage::cpu_share(server.pid(), span)?;
        drop(target); // the connection was open until here
        Ok(Idle { system: system.name().to_owned(), cores })
    };
    let offering = systems.iter().filter(|system| system.offers(Durability::Memory));
    offering.map(|system| rest(system).with_context(|| system.name().to_owned())).collect()
}

fn sized(lab: &Lab, durability: Durability, workload: &Workload) -> Setup {
    let bytes = workload.keys * (workload.key_bytes + workload.value_bytes) as u64;
    let memory_bytes = (bytes * MEMORY_PER_BYTE).max(MEMORY_FLOOR);
    Setup { durability, memory_bytes, ..lab.setup.clone() }
}
