//! Memory an object takes, time a restart takes, CPU an idle server takes.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use super::{Lab, VALUE_BYTES};
use crate::system::{Durability, Setup, System};
use sprat_measure::cpu;
use sprat_measure::load::{LoadPlan, Workload, preload, run};
use sprat_measure::target::Wait;
use sprat_measure::usage;

/// Memory asked for, a byte of object: enough for any system compared.
const MEMORY_PER_BYTE: u64 = 4;

/// Memory asked for whatever the number of objects.
const MEMORY_FLOOR: u64 = 1 << 30;

/// Objects read back after a restart, to see that they are there.
const CHECKED: u64 = 1_000;

/// Time between a load's end and the measurement of what stays.
const SETTLE: Duration = Duration::from_millis(500);

/// Resident memory with a number of objects.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// The system.
    pub system: String,
    /// Objects of 30 B + 100 B.
    pub objects: u64,
    /// Resident bytes when empty.
    pub empty_bytes: u64,
    /// Resident bytes when full.
    pub full_bytes: u64,
    /// Objects a second while filling, by one pipelined connection.
    pub fill_per_second: f64,
}

impl Memory {
    /// Resident bytes an object, the empty server's included.
    #[must_use]
    pub fn per_object(&self) -> f64 {
        self.full_bytes as f64 / self.objects as f64
    }
}

/// A restart after a kill.
#[derive(Clone, Debug, Serialize)]
pub struct Restart {
    /// The system.
    pub system: String,
    /// Objects of 30 B + 100 B it held.
    pub objects: u64,
    /// Time from its start to its first answer, seconds.
    pub seconds: f64,
    /// CPU time that took, seconds.
    pub cpu_seconds: f64,
    /// Of a thousand objects read back, how many were missing or wrong.
    pub lost: u64,
}

impl Restart {
    /// Objects replayed a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.objects as f64 / self.seconds
    }

    /// Objects replayed a second of CPU time: the figure that compares one core's work.
    #[must_use]
    pub fn per_cpu_second(&self) -> f64 {
        self.objects as f64 / self.cpu_seconds
    }
}

/// A server with one open connection and nothing to do.
#[derive(Clone, Debug, Serialize)]
pub struct Idle {
    /// The system.
    pub system: String,
    /// Share of one core it uses.
    pub cores: f64,
}

/// Fills every system that keeps objects in memory with `objects` of 30 B + 100 B and reads its
/// resident memory.
///
/// # Errors
/// When a system cannot be started or breaks.
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

/// Fills every durable system with `objects` of 30 B + 100 B, kills it, starts it again and reads a
/// thousand of them back. Written with `buffered` durability, then given time to sync: the disk's
/// speed at writing is not the question.
///
/// # Errors
/// When a system cannot be started, does not come back, or breaks.
pub fn restart(lab: &Lab, systems: &[&dyn System], objects: u64) -> Result<Vec<Restart>> {
    let workload = Workload::writes(objects, VALUE_BYTES);
    let setup = sized(lab, Durability::Buffered, &workload);
    let cycle = |system: &&dyn System| -> Result<Restart> {
        let mut server = system.start(&setup)?;
        preload(server.connect(1)?.as_mut(), &workload)?;
        cpu::pause(Duration::from_secs(2)); // `everysec` has synced by then
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

/// CPU that each system uses over `span` with one open connection, after a moment's load, when
/// asked nothing.
///
/// # Errors
/// When a system cannot be started or breaks.
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
