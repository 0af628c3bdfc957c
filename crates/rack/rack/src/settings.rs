//! Derives the settings of Cassandra's instances from a description.

use serde_json::Value;
use sprat_plan::Spec;
use sprat_plan::quantity::Bytes;
use sprat_plan::spec::Cassandra;
use std::collections::BTreeMap;

pub use sprat_plan::spec::Collector;

/// Limits of the default heap, which is a quarter of an instance's memory.
const LEAST_HEAP: f64 = 256.0 * MIB;
const MOST_HEAP: f64 = 8.0 * 1024.0 * MIB;
const MIB: f64 = 1_048_576.0;

/// Smallest heap for which a concurrent collector is worth the threads that it takes.
const CONCURRENT_FROM: f64 = 2.0 * 1024.0 * MIB;

/// Concurrent reads per disk and concurrent writes per core. The published set-up has 32 reads and
/// 64 writes for two disks and eight cores.
const READS_PER_DISK: usize = 16;
const WRITES_PER_CORE: usize = 8;
const LEAST_AT_ONCE: usize = 8;

/// With a smaller heap than this, caches and buffers are also small.
const SMALL: f64 = 1024.0 * MIB;

/// Settings of an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Heap in MiB.
    pub heap_mib: u64,
    /// Garbage collector.
    pub collector: Collector,
    /// Cores that the instance may use.
    pub cores: usize,
    /// Number of concurrent reads.
    pub concurrent_reads: usize,
    /// Number of concurrent writes.
    pub concurrent_writes: usize,
    /// Settings of `cassandra.yaml` that override all others.
    pub yaml: BTreeMap<String, Value>,
    /// Further arguments for the JVM. They follow all arguments of the plan except the class path,
    /// so a value here overrides the plan's value of the same option. Set collector and heap by
    /// their own keys instead: the JVM does not start with two collectors, or with an `-Xmx` below
    /// the plan's `-Xms`.
    pub java: Vec<String>,
}

impl Settings {
    /// Returns the settings of each instance of a rack.
    #[must_use]
    pub fn of(spec: &Spec, cassandra: &Cassandra) -> Self {
        let share = spec.server.memory.times(1.0 / cassandra.instances as f64);
        let heap = cassandra.heap.unwrap_or(Bytes((share.0 / 4.0).clamp(LEAST_HEAP, MOST_HEAP)));
        let collector = cassandra.collector.unwrap_or(match heap.0 {
            large if large >= CONCURRENT_FROM => Collector::Z,
            small if small < SMALL => Collector::Serial,
            _ => Collector::G1,
        });
        let cores = (spec.server.cores / cassandra.instances).max(1);
        let disks = (spec.server.disks.len() / cassandra.instances).max(1);
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
            yaml: cassandra.yaml.clone(),
            java: cassandra.java.clone(),
        }
    }

    /// Returns whether the heap is so small that caches and buffers must also be small.
    #[must_use]
    pub fn small(&self) -> bool {
        (self.heap_mib as f64) * MIB < SMALL
    }
}
