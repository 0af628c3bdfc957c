//! The changes that tuning can make, the classes of changes, and candidates.

use crate::overlay::Overlay;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A setting and its new value. The change that undoes it is of the same kind, with the previous
/// value.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A file of a host's kernel.
    Host {
        /// Name of the host.
        host: String,
        /// Path of the file, below `/sys` or `/proc`.
        path: String,
        /// The value to write.
        value: String,
    },
    /// Settings of all instances. The instances restart to apply them.
    Instances(Overlay),
    /// A property of a table, in CQL.
    Table {
        /// `keyspace.table`.
        table: String,
        /// Name of the property in ALTER TABLE.
        property: String,
        /// Value of the property in ALTER TABLE.
        value: String,
    },
}

impl Change {
    /// Returns whether instances must restart for the change.
    pub(crate) fn starts_instances(&self) -> bool {
        matches!(self, Self::Instances(_))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { host, path, value } => write!(f, "{host}: {path} = {value}"),
            Self::Instances(overlay) if *overlay == Overlay::default() => {
                write!(f, "instances: as described")
            }
            Self::Instances(overlay) => write!(f, "instances: {}", overlay.lines().join(", ")),
            Self::Table { table, property, value } => write!(f, "{table}: {property} = {value}"),
        }
    }
}

/// A class of settings that are tried together.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Java's heap and garbage collector.
    Collector,
    /// Concurrent reads and writes.
    Concurrency,
    /// Where memtables keep new rows.
    Memtable,
    /// How the commit log is written.
    CommitLog,
    /// How much of disks and processors compaction may use.
    Compaction,
    /// The kernel's read-ahead.
    ReadAhead,
    /// The kernel's I/O scheduler.
    Scheduler,
    /// Huge pages and swapping.
    Memory,
    /// Kernel limits, such as the number of memory maps.
    Limits,
    /// Frequency governor of the processors.
    Governor,
    /// Which cores serve the interrupts of network cards.
    Interrupts,
    /// The kernel's network settings.
    Network,
    /// Chunk size of a table's compression.
    Chunks,
    /// Compaction strategy of a table.
    Strategy,
    /// Speculative retry of a table's reads.
    Speculation,
}

/// The condition under which a change is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Keep {
    /// The change improves latency by more than the measurements' margin.
    Better,
    /// The change does not worsen latency by more than the margin. This suffices for changes that
    /// prevent a rare but costly event.
    NotWorse,
}

impl Class {
    /// All classes, in the order in which they are tried: those with the largest effect first.
    pub const ALL: [Self; 15] = [
        Self::Collector,
        Self::ReadAhead,
        Self::Compaction,
        Self::Concurrency,
        Self::Memtable,
        Self::CommitLog,
        Self::Scheduler,
        Self::Memory,
        Self::Limits,
        Self::Governor,
        Self::Interrupts,
        Self::Network,
        Self::Chunks,
        Self::Strategy,
        Self::Speculation,
    ];

    /// Returns the class's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Collector => "collector",
            Self::Concurrency => "concurrency",
            Self::Memtable => "memtable",
            Self::CommitLog => "commit-log",
            Self::Compaction => "compaction",
            Self::ReadAhead => "read-ahead",
            Self::Scheduler => "scheduler",
            Self::Memory => "memory",
            Self::Limits => "limits",
            Self::Governor => "governor",
            Self::Interrupts => "interrupts",
            Self::Network => "network",
            Self::Chunks => "chunks",
            Self::Strategy => "strategy",
            Self::Speculation => "speculation",
        }
    }

    /// Returns the class of this name, or `None` if there is no such class.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// Returns when a change of this class is kept.
    #[must_use]
    pub fn keep(self) -> Keep {
        match self {
            Self::Memory | Self::Limits | Self::Governor | Self::Interrupts | Self::Network => {
                Keep::NotWorse
            }
            _ => Keep::Better,
        }
    }
}

/// A change worth trying.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// Class of the candidate.
    pub class: Class,
    /// The proposed value, in a few words.
    #[serde(rename = "what")]
    pub proposed: String,
    /// The present value, in the same words.
    pub present: String,
    /// The reason to try it.
    pub why: &'static str,
    /// The changes to make for it.
    pub changes: Vec<Change>,
}
