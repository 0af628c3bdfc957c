//! What can be changed, and why one would.

use crate::overlay::Overlay;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something set to something. What it was before is a change of the same kind: the way back.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A file of a host's kernel.
    Host {
        /// The host's name.
        host: String,
        /// Where, below `/sys` or `/proc`.
        path: String,
        /// What it is to say.
        value: String,
    },
    /// Settings of all instances, which start again for it.
    Instances(Overlay),
    /// A property of a table, in CQL.
    Table {
        /// `keyspace.table`.
        table: String,
        /// Its name, as ALTER TABLE has it.
        property: String,
        /// Its value, as ALTER TABLE has it.
        value: String,
    },
}

impl Change {
    /// Whether instances start again for it.
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

/// What belongs together, and is tried together.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Java's heap, and who collects what is left on it.
    Collector,
    /// Reads and writes at once.
    Concurrency,
    /// Where new rows are kept.
    Memtable,
    /// How the commit log is written.
    CommitLog,
    /// How much of disks and processors compaction may take.
    Compaction,
    /// What the kernel reads beyond what it was asked for.
    ReadAhead,
    /// In which order the kernel sends requests to disks.
    Scheduler,
    /// Large pages, and what is swapped out.
    Memory,
    /// How many of something there may be.
    Limits,
    /// How fast processors run.
    Governor,
    /// Which cores serve network cards.
    Interrupts,
    /// The kernel's network.
    Network,
    /// How many rows are compressed together.
    Chunks,
    /// Which files are compacted together.
    Strategy,
    /// When another replica is asked too.
    Speculation,
}

/// When a change stays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Keep {
    /// When it makes latency better, beyond what measurements differ by anyway.
    Better,
    /// Unless it makes latency worse: what it prevents happens seldom, and then hurts.
    NotWorse,
}

impl Class {
    /// All, in the order in which they are tried: what most hangs on first.
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

    /// What it is called.
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

    /// By its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// When a change of it stays.
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

/// What is worth a try.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// Of which class.
    pub class: Class,
    /// What it is, in a few words.
    pub what: String,
    /// What it is now, in as many.
    pub present: String,
    /// Why.
    pub why: &'static str,
    /// What is changed for it.
    pub changes: Vec<Change>,
}
