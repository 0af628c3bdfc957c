//! The cost of a nearly full memory, in which every overwrite makes work for the cleaner.

use sprat_measure::load::Results;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::{Lab, Loaded, VALUE_BYTES, measure};
use crate::ours::{Sprat, SpratServer};
use crate::system::{Durability, Server, Setup};
use sprat_measure::load::{LoadPlan, Workload, preload_range, run};
use sprat_measure::target::{Completion, LoadTarget, Op, Wait};

/// Memory of the servers in bytes. Even the free tenth of it has room for many segments.
const MEMORY: u64 = 768 << 20;

/// Number of objects to write first, to measure the bytes of log that an object takes.
const SAMPLE: u64 = 10_000;

/// Overwrites in flight.
const DEPTH: usize = 64;

/// Bytes of overwrites before measuring, as a multiple of the free memory. The log is then in its
/// steady state.
const AGEING: f64 = 1.5;

/// Limit on the time of the overwrites before measuring. Also the time to wait for the answers to a
/// burst of writes.
const AGEING_LIMIT: Duration = Duration::from_secs(20);

/// Overwrites per second during the timed reads.
pub const BESIDE_RATE: u32 = 40_000;

/// Share of the memory that live objects take in the server without cleaning. Reads are compared
/// with reads from this server.
const ROOMY: f64 = 0.25;

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Utilisation {
    /// Random overwrites at 50 % and at 90 % of the memory, in this order.
    pub overwrites: Results,
    /// One client's reads during overwrites at a fixed rate: without cleaning (25 % full), and with
    /// cleaning (90 % full).
    pub reads: Results,
    /// Bytes that the cleaner moved during the reads: without cleaning, then with cleaning.
    pub moved: [u64; 2],
}

/// A server whose live objects take a given share of its memory.
struct Filled {
    server: SpratServer,
    keys: u64,
    free_bytes: u64,
    log_bytes: f64,
}

/// Measures random overwrites of 100 B objects when live objects take half, and then nine tenths,
/// of the memory. Also measures one client's reads during overwrites at a fixed rate, with and
/// without cleaning. `system` keeps its log in memory only.
///
/// # Errors
/// When a server cannot be started or fails.
pub fn utilisation(lab: &Lab, system: &Sprat) -> Result<Utilisation> {
    let half = fill(lab, system, 0.5)?;
    let full = fill(lab, system, 0.9)?;
    let mut loaded = Vec::new();
    for (filled, label) in [(&half, "50 % full"), (&full, "90 % full")] {
        let mut target = filled.server.connect(1)?;
        let plan = LoadPlan {
            depth: DEPTH,
            ..lab
                .timed(LoadPlan::one_client(Workload::writes(filled.keys, VALUE_BYTES), Wait::Spin))
        };
        age(target.as_mut(), filled, &plan)?;
        loaded.push(Loaded { target, label: label.to_owned(), plan, server: None });
    }
    let overwrites =
        measure(lab, &format!("{VALUE_BYTES} B random overwrites, {DEPTH} in flight"), loaded)?;
    drop(half);
    let roomy = fill(lab, system, ROOMY)?;
    let before = [moved(&roomy)?, moved(&full)?];
    let mut loaded = Vec::new();
    // The cleaner catches up while the server is idle. So a burst of writes before each measurement
    // makes the cleaner work again.
    let burst = whole(full.free_bytes as f64 / full.log_bytes);
    for (filled, label, burst) in
        [(&roomy, "25 % full, no cleaning", 0), (&full, "90 % full, cleaning", burst)]
    {
        let plan =
            lab.timed(LoadPlan::one_client(Workload::reads(filled.keys, VALUE_BYTES), Wait::Spin));
        let writes = filled.server.connect(1)?;
        let mut target =
            Box::new(ReadsBesideWrites::new(filled.server.connect(1)?, writes, filled.keys, burst));
        target.set_active(false);
        loaded.push(Loaded { target, label: label.to_owned(), plan, server: None });
    }
    let title = format!(
        "{VALUE_BYTES} B reads, one client, beside {BESIDE_RATE} random overwrites a second"
    );
    let reads = measure(lab, &title, loaded)?;
    let after = [moved(&roomy)?, moved(&full)?];
    let moved = [after[0].saturating_sub(before[0]), after[1].saturating_sub(before[1])];
    Ok(Utilisation { overwrites, reads, moved })
}

fn fill(lab: &Lab, system: &Sprat, share: f64) -> Result<Filled> {
    let setup = Setup { durability: Durability::Memory, memory_bytes: MEMORY, ..lab.setup.clone() };
    let server = system.launch(&setup)?;
    let mut target = server.connect(1)?;
    let workload = Workload::writes(u64::MAX, VALUE_BYTES);
    preload_range(target.as_mut(), &workload, 0..SAMPLE)?;
    let object_bytes = server.counter("object_bytes")?;
    let log_bytes = object_bytes as f64 / SAMPLE as f64;
    let memory_bytes = server.counter("memory_bytes")?;
    let keys = whole(memory_bytes as f64 * share / log_bytes);
    ensure!(keys > SAMPLE, "{memory_bytes} bytes of memory are too few to fill");
    preload_range(target.as_mut(), &workload, SAMPLE..keys)?;
    let free_bytes = server.counter("memory_free_bytes")?;
    target.set_active(false);
    Ok(Filled { server, keys, free_bytes, log_bytes })
}

/// Overwrites objects until the cleaner is in its steady state.
fn age(target: &mut dyn LoadTarget, filled: &Filled, plan: &LoadPlan) -> Result<()> {
    let writes = whole(filled.free_bytes as f64 * AGEING / filled.log_bytes);
    target.set_active(true);
    let plan = LoadPlan {
        warm_up: Duration::ZERO,
        duration: AGEING_LIMIT,
        max_ops: Some(writes),
        ..plan.clone()
    };
    let aged = run(target, &plan)?;
    target.set_active(false);
    ensure!(aged.failures() == 0, "{} of {} overwrites failed", aged.failures(), aged.ended);
    Ok(())
}

fn moved(filled: &Filled) -> Result<u64> {
    let mut target = filled.server.connect(1)?;
    target.set_active(true);
    let moved = filled.server.counter("cleaner_compacted_bytes_total")?
        + filled.server.counter("cleaner_combined_bytes_total")?;
    target.set_active(false);
    Ok(moved)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of bytes and objects, far below 2^53"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

/// A target for reads that also makes overwrites at a fixed rate. The load generator does not see
/// the overwrites.
struct ReadsBesideWrites {
    reads: Box<dyn LoadTarget>,
    writes: Box<dyn LoadTarget>,
    keys: u64,
    chance: sprat_chance::Chance,
    value: Vec<u8>,
    /// Number of writes to make at full speed before each measurement.
    burst: u64,
    /// The error of writes between measurements.
    trouble: Option<anyhow::Error>,
    started: std::time::Instant,
    sent: u64,
    answered: u64,
    done: Vec<Completion>,
}

impl ReadsBesideWrites {
    fn new(reads: Box<dyn LoadTarget>, writes: Box<dyn LoadTarget>, keys: u64, burst: u64) -> Self {
        Self {
            reads,
            writes,
            keys,
            burst,
            trouble: None,
            chance: sprat_chance::Chance::new(7),
            value: vec![0x5A; VALUE_BYTES],
            started: std::time::Instant::now(),
            sent: 0,
            answered: 0,
            done: Vec::new(),
        }
    }
}

impl ReadsBesideWrites {
    /// Makes `count` writes at full speed, and waits for all answers.
    fn write_burst(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            self.write()?;
        }
        let until = std::time::Instant::now() + AGEING_LIMIT;
        while self.sent > self.answered {
            self.take()?;
            ensure!(std::time::Instant::now() < until, "writes beside the reads are not answered");
        }
        Ok(())
    }

    /// Submits a write, after waiting until fewer than [`DEPTH`] are in flight.
    fn write(&mut self) -> Result<()> {
        while self.sent - self.answered >= DEPTH as u64 {
            self.take()?;
        }
        let mut key = [0; 30];
        sprat_measure::load::keys::write_key(self.chance.below(self.keys), &mut key);
        self.sent += u64::from(self.writes.submit(
            0,
            &Op::Put { key: &key, value: &self.value },
            self.sent,
        )?);
        Ok(())
    }

    /// Sends submitted writes, and takes the answers that have arrived.
    fn take(&mut self) -> Result<()> {
        self.writes.poll(Duration::ZERO, &mut self.done)?;
        self.answered += self.done.len() as u64;
        self.done.clear();
        Ok(())
    }
}

impl LoadTarget for ReadsBesideWrites {
    fn name(&self) -> &str {
        self.reads.name()
    }

    fn transport(&self) -> &str {
        self.reads.transport()
    }

    fn connections(&self) -> usize {
        self.reads.connections()
    }

    fn submit(&mut self, connection: usize, op: &Op<'_>, tag: u64) -> Result<bool> {
        self.reads.submit(connection, op, tag)
    }

    fn poll(&mut self, patience: Duration, done: &mut Vec<Completion>) -> Result<()> {
        self.reads.poll(patience, done)?;
        if let Some(error) = self.trouble.take() {
            return Err(error);
        }
        let due = whole(self.started.elapsed().as_secs_f64() * f64::from(BESIDE_RATE));
        if self.sent < due && self.sent - self.answered < DEPTH as u64 {
            self.write()?;
        }
        if self.sent > self.answered {
            self.take()?;
        }
        Ok(())
    }

    fn set_active(&mut self, active: bool) {
        if active {
            self.reads.set_active(true);
            self.trouble = self.write_burst(self.burst).err();
            self.started = std::time::Instant::now();
            (self.sent, self.answered) = (0, 0);
        } else {
            self.trouble = self.write_burst(0).err();
            self.reads.set_active(false);
        }
    }
}
