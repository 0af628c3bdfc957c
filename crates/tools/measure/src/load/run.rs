//! One load against one target: operations out, latencies in.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

use super::keys::{Choice, Chooser, Values, write_key};
use super::measured::{Measured, Recorder};
use super::pace::{Pace, Starts};
use crate::target::{Completion, Op, Outcome, Target, Wait};

/// Operations one run may have in flight.
pub const MAX_IN_FLIGHT: usize = 65_536;

/// How long a run waits, after its end, for answers that are due. What is still missing then is
/// counted as unfinished.
pub const DRAIN: Duration = Duration::from_secs(5);

/// Longest sleep for an answer: long enough to cost nothing, short enough to see the run's end.
const NAP: Duration = Duration::from_secs(1);

/// A sleeping generator wakes this long before the next start and spins: timers are late by as
/// much.
const SPIN_BEFORE_START: u64 = 150_000;

/// What is asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Workload {
    /// Keys there are; all are expected to be loaded before reading.
    pub keys: u64,
    /// Length of a key, bytes (20 to 250).
    pub key_bytes: usize,
    /// Length of a value, bytes.
    pub value_bytes: usize,
    /// Share of reads, 0 to 1; the others are writes.
    pub read_share: f64,
    /// Instead of reads and writes, echoes of the far driver.
    pub pings: bool,
    /// How keys are drawn.
    pub choice: Choice,
    /// The same seed asks for the same keys in the same order.
    pub seed: u64,
}

impl Workload {
    /// Reads of `value_bytes` under 30 B keys, uniformly from `keys`.
    #[must_use]
    pub fn reads(keys: u64, value_bytes: usize) -> Self {
        Self {
            keys,
            key_bytes: 30,
            value_bytes,
            read_share: 1.0,
            pings: false,
            choice: Choice::Uniform,
            seed: 1,
        }
    }

    /// The same with writes only.
    #[must_use]
    pub fn writes(keys: u64, value_bytes: usize) -> Self {
        Self { read_share: 0.0, ..Self::reads(keys, value_bytes) }
    }

    /// Echoes of the far driver.
    #[must_use]
    pub fn pings() -> Self {
        Self { read_share: 0.0, pings: true, ..Self::reads(1, 0) }
    }
}

/// How it is asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// What.
    pub workload: Workload,
    /// Clients, spread evenly over the target's connections.
    pub clients: usize,
    /// Operations each client keeps in flight; in an open load, at most.
    pub depth: usize,
    /// Whether the generator spins or sleeps.
    pub wait: Wait,
    /// Closed or open.
    pub pace: Pace,
    /// Time before anything counts.
    pub warm_up: Duration,
    /// Time that counts.
    pub duration: Duration,
    /// Ends the run sooner, after this many operations that count.
    pub max_ops: Option<u64>,
}

impl Plan {
    /// One client that waits for each answer, as a latency test has it: a fifth of a second to warm
    /// up, one second that counts.
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

/// Time as a run sees it; tests bring their own.
pub trait Clock {
    /// Monotonic nanoseconds.
    fn now(&self) -> u64;
}

/// The machine's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct RealClock(Instant);

impl RealClock {
    /// Zero is now.
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
/// When a connection breaks, or the plan asks for more in flight than [`MAX_IN_FLIGHT`].
pub fn run(target: &mut dyn Target, plan: &Plan) -> Result<Measured> {
    run_by(target, plan, &RealClock::start())
}

/// Runs `plan` against `target` by `clock`.
///
/// # Errors
/// As [`run`].
pub fn run_by(target: &mut dyn Target, plan: &Plan, clock: &dyn Clock) -> Result<Measured> {
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
        chooser: Chooser::new(plan.workload.choice, plan.workload.keys, plan.workload.seed),
        values: Values::new(plan.workload.value_bytes, plan.workload.seed),
        recorder: Recorder::new(counts_from, nanos(plan.duration)),
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
    plan: &'a Plan,
    slots: Slots,
    starts: Starts,
    chooser: Chooser,
    values: Values,
    recorder: Recorder,
    /// No operation starts from here on, ns.
    end: u64,
}

impl Run<'_> {
    /// Starts what is due and has a free slot.
    fn issue(&mut self, target: &mut dyn Target, now: u64) -> Result<()> {
        let mut key = [0; super::keys::MAX_KEY_BYTES];
        let key = &mut key[..self.plan.workload.key_bytes];
        let connections = target.connections();
        while let Some(slot) = self.slots.free.last().copied() {
            let Some(start) = self.starts.due(now).filter(|&start| start < self.end) else { break };
            let number = self.chooser.draw();
            write_key(number, key);
            let read = self.chooser.coin(self.plan.workload.read_share);
            let op = match read {
                _ if self.plan.workload.pings => Op::Ping,
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
            // Only an answer can start anything.
            _ if self.slots.is_idle() => Duration::ZERO,
            _ => NAP,
        }
    }

    fn complete(&mut self, completion: Completion, now: u64) {
        // An answer that an earlier run gave up on is none of ours.
        let Some(Busy { start, read }) = self.slots.release(completion.tag) else { return };
        let wanted = if read { self.plan.workload.value_bytes } else { 0 };
        let outcome = match completion.outcome {
            Outcome::Ok { bytes } if bytes != wanted => Outcome::Error,
            outcome => outcome,
        };
        self.recorder.record(start, now, outcome);
    }

    fn is_drained(&self) -> bool {
        let backlog = self.starts.next_by_clock().is_some_and(|next| next < self.end);
        self.slots.is_idle() && !backlog
    }

    /// What has not ended counts with the age it has reached, so that a stall never looks like a
    /// success.
    fn finish(mut self, target: &dyn Target, now: u64) -> Measured {
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

/// Operations in flight, by slot. A tag is the slot and the run's number.
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
