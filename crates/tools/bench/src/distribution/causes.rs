//! Finds the cause of a slow operation from what was observed during that operation.
//!
//! The client spins while it waits, and times every iteration of its loop; a server with `--timed`
//! also times its iterations. The longest iteration during an operation shows whether the thread at
//! that end was held up (it did not run, or ran much slower than usual), and for how long. The
//! kernel's statistics of the thread show the cause.

use serde::{Deserialize, Serialize};

/// The part of the system that is responsible for a cause.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Below the kernel: the hypervisor, the firmware.
    Machine,
    /// The kernel of one of the two ends: its scheduler, its interrupts, or its paging.
    Kernel,
    /// A frame was lost on its way.
    Network,
    /// The server's own work.
    Store,
    /// Nothing that was examined explains the latency.
    Unexplained,
}

/// The cause of a slow operation.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A frame was retransmitted, although neither end was held up.
    Retransmission,
    /// The kernel gave the core to another thread: the thread was switched out, and did not run for
    /// at least half of the time for which it was held up.
    Preemption(PathEnd),
    /// The hypervisor took the core: the thread was not switched out, but did not run for at least
    /// half of the time for which it was held up.
    Steal(PathEnd),
    /// The thread was held up, and had page faults, as on the first access to a page of memory.
    Fault(PathEnd),
    /// The thread was held up, and its core handled interrupts.
    Interrupt(PathEnd),
    /// The server was held up while its cleaner worked.
    Cleaner,
    /// The thread was held up, and neither its statistics nor those of its core show the cause. The
    /// cause may be the firmware, or a hypervisor that does not report steal time.
    #[serde(rename = "untold")]
    Unknown(PathEnd),
    /// An iteration of the server's loop was long. The interrupts of its core are not known because
    /// the server runs on another host, or because reading them takes too long.
    #[serde(rename = "round")]
    LongIteration,
    /// Neither end was held up. The time was lost on the path between the ends.
    #[serde(rename = "nothing")]
    NeitherEnd,
}

/// One of the two ends of an operation's path.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathEnd {
    /// The client's thread.
    Client,
    /// The thread of the server's node.
    Server,
}

/// What was observed at one end during an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EndObservation {
    /// How much longer than usual the longest iteration of the loop took, in ns.
    pub held_ns: u64,
    /// Time in which the thread did not run, in ns.
    pub missing_ns: u64,
    /// The number of times that the kernel gave the core to another thread.
    pub preempted: u64,
    /// Page faults of the thread.
    pub faults: u64,
    /// Interrupts of the core, if they are known.
    pub interrupts: Option<u64>,
}

/// Everything that was observed during one slow operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    /// How much longer than the median the operation took, in ns.
    pub excess_ns: u64,
    /// The observation at the client.
    pub client: EndObservation,
    /// The observation at the server, if the server is timed.
    pub server: Option<EndObservation>,
    /// Number of frames that either end retransmitted.
    pub resent: u64,
    /// Bytes that the server's cleaner read or moved.
    pub cleaned_bytes: u64,
}

/// A delay explains an operation if it is at least this share of the operation's excess time.
const MOST: f64 = 0.5;

impl Evidence {
    /// Returns the most probable cause.
    #[must_use]
    pub fn cause(&self) -> Cause {
        let server = self.server.map(|seen| (PathEnd::Server, seen));
        let mut held: Vec<(PathEnd, EndObservation)> =
            [Some((PathEnd::Client, self.client)), server]
                .into_iter()
                .flatten()
                .filter(|end| self.explains(end.1.held_ns))
                .collect();
        held.sort_by_key(|end| std::cmp::Reverse(end.1.held_ns));
        let causes = || held.iter().map(|&(end, seen)| self.cause_at(end, seen));
        // If one thread is held up while it holds a lock that the other thread needs, both are held
        // up. So an end with a known cause is preferred.
        let known =
            causes().find(|cause| !matches!(cause, Cause::Unknown(_) | Cause::LongIteration));
        // Requests to a server that is held up are also retransmitted. So a retransmission means a
        // lost frame only if neither end was held up.
        let neither = || if self.resent > 0 { Cause::Retransmission } else { Cause::NeitherEnd };
        known.or_else(|| causes().next()).unwrap_or_else(neither)
    }

    /// Returns the cause that held up one end.
    fn cause_at(&self, end: PathEnd, seen: EndObservation) -> Cause {
        let missing = seen.missing_ns as f64 >= seen.held_ns as f64 * MOST;
        match seen {
            EndObservation { preempted: 1.., .. } if missing => Cause::Preemption(end),
            _ if missing => Cause::Steal(end),
            _ if end == PathEnd::Server && self.cleaned_bytes > 0 => Cause::Cleaner,
            EndObservation { faults: 1.., .. } => Cause::Fault(end),
            EndObservation { interrupts: Some(1..), .. } => Cause::Interrupt(end),
            EndObservation { interrupts: None, .. } if end == PathEnd::Server => {
                Cause::LongIteration
            }
            EndObservation { interrupts: Some(0) | None, .. } => Cause::Unknown(end),
        }
    }

    fn explains(&self, ns: u64) -> bool {
        ns as f64 >= self.excess_ns as f64 * MOST
    }
}

impl Cause {
    /// Returns the part of the system that is responsible for the cause.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        match self {
            Self::Steal(_) | Self::Unknown(_) => Verdict::Machine,
            Self::Preemption(_) | Self::Fault(_) | Self::Interrupt(_) => Verdict::Kernel,
            Self::Retransmission => Verdict::Network,
            Self::Cleaner => Verdict::Store,
            Self::LongIteration | Self::NeitherEnd => Verdict::Unexplained,
        }
    }

    /// Describes the cause.
    #[must_use]
    pub fn words(self) -> String {
        let at = |what: &str, end: PathEnd| format!("{what} at the {}", end.word());
        match self {
            Self::Retransmission => "retransmission".to_owned(),
            Self::Preemption(end) => at("preemption", end),
            Self::Steal(end) => at("steal", end),
            Self::Fault(end) => at("page fault", end),
            Self::Interrupt(end) => at("interrupt", end),
            Self::Cleaner => "cleaner".to_owned(),
            Self::Unknown(end) => at("held up, untold,", end),
            Self::LongIteration => "a long round of the server".to_owned(),
            Self::NeitherEnd => "neither end held up".to_owned(),
        }
    }
}

impl PathEnd {
    fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

impl Verdict {
    /// Returns the verdict as one word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Kernel => "kernel",
            Self::Network => "network",
            Self::Store => "store",
            Self::Unexplained => "unexplained",
        }
    }
}

/// Which slow operations to exclude from a distribution, by their causes. The remaining operations
/// show the store without the effects of its machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exclusion {
    /// Excludes no operation.
    Nothing,
    /// Excludes operations during which a thread lost its core to preemption or steal.
    Core,
    /// Also excludes operations that were delayed by interrupts.
    Interrupts,
}

impl Exclusion {
    /// All exclusions. Each also excludes the operations that the one before it excludes.
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Core, Self::Interrupts];

    /// Returns whether an operation with this cause is excluded.
    #[must_use]
    pub fn excludes(self, cause: Cause) -> bool {
        match cause {
            Cause::Preemption(_) | Cause::Steal(_) => self != Self::Nothing,
            Cause::Interrupt(_) => self == Self::Interrupts,
            _ => false,
        }
    }

    /// Describes the operations that remain.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Nothing => "every sample",
            Self::Core => "those hit by preemption or steal set apart",
            Self::Interrupts => "also those hit by interrupts set apart",
        }
    }

    /// Describes the causes of the excluded operations, or returns `None` if none is excluded.
    #[must_use]
    pub fn hit_by(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Core => Some("preemption or steal"),
            Self::Interrupts => Some("preemption, steal or interrupts"),
        }
    }
}

/// Counts causes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally(Vec<(Cause, u64)>);

impl Tally {
    /// Counts a cause.
    pub fn add(&mut self, cause: Cause) {
        match self.0.iter_mut().find(|one| one.0 == cause) {
            Some((_, count)) => *count += 1,
            None => self.0.push((cause, 1)),
        }
    }

    /// Returns the total count.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// Returns the causes with their shares of the total count, 0 to 1, most frequent first.
    #[must_use]
    pub fn shares(&self) -> Vec<(Cause, f64)> {
        let all = self.count().max(1) as f64;
        let mut shares: Vec<_> =
            self.0.iter().map(|&(cause, count)| (cause, count as f64 / all)).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        shares
    }
}

/// Judges a step in the tail. Returns the verdict, and the share of the step's operations, 0 to 1,
/// that supports it.
///
/// The verdict is the most frequent one among the examined operations. If it is `Unexplained` (the
/// server may not report enough), the measured jitter of the machine decides. `beyond` is the share
/// of operations that are slower than the step's beginning. `machine_alone` is the share that the
/// machine would delay as long without a store. If `machine_alone` is at least half of `beyond`,
/// the verdict is `Machine`.
#[must_use]
pub fn judge(tally: &Tally, beyond: f64, machine_alone: f64) -> (Verdict, f64) {
    let mut by_verdict: Vec<(Verdict, f64)> = Vec::new();
    for (cause, share) in tally.shares() {
        match by_verdict.iter_mut().find(|one| one.0 == cause.verdict()) {
            Some(one) => one.1 += share,
            None => by_verdict.push((cause.verdict(), share)),
        }
    }
    let most = by_verdict.into_iter().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
    let (verdict, share) = most.unwrap_or((Verdict::Unexplained, 1.0));
    let by_meter = if beyond > 0.0 { (machine_alone / beyond).min(1.0) } else { 0.0 };
    if verdict == Verdict::Unexplained && by_meter >= MOST {
        (Verdict::Machine, by_meter)
    } else {
        (verdict, share)
    }
}
