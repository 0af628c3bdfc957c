//! Runs one load against one target, and measures latencies.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

use super::keys::{Chooser, KeyDistribution, Values, write_key};
use super::measured::{Measured, Recorder};
use super::pace::{Pace, Starts};
use crate::target::{Completion, LoadTarget, Op, Outcome, Wait};

/// Limit on the operations in flight of a run: clients times depth. [`run`] fails beyond it.
pub const MAX_IN_FLIGHT: usize = 65_536;

/// Time for which a run waits for completions after its end. Operations that complete later count
/// as unfinished.
pub const DRAIN: Duration = Duration::from_secs(5);

/// Limit on one sleep for completions: long enough to cost nothing, short enough to notice the end
/// of the run.
const NAP: Duration = Duration::from_secs(1);

/// A sleeping generator wakes this long before the next start, in ns, and then spins, because
/// timers can be late by this time.
const SPIN_BEFORE_START: u64 = 150_000;

/// The operations of a load.
#[derive(Clone, Debug, Serialize)]
pub struct Workload {
    /// The number of keys. All keys must be loaded before they are read.
    pub keys: u64,
    /// The length of a key, in bytes (20 to 250).
    pub key_bytes: usize,
    /// The length of a value, in bytes.
    pub value_bytes: usize,
    /// The share of reads, 0 to 1. The other operations are writes.
    pub read_share: f64,
    /// The number of keys that one read reads, in one request; of transactions, also the number
    /// that one of them writes.
    pub together: usize,
    /// Whether each operation is a transaction.
    pub transactions: bool,
    /// Whether to send pings, which the peer's driver echoes, instead of reads and writes.
    pub pings: bool,
    /// The distribution of keys.
    #[serde(rename = "choice")]
    pub key_distribution: KeyDistribution,
    /// The seed. It determines the keys and their order.
    pub seed: u64,
}

impl Workload {
    /// Returns reads of `value_bytes` under keys of 30 B, uniformly from `keys` keys.
    #[must_use]
    pub fn reads(keys: u64, value_bytes: usize) -> Self {
        Self {
            keys,
            key_bytes: 30,
            value_bytes,
            read_share: 1.0,
            together: 1,
            transactions: false,
            pings: false,
            key_distribution: KeyDistribution::Uniform,
            seed: 1,
        }
    }

    /// Returns writes of `value_bytes` under keys of 30 B, uniformly from `keys` keys.
    #[must_use]
    pub fn writes(keys: u64, value_bytes: usize) -> Self {
        Self { read_share: 0.0, ..Self::reads(keys, value_bytes) }
    }

    /// Returns this workload with transactions of this number of keys each.
    #[must_use]
    pub fn transactions(self, together: usize) -> Self {
        Self { together, transactions: true, ..self }
    }

    /// Returns a workload of pings, which the peer's driver echoes.
    #[must_use]
    pub fn pings() -> Self {
        Self { read_share: 0.0, pings: true, ..Self::reads(1, 0) }
    }
}

/// A load: the workload, its concurrency and its duration.
#[derive(Clone, Debug, Serialize)]
pub struct LoadPlan {
    /// The operations.
    pub workload: Workload,
    /// The number of clients, spread evenly over the target's connections.
    pub clients: usize,
    /// Operations that each client keeps in flight; in an open load, the limit on a client's
    /// operations in flight.
    pub depth: usize,
    /// Whether the generator spins or sleeps.
    pub wait: Wait,
    /// Whether operations start after completions or at scheduled times.
    pub pace: Pace,
    /// Time before the measurement starts.
    pub warm_up: Duration,
    /// Measured time.
    pub duration: Duration,
    /// Ends the run early, after this many measured operations.
    pub max_ops: Option<u64>,
}

impl LoadPlan {
    /// Creates the load of a latency test: one client that waits for each reply, a warm-up of a
    /// fifth of a second, and a measured second.
    #[must_use]
    pub fn one_client(workload: Workload, wait: Wait) -> Self {
        Self {
            workload,
            clients: 1,
            depth: 1,
            wait,
            pace: Pace::Closed,
            warm_up: Duration::from_millis(200),
            duration: Duration::from_secs(1),
            max_ops: None,
        }
    }
}

/// The clock of a run. Tests supply their own.
pub trait Clock {
    /// Returns monotonic nanoseconds from any fixed origin.
    fn now(&self) -> u64;
}

/// The machine's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct RealClock(Instant);

impl RealClock {
    /// Creates a clock that starts at zero now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for RealClock {
    fn now(&self) -> u64 {
        nanos(self.0.elapsed())
    }
}

/// Runs `plan` against `target` on the calling thread.
///
/// # Errors
/// If the target cannot submit an operation or poll (a broken connection), or if the plan's clients
/// times its depth is 0 or more than [`MAX_IN_FLIGHT`].
pub fn run(target: &mut dyn LoadTarget, plan: &LoadPlan) -> Result<Measured> {
    run_by(target, plan, &RealClock::start())
}

/// Runs `plan` against `target` with the given clock.
///
/// # Errors
/// As for [`run`]: a broken connection, or a plan with no operations or too many in flight.
pub fn run_by(target: &mut dyn LoadTarget, plan: &LoadPlan, clock: &dyn Clock) -> Result<Measured> {
    let in_flight = plan.clients * plan.depth;
    ensure!(
        (1..=MAX_IN_FLIGHT).contains(&in_flight),
        "{in_flight} operations in flight: 1 to {MAX_IN_FLIGHT} are possible"
    );
    let begin = clock.now();
    let counts_from = begin + nanos(plan.warm_up);
    let mut run = Run {
        plan,
        slots: Slots::new(in_flight),
        starts: Starts::new(plan.pace, begin, plan.workload.seed ^ 0x5057),
        chooser: Chooser::new(
            plan.workload.key_distribution,
            plan.workload.keys,
            plan.workload.seed,
        ),
        values: Values::new(plan.workload.value_bytes, plan.workload.seed),
        recorder: Recorder::new(counts_from, nanos(plan.duration)),
        keys: vec![0; plan.workload.key_bytes * plan.workload.together],
        end: counts_from + nanos(plan.duration),
    };
    let mut done = Vec::with_capacity(in_flight);
    loop {
        let now = clock.now();
        run.issue(target, now)?;
        let patience =
            if plan.wait == Wait::Spin { Duration::ZERO } else { run.patience(clock.now()) };
        target.poll(patience, &mut done)?;
        let now = clock.now();
        for completion in done.drain(..) {
            run.complete(completion, now);
        }
        if plan.max_ops.is_some_and(|max| run.recorder.counted() >= max) {
            run.end = run.end.min(now);
        }
        if now >= run.end && (run.is_drained() || now >= run.end + nanos(DRAIN)) {
            return Ok(run.finish(target, now));
        }
    }
}

struct Run<'a> {
    plan: &'a LoadPlan,
    slots: Slots,
    starts: Starts,
    chooser: Chooser,
    values: Values,
    recorder: Recorder,
    /// The keys of the operation that is being made.
    keys: Vec<u8>,
    /// Operations start before this time, in ns.
    end: u64,
}

impl Run<'_> {
    /// Starts the operations that are due, as long as slots are free.
    fn issue(&mut self, target: &mut dyn LoadTarget, now: u64) -> Result<()> {
        let Workload { key_bytes, read_share, together, transactions, pings, .. } =
            self.plan.workload;
        let connections = target.connections();
        while let Some(slot) = self.slots.free.last().copied() {
            let Some(start) = self.starts.due(now).filter(|&start| start < self.end) else { break };
            let number = self.chooser.draw();
            write_key(number, &mut self.keys[..key_bytes]);
            let read = self.chooser.coin(read_share);
            for (nth, key) in (1..).zip(self.keys.chunks_exact_mut(key_bytes).skip(1)) {
                if transactions {
                    // No two keys of a transaction are equal.
                    write_key((number + nth) % self.plan.workload.keys, key);
                } else if read {
                    write_key(self.chooser.draw(), key);
                }
            }
            let (keys, key) = (&self.keys[..], &self.keys[..key_bytes]);
            let op = match read {
                _ if pings => Op::Ping,
                _ if transactions => {
                    let value = (!read).then(|| self.values.of(number));
                    Op::Transact { keys, key_bytes, value }
                }
                true if together > 1 => Op::GetMany { keys, key_bytes },
                true => Op::Get { key },
                false => Op::Put { key, value: self.values.of(number) },
            };
            let client = slot % self.plan.clients;
            if !target.submit(client % connections, &op, self.slots.tag(slot))? {
                break;
            }
            self.slots.free.pop();
            self.slots.busy[slot] = Some(Busy { start, read });
            self.starts.take();
        }
        Ok(())
    }

    fn patience(&self, now: u64) -> Duration {
        match self.starts.next_by_clock() {
            Some(next) if next < self.end && !self.slots.free.is_empty() => {
                let left = next.saturating_sub(now).saturating_sub(SPIN_BEFORE_START);
                Duration::from_nanos(left).min(NAP)
            }
            // Only a completion can start an operation.
            _ if self.slots.is_idle() => Duration::ZERO,
            _ => NAP,
        }
    }

    fn complete(&mut self, completion: Completion, now: u64) {
        // The completion belongs to an earlier run.
        let Some(Busy { start, read }) = self.slots.release(completion.tag) else { return };
        let Workload { value_bytes, together, .. } = self.plan.workload;
        let expected = if read { value_bytes * together } else { 0 };
        let outcome = match completion.outcome {
            Outcome::Ok { bytes } if bytes != expected => Outcome::Error,
            outcome => outcome,
        };
        self.recorder.record(start, now, outcome);
    }

    fn is_drained(&self) -> bool {
        let backlog = self.starts.next_by_clock().is_some_and(|next| next < self.end);
        self.slots.is_idle() && !backlog
    }

    /// Records operations that have not completed, with their present age, so that a stall never
    /// looks like a success.
    fn finish(mut self, target: &dyn LoadTarget, now: u64) -> Measured {
        for busy in self.slots.busy.iter().flatten() {
            self.recorder.give_up(busy.start, now);
        }
        while let Some(start) = self.starts.next_by_clock().filter(|&start| start < self.end) {
            self.recorder.give_up(start, now);
            self.starts.take();
        }
        self.recorder.finish(target, self.plan, self.end)
    }
}

#[derive(Clone, Copy, Debug)]
struct Busy {
    start: u64,
    read: bool,
}

/// Operations in flight, by slot. A tag consists of the run's number and the slot.
struct Slots {
    run: u32,
    free: Vec<usize>,
    busy: Vec<Option<Busy>>,
}

impl Slots {
    fn new(count: usize) -> Self {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        Self { run, free: (0..count).rev().collect(), busy: vec![None; count] }
    }

    fn tag(&self, slot: usize) -> u64 {
        u64::from(self.run) << 32 | slot as u64
    }

    fn release(&mut self, tag: u64) -> Option<Busy> {
        if tag >> 32 != u64::from(self.run) {
            return None;
        }
        let slot = usize::try_from(tag & 0xFFFF_FFFF).ok()?;
        let busy = self.busy.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(busy)
    }

    fn is_idle(&self) -> bool {
        self.free.len() == self.busy.len()
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
