//! Why an operation took long: what was seen at that very operation, and what follows from it.
//!
//! The client spins while it waits, and stamps every turn; the server, while it is timed, every
//! round. The longest turn of an operation says whether the thread at that end was held up, and for
//! how long; the accounts of the thread say by what.

use serde::{Deserialize, Serialize};

/// Whose fault it is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Below the kernel: the hypervisor, the firmware.
    Machine,
    /// The kernel of one of the two ends: its scheduler, its interrupts, its paging.
    Kernel,
    /// A frame was lost on its way.
    Network,
    /// The server's own work.
    Store,
    /// Nothing that was looked at says why.
    Unexplained,
}

/// What happened.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Something was sent again, and neither end had been held up.
    Retransmission,
    /// Another thread was given the core: the thread was switched, and time is missing in its
    /// account.
    Preemption(End),
    /// The core was the hypervisor's: the thread was not switched, and time is missing in its
    /// account.
    Steal(End),
    /// The thread was held up while it touched memory for the first time.
    Fault(End),
    /// The thread was held up, and its core had interrupts.
    Interrupt(End),
    /// The server was held up, and its cleaner had worked.
    Cleaner,
    /// The thread was held up, and neither its account nor its core's tells by what: a hypervisor
    /// that keeps no account, the firmware.
    Untold(End),
    /// The server's round was long, and nobody can tell what its core did: it runs on another host.
    Round,
    /// Neither end was held up: the way between them.
    Nothing,
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The thread that asks.
    Client,
    /// The server's node.
    Server,
}

/// What one end tells of the time around an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// The longest turn of its loop beyond a usual one, ns.
    pub held_ns: u64,
    /// Time missing in the thread's account, ns.
    pub missing_ns: u64,
    /// Times another thread was given its core.
    pub preempted: u64,
    /// Page faults.
    pub faults: u64,
    /// Interrupts of its core, where they can be told.
    pub interrupts: Option<u64>,
}

/// Everything that was seen at one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    /// How much longer it took than the median, ns.
    pub excess_ns: u64,
    /// The client's end.
    pub client: Seen,
    /// The server's, if it is timed.
    pub server: Option<Seen>,
    /// Frames that either sent again.
    pub resent: u64,
    /// Bytes that the server's cleaner looked at or moved.
    pub cleaned_bytes: u64,
}

/// An end's turn explains an operation when it is at least this share of what the operation took
/// too long.
const MOST: f64 = 0.5;

impl Evidence {
    /// The cause that is best borne out.
    #[must_use]
    pub fn cause(&self) -> Cause {
        let server = self.server.map(|seen| (End::Server, seen));
        let mut held: Vec<(End, Seen)> = [Some((End::Client, self.client)), server]
            .into_iter()
            .flatten()
            .filter(|end| self.explains(end.1.held_ns))
            .collect();
        held.sort_by_key(|end| std::cmp::Reverse(end.1.held_ns));
        let causes = || held.iter().map(|&(end, seen)| self.cause_at(end, seen));
        // Both are held up when one is while it has a lock that the other wants: the one that can
        // tell by what is the culprit.
        let told = causes().find(|cause| !matches!(cause, Cause::Untold(_) | Cause::Round));
        // Requests to a server that is held up are sent again too: only where nobody was, something
        // was lost.
        let nobody = || if self.resent > 0 { Cause::Retransmission } else { Cause::Nothing };
        told.or_else(|| causes().next()).unwrap_or_else(nobody)
    }

    /// What held an end up.
    fn cause_at(&self, end: End, seen: Seen) -> Cause {
        let missing = seen.missing_ns as f64 >= seen.held_ns as f64 * MOST;
        match seen {
            Seen { preempted: 1.., .. } if missing => Cause::Preemption(end),
            _ if missing => Cause::Steal(end),
            _ if end == End::Server && self.cleaned_bytes > 0 => Cause::Cleaner,
            Seen { faults: 1.., .. } => Cause::Fault(end),
            Seen { interrupts: Some(1..), .. } => Cause::Interrupt(end),
            Seen { interrupts: None, .. } if end == End::Server => Cause::Round,
            Seen { interrupts: Some(0) | None, .. } => Cause::Untold(end),
        }
    }

    fn explains(&self, ns: u64) -> bool {
        ns as f64 >= self.excess_ns as f64 * MOST
    }
}

impl Cause {
    /// Whose fault that is.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        match self {
            Self::Steal(_) | Self::Untold(_) => Verdict::Machine,
            Self::Preemption(_) | Self::Fault(_) | Self::Interrupt(_) => Verdict::Kernel,
            Self::Retransmission => Verdict::Network,
            Self::Cleaner => Verdict::Store,
            Self::Round | Self::Nothing => Verdict::Unexplained,
        }
    }

    /// In words.
    #[must_use]
    pub fn words(self) -> String {
        let at = |what: &str, end: End| format!("{what} at the {}", end.word());
        match self {
            Self::Retransmission => "retransmission".to_owned(),
            Self::Preemption(end) => at("preemption", end),
            Self::Steal(end) => at("steal", end),
            Self::Fault(end) => at("page fault", end),
            Self::Interrupt(end) => at("interrupt", end),
            Self::Cleaner => "cleaner".to_owned(),
            Self::Untold(end) => at("held up, untold,", end),
            Self::Round => "a long round of the server".to_owned(),
            Self::Nothing => "neither end held up".to_owned(),
        }
    }
}

impl End {
    fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

impl Verdict {
    /// The word for it.
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

/// Which operations are left out of a distribution, by what hit them: a look at the store without
/// its machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Apart {
    /// None: every one of them counts.
    Nothing,
    /// Those hit by preemption or steal: somebody else had the core.
    Core,
    /// Those hit by interrupts, too.
    Interrupts,
}

impl Apart {
    /// All there are, each setting apart what the one before does.
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Core, Self::Interrupts];

    /// Whether an operation hit by `cause` is set apart.
    #[must_use]
    pub fn takes(self, cause: Cause) -> bool {
        match cause {
            Cause::Preemption(_) | Cause::Steal(_) => self != Self::Nothing,
            Cause::Interrupt(_) => self == Self::Interrupts,
            _ => false,
        }
    }

    /// In words: of which operations a figure is.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Nothing => "every sample",
            Self::Core => "those hit by preemption or steal set apart",
            Self::Interrupts => "also those hit by interrupts set apart",
        }
    }

    /// What the operations set apart were hit by, in words; nothing when there are none.
    #[must_use]
    pub fn hit_by(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Core => Some("preemption or steal"),
            Self::Interrupts => Some("preemption, steal or interrupts"),
        }
    }
}

/// How often each cause was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally(Vec<(Cause, u64)>);

impl Tally {
    /// Counts one.
    pub fn add(&mut self, cause: Cause) {
        match self.0.iter_mut().find(|one| one.0 == cause) {
            Some((_, count)) => *count += 1,
            None => self.0.push((cause, 1)),
        }
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// The causes with their shares of all that were examined, 0 to 1, most frequent first.
    #[must_use]
    pub fn shares(&self) -> Vec<(Cause, f64)> {
        let all = self.count().max(1) as f64;
        let mut shares: Vec<_> =
            self.0.iter().map(|&(cause, count)| (cause, count as f64 / all)).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        shares
    }
}

/// The verdict on a step, and the share of its operations, 0 to 1, that bears it out.
///
/// The verdict that most of the examined operations bear out. When most of them are unexplained
/// (the server may be unable to tell), but the machine by itself, without any store, holds its
/// cores up often enough to make `machine_alone` of the share `beyond` the step's beginning, and
/// that is most of it, then it is the machine's or its kernel's: `Machine`.
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
