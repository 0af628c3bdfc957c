//! A look around: what the threads' accounts, the server and the cores tell, to be compared with
//! the look before.
//!
//! A look costs some tens of microseconds, so it is taken only when something was seen, between
//! operations, and one operation that does not count is made behind it, to have caches and queues
//! as they were.

use std::time::{Duration, Instant};

use anyhow::Result;
use sprat_net::{Scale, ThreadAccount};

use super::causes::{Evidence, Seen};
use crate::single::{Counters, Lap, Single};
use sprat_measure::hist::nanos;

/// Reading the interrupts of all cores may take this long. On a machine of many cores it takes
/// longer: there they are left out.
const INTERRUPTS_LIMIT: Duration = Duration::from_micros(300);

/// Readings of which the shortest is taken for how long it takes.
const TRIALS: usize = 5;

/// The cores of both ends, as far as they are known and on this machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cores {
    pub(super) client: Option<usize>,
    pub(super) server: Option<usize>,
}

/// What the last look saw.
pub(super) struct Looker {
    cores: Cores,
    interrupts_told: bool,
    scale: Scale,
    /// What a turn of the client's loop takes that nobody holds up, ns, and a round of the
    /// server's.
    usual_turn: u64,
    usual_round: u64,
    last: Reading,
}

#[derive(Default)]
struct Reading {
    client: ThreadAccount,
    server: Counters,
    resent: u64,
    interrupts: Vec<u64>,
}

/// What has changed since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    client: Seen,
    server: Option<Seen>,
    resent: u64,
    cleaned_bytes: u64,
}

impl Looker {
    pub(super) fn new(cores: Cores, scale: Scale) -> Self {
        let trial = || {
            let start = Instant::now();
            interrupts().is_some().then(|| start.elapsed())
        };
        let shortest = (0..TRIALS).filter_map(|_| trial()).min();
        let interrupts_told = shortest.is_some_and(|shortest| shortest <= INTERRUPTS_LIMIT);
        Self {
            cores,
            interrupts_told,
            scale,
            usual_turn: 0,
            usual_round: 0,
            last: Reading::default(),
        }
    }

    /// Whether the cores' interrupts can be told here.
    pub(super) fn tells_interrupts(&self) -> bool {
        self.interrupts_told
    }

    /// Whether the server tells how its node fared: it is timed.
    pub(super) fn server_tells(&self) -> bool {
        self.last.server.get("longest_round_ns").is_some()
    }

    /// Learns what is usual, of `laps` in which nothing happened, and of the longest rounds between
    /// looks close together, ns.
    pub(super) fn learn(&mut self, usual_turn: u64, usual_round: u64) {
        (self.usual_turn, self.usual_round) = (usual_turn, usual_round);
    }

    /// The longest round of the server before the last look, ns.
    pub(super) fn longest_round(&self) -> Option<u64> {
        self.last.server.get("longest_round_ns")
    }

    /// Looks.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(super) fn look(&mut self, single: &mut Single) -> Result<Change> {
        let now = Reading {
            client: ThreadAccount::read(),
            resent: single.resent(),
            interrupts: if self.interrupts_told {
                interrupts().unwrap_or_default()
            } else {
                Vec::new()
            },
            server: single.counters()?,
        };
        let before = std::mem::replace(&mut self.last, now);
        let now = &self.last;
        let passed = now.client.since(&before.client);
        let of_core = |core: Option<usize>| {
            let (now, before) = (now.interrupts.get(core?)?, before.interrupts.get(core?)?);
            Some(now.saturating_sub(*before))
        };
        let grown = |name: &str| {
            Some(now.server.get(name)?.saturating_sub(before.server.get(name).unwrap_or(0)))
        };
        let sum = |names: &[&str]| names.iter().filter_map(|name| grown(name)).sum();
        let server = now.server.get("longest_round_ns").map(|longest| Seen {
            held_ns: longest.saturating_sub(self.usual_round),
            missing_ns: grown("thread_clock_ns_total")
                .unwrap_or(0)
                .saturating_sub(grown("thread_ran_ns_total").unwrap_or(0)),
            preempted: sum(&["thread_preempted_total"]),
            faults: sum(&["thread_faults_total"]),
            interrupts: of_core(self.cores.server),
        });
        Ok(Change {
            client: Seen {
                held_ns: 0,
                missing_ns: nanos(self.scale, passed.at).saturating_sub(passed.ran_ns),
                preempted: passed.preempted,
                faults: passed.faults,
                interrupts: of_core(self.cores.client),
            },
            server,
            resent: now.resent.saturating_sub(before.resent),
            cleaned_bytes: sum(&[
                "cleaner_scanned_bytes_total",
                "cleaner_compacted_bytes_total",
                "cleaner_combined_bytes_total",
            ]),
        })
    }

    /// From here on the client's account counts anew: after what the look itself brought about.
    pub(super) fn settle(&mut self) {
        self.last.client = ThreadAccount::read();
    }

    /// A look's change as evidence on one operation that took `excess_ns` too long.
    pub(super) fn evidence(&self, lap: &Lap, excess_ns: u64, change: &Change) -> Evidence {
        let turn = nanos(self.scale, lap.longest_turn);
        Evidence {
            excess_ns,
            client: Seen { held_ns: turn.saturating_sub(self.usual_turn), ..change.client },
            server: change.server,
            resent: change.resent,
            cleaned_bytes: change.cleaned_bytes,
        }
    }
}

impl Change {
    /// Whether each end's core had interrupts, and whether either thread had page faults: what
    /// comes about by chance.
    pub(super) fn by_chance(&self) -> [bool; 3] {
        let interrupts = |seen: Seen| seen.interrupts.is_some_and(|count| count > 0);
        let faults = self.client.faults + self.server.map_or(0, |seen| seen.faults);
        [interrupts(self.client), self.server.is_some_and(interrupts), faults > 0]
    }
}

/// Interrupts that each core has had, by core.
fn interrupts() -> Option<Vec<u64>> {
    count_interrupts(&std::fs::read_to_string("/proc/interrupts").ok()?)
}

/// The sums of the columns of `/proc/interrupts`; cores that are off have none.
fn count_interrupts(text: &str) -> Option<Vec<u64>> {
    let mut lines = text.lines();
    let cores: Vec<usize> = lines
        .next()?
        .split_whitespace()
        .map(|name| name.strip_prefix("CPU")?.parse().ok())
        .collect::<Option<_>>()?;
    // A kernel cannot have more: what says so is something else.
    let highest =
        cores.iter().copied().max().filter(|&core| core < rustix::thread::CpuSet::MAX_CPU)?;
    let mut sums = vec![0_u64; highest + 1];
    for line in lines {
        let counts = line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok());
        for (&core, count) in cores.iter().zip(counts) {
            sums[core] = sums[core].wrapping_add(count);
        }
    }
    Some(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_summed_by_core() {
        let text = "           CPU0       CPU2       \n 24:          1          5  IO-APIC   \
            5-edge      x\n\
                    LOC:   10   20   Local timer interrupts\nERR:          7\n";
        assert_eq!(count_interrupts(text), Some(vec![18, 0, 25]));
        for odd in ["", "what else\n", "CPU99999999\n", "CPUx\n"] {
            assert_eq!(count_interrupts(odd), None, "{odd:?}");
        }
    }
}
