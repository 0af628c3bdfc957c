//! Reads the statistics of both threads, of the server and of the cores, and computes their changes
//! since the previous reading.
//!
//! A reading takes some tens of microseconds. So it is made between operations: after a slow
//! operation, and at least once in some hundred operations. The operation after a reading does not
//! count, because it only restores caches and queues.

use std::time::{Duration, Instant};

use anyhow::Result;
use sprat_net::{Scale, ThreadAccount};

use super::causes::{EndObservation, Evidence};
use crate::single::{Counters, OperationTimes, Single};
use sprat_measure::hist::nanos;

/// Limit on the time to read the interrupts of all cores. If reading takes longer, as on machines
/// with many cores, interrupts are left out.
const INTERRUPTS_LIMIT: Duration = Duration::from_micros(300);

/// Number of trials to measure the time of reading interrupts. The shortest counts.
const TRIALS: usize = 5;

/// The cores of both ends, if they are known and belong to this machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cores {
    pub(super) client: Option<usize>,
    pub(super) server: Option<usize>,
}

/// Observes both ends. Call [`learn`](Self::learn) with the usual times. After a slow operation
/// call [`look`](Self::look), then [`evidence`](Self::evidence) with the result, then
/// [`settle`](Self::settle).
pub(super) struct Observer {
    cores: Cores,
    interrupts_known: bool,
    scale: Scale,
    /// Usual time of an undisturbed iteration of the client's loop in ns.
    usual_client_iteration: u64,
    /// Usual time of an undisturbed iteration of the server's loop in ns.
    usual_server_iteration: u64,
    last: Reading,
}

#[derive(Default)]
struct Reading {
    client: ThreadAccount,
    server: Counters,
    resent: u64,
    interrupts: Vec<u64>,
}

/// The changes between two readings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    client: EndObservation,
    server: Option<EndObservation>,
    resent: u64,
    cleaned_bytes: u64,
}

impl Observer {
    pub(super) fn new(cores: Cores, scale: Scale) -> Self {
        let trial = || {
            let start = Instant::now();
            interrupts().is_some().then(|| start.elapsed())
        };
        let shortest = (0..TRIALS).filter_map(|_| trial()).min();
        let interrupts_known = shortest.is_some_and(|shortest| shortest <= INTERRUPTS_LIMIT);
        Self {
            cores,
            interrupts_known,
            scale,
            usual_client_iteration: 0,
            usual_server_iteration: 0,
            last: Reading::default(),
        }
    }

    /// Returns whether the interrupts of this machine's cores are known.
    pub(super) fn knows_interrupts(&self) -> bool {
        self.interrupts_known
    }

    /// Returns whether the server reports the times of its loop, because it was started with
    /// `--timed`.
    pub(super) fn server_is_timed(&self) -> bool {
        self.last.server.get("longest_round_ns").is_some()
    }

    /// Sets the usual time of an undisturbed iteration of the client's and of the server's loop, in
    /// ns.
    pub(super) fn learn(&mut self, usual_client_iteration: u64, usual_server_iteration: u64) {
        self.usual_client_iteration = usual_client_iteration;
        self.usual_server_iteration = usual_server_iteration;
    }

    /// Returns the server's longest iteration before the last reading, in ns. `None` if the server
    /// is not timed.
    pub(super) fn longest_server_iteration(&self) -> Option<u64> {
        self.last.server.get("longest_round_ns")
    }

    /// Makes a reading, and returns the changes since the previous reading.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(super) fn look(&mut self, single: &mut Single) -> Result<Change> {
        let now = Reading {
            client: ThreadAccount::read(),
            resent: single.resent(),
            interrupts: if self.interrupts_known {
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
        let server = now.server.get("longest_round_ns").map(|longest| EndObservation {
            held_ns: longest.saturating_sub(self.usual_server_iteration),
            missing_ns: grown("thread_clock_ns_total")
                .unwrap_or(0)
                .saturating_sub(grown("thread_ran_ns_total").unwrap_or(0)),
            preempted: sum(&["thread_preempted_total"]),
            faults: sum(&["thread_faults_total"]),
            interrupts: of_core(self.cores.server),
        });
        Ok(Change {
            client: EndObservation {
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

    /// Restarts the statistics of the client's thread, so that the next changes do not include the
    /// effects of the reading itself.
    pub(super) fn settle(&mut self) {
        self.last.client = ThreadAccount::read();
    }

    /// Returns the changes as evidence about one operation, which took `excess_ns` longer than the
    /// median.
    pub(super) fn evidence(
        &self,
        times: &OperationTimes,
        excess_ns: u64,
        change: &Change,
    ) -> Evidence {
        let iteration = nanos(self.scale, times.longest_iteration);
        let held_ns = iteration.saturating_sub(self.usual_client_iteration);
        Evidence {
            excess_ns,
            client: EndObservation { held_ns, ..change.client },
            server: change.server,
            resent: change.resent,
            cleaned_bytes: change.cleaned_bytes,
        }
    }
}

impl Change {
    /// Returns whether the client's core had interrupts, whether the server's core had interrupts,
    /// and whether either thread had page faults. These events also happen by chance.
    pub(super) fn chance_events(&self) -> [bool; 3] {
        let interrupts = |seen: EndObservation| seen.interrupts.is_some_and(|count| count > 0);
        let faults = self.client.faults + self.server.map_or(0, |seen| seen.faults);
        [interrupts(self.client), self.server.is_some_and(interrupts), faults > 0]
    }
}

/// Reads the number of interrupts of each core. `None` if the kernel does not report them.
fn interrupts() -> Option<Vec<u64>> {
    count_interrupts(&std::fs::read_to_string("/proc/interrupts").ok()?)
}

/// Sums the columns of `/proc/interrupts`. Cores that are off have no column; their count is zero.
/// `None` if the format is unknown.
fn count_interrupts(text: &str) -> Option<Vec<u64>> {
    let mut lines = text.lines();
    let cores: Vec<usize> = lines
        .next()?
        .split_whitespace()
        .map(|name| name.strip_prefix("CPU")?.parse().ok())
        .collect::<Option<_>>()?;
    // A number that no kernel supports means that the format has changed.
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
