//! Chooses the operations, by the workload and a seeded random generator.

use crate::load::{Load, Workload};
use sprat_chance::Chance;
use std::time::Duration;

/// Limit on the rows that a read of [`Workload::Series`] or [`Workload::Wide`] fetches.
pub const SLICE_ROWS: u64 = 10;

/// The time span that one partition of a sensor covers.
pub const SERIES_BUCKET: Duration = Duration::from_secs(3_600);

/// Stream of the random generator that chooses operations.
const STREAM: u64 = 2;

/// An operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation {
    /// Write a key's value, which begins with the stamp of the write.
    Put {
        /// The key.
        key: u64,
        /// The base of the run plus the operation's number: both the write's timestamp, in us since
        /// 1970, and the first bytes of the value.
        stamp: u64,
    },
    /// Read a key's value.
    Get {
        /// The key.
        key: u64,
    },
    /// Append to a sensor's values.
    Append {
        /// The sensor.
        sensor: u64,
        /// Time of the value, ns since 1970.
        at: u64,
    },
    /// Read a sensor's newest values.
    Newest {
        /// The sensor.
        sensor: u64,
        /// The present time, ns since 1970.
        at: u64,
    },
    /// Append a row to a partition.
    Grow {
        /// The partition.
        partition: u64,
        /// The number of the row.
        row: u64,
    },
    /// Read rows of a partition.
    Slice {
        /// The partition.
        partition: u64,
        /// The number of the first row to read.
        row: u64,
    },
}

/// An endless sequence of operations. The first operation has the number 1.
#[derive(Clone, Debug)]
pub struct Operations {
    workload: Workload,
    reads: f64,
    base: u64,
    number: u64,
    /// Number of rows of each partition.
    rows: Vec<u64>,
    chance: Chance,
}

impl Operations {
    /// Creates the operations of a checked load. `base` is the start of the load in us since 1970.
    /// `rows` lists the number of rows that each partition already has; partitions beyond the end
    /// of the list have none.
    #[must_use]
    pub fn new(load: &Load, base: u64, mut rows: Vec<u64>) -> Self {
        if let Workload::Wide { partitions } = load.workload {
            rows.resize(usize::try_from(partitions).expect("a checked load has few"), 0);
        }
        let chance = Chance::stream(load.seed, STREAM);
        Self { workload: load.workload, reads: load.reads, base, number: 0, rows, chance }
    }

    /// Returns the next operation, which starts `offset` ns after the start of the load.
    pub fn next(&mut self, offset: u64) -> Operation {
        self.number += 1;
        let read = self.chance.share() < self.reads;
        let at = self.base * 1_000 + offset;
        match self.workload {
            Workload::KeyValue { keys } => {
                let key = self.chance.below(keys);
                if read {
                    Operation::Get { key }
                } else {
                    Operation::Put { key, stamp: self.base + self.number }
                }
            }
            Workload::Series { sensors } => {
                let sensor = self.chance.below(sensors);
                if read {
                    Operation::Newest { sensor, at }
                } else {
                    Operation::Append { sensor, at }
                }
            }
            Workload::Wide { partitions } => {
                let partition = self.chance.below(partitions);
                let rows = &mut self.rows[usize::try_from(partition).expect("one of few")];
                if read {
                    Operation::Slice { partition, row: self.chance.below((*rows).max(1)) }
                } else {
                    *rows += 1;
                    Operation::Grow { partition, row: *rows - 1 }
                }
            }
        }
    }
}
