//! Which operation is the next one: by the workload, by chance from a seed.

use crate::load::{Load, Workload};
use sprat_chance::Chance;
use std::time::Duration;

/// How many rows a read of [`Workload::Series`] or [`Workload::Wide`] asks for.
pub const SLICE_ROWS: u64 = 10;

/// How much time of a sensor is in one partition.
pub const SERIES_BUCKET: Duration = Duration::from_secs(3_600);

/// The stream of chance that is the operations'.
const STREAM: u64 = 2;

/// An operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation {
    /// Write a key's value, which carries its stamp.
    Put {
        /// Which.
        key: u64,
        /// The operation's number upon the run's base: the time of the write, us since 1970, and
        /// what its value begins with.
        stamp: u64,
    },
    /// Read a key's value.
    Get {
        /// Which.
        key: u64,
    },
    /// Append to a sensor's values.
    Append {
        /// Which.
        sensor: u64,
        /// When, ns since 1970.
        at: u64,
    },
    /// Read a sensor's newest values.
    Newest {
        /// Which.
        sensor: u64,
        /// When, ns since 1970.
        at: u64,
    },
    /// Append a row to a partition.
    Grow {
        /// Which.
        partition: u64,
        /// Its number there.
        row: u64,
    },
    /// Read rows of a partition.
    Slice {
        /// Which.
        partition: u64,
        /// From here on.
        row: u64,
    },
}

/// Operations in order, without end. The first has the number 1.
#[derive(Clone, Debug)]
pub struct Operations {
    workload: Workload,
    reads: f64,
    base: u64,
    number: u64,
    /// Rows of each partition.
    rows: Vec<u64>,
    chance: Chance,
}

impl Operations {
    /// Of a load that has been checked. `base` is when it began, us since 1970; `rows` are those
    /// that partitions have already, none where nothing is said.
    #[must_use]
    pub fn new(load: &Load, base: u64, mut rows: Vec<u64>) -> Self {
        if let Workload::Wide { partitions } = load.workload {
            rows.resize(usize::try_from(partitions).expect("a checked load has few"), 0);
        }
        let chance = Chance::stream(load.seed, STREAM);
        Self { workload: load.workload, reads: load.reads, base, number: 0, rows, chance }
    }

    /// The next one, which is to start `offset` ns after the beginning.
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
