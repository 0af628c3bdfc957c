//! What an instance of Cassandra is set to.

use serde_json::Value;
use sprat_plan::Spec;
use sprat_plan::quantity::Bytes;
use sprat_plan::spec::Cassandra;
use std::collections::BTreeMap;

pub use sprat_plan::spec::Collector;

/// Heap, where nobody tells: a quarter of what an instance has, within these.
const LEAST_HEAP: f64 = 256.0 * MIB;
const MOST_HEAP: f64 = 8.0 * 1024.0 * MIB;
const MIB: f64 = 1_048_576.0;

/// Heaps from which a collector that runs beside the program is worth its threads.
const CONCURRENT_FROM: f64 = 2.0 * 1024.0 * MIB;

/// Reads at once, for each disk; writes at once, for each core: the published set-up's 32 and 64
/// for two disks and eight cores.
const READS_PER_DISK: usize = 16;
const WRITES_PER_CORE: usize = 8;
const LEAST_AT_ONCE: usize = 8;

/// Heaps below which everything else is kept small too.
const SMALL: f64 = 1024.0 * MIB;

/// What an instance is set to.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Its heap, whole mebibytes.
    pub heap_mib: u64,
    /// Who collects what is left on it.
    pub collector: Collector,
    /// Cores that are its own.
    pub cores: usize,
    /// Reads at once.
    pub concurrent_reads: usize,
    /// Writes at once.
    pub concurrent_writes: usize,
    /// Of `cassandra.yaml` what is to be otherwise, whatever else is said here.
    pub yaml: BTreeMap<String, Value>,
    /// Arguments for Java besides; of two that contradict each other the last counts, and these
    /// come last.
    pub java: Vec<String>,
}

impl Settings {
    /// Those of each instance of a rack.
    #[must_use]
    pub fn of(spec: &Spec, asked: &Cassandra) -> Self {
        let share = spec.server.memory.times(1.0 / asked.instances as f64);
        let heap = asked.heap.unwrap_or(Bytes((share.0 / 4.0).clamp(LEAST_HEAP, MOST_HEAP)));
        let collector = asked.collector.unwrap_or(match heap.0 {
            large if large >= CONCURRENT_FROM => Collector::Z,
            small if small < SMALL => Collector::Serial,
            _ => Collector::G1,
        });
        let cores = (spec.server.cores / asked.instances).max(1);
        let disks = (spec.server.disks.len() / asked.instances).max(1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a heap that fits into a server"
        )]
        let heap_mib = (heap.0 / MIB) as u64;
        Self {
            heap_mib: heap_mib.max(1),
            collector,
            cores,
            concurrent_reads: (READS_PER_DISK * disks).max(LEAST_AT_ONCE),
            concurrent_writes: (WRITES_PER_CORE * cores).max(LEAST_AT_ONCE),
            yaml: asked.yaml.clone(),
            java: asked.java.clone(),
        }
    }

    /// Whether it is so small that what is not needed is left away.
    #[must_use]
    pub fn small(&self) -> bool {
        (self.heap_mib as f64) * MIB < SMALL
    }
}
