//! Decides whether an idle node spins, yields or sleeps. Pure logic: no clock, no system call.

use std::time::Duration;

use crate::Nanos;

/// How many gaps between arrivals are remembered.
const GAPS: usize = 8;

/// Losing the core may cost a node at most one part in this many of its time. Therefore, after a
/// gap in which another thread had the core, the node does not spin for this many times the gap.
const ROBBED_SHARE: u32 = 32;

/// The longest time for which a node does not spin after a gap in which another thread had the
/// core.
const ROBBED_MOST: Duration = Duration::from_secs(1);

/// After this many consecutive yields that gave the core to another thread, the core counts as
/// shared.
const SHARED: u8 = 3;

/// How a node waits for work.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// Never sleep, but yield to other threads occasionally. For a node that has a core of its own.
    Spin,
    /// Never spin. For a node that has little to do, or must not use the processor when idle.
    Sleep,
    /// Spin while work keeps arriving, and sleep when it does not.
    #[default]
    Adaptive,
}

/// The limits of an idle node's spinning and yielding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Policy {
    /// How to wait.
    pub mode: Mode,
    /// How long to spin after isolated work: long enough to catch a peer that answers at once.
    pub spin_least: Duration,
    /// How long to spin while work keeps coming; also the longest gap between arrivals at which
    /// work counts as "coming". Must be longer than two wake-ups take, because otherwise two
    /// sleeping peers would keep waking one another.
    pub spin_most: Duration,
    /// How long to spin before yielding. The yield lets another thread on the same core run.
    pub yield_after: Duration,
    /// If the gap between two idle iterations is at least this long, another thread must have had
    /// the core.
    pub robbed_after: Duration,
    /// The shortest time for which the node does not spin or yield after such a gap; after a longer
    /// gap it is 32 times the gap, at most 1 s. [`Mode::Spin`] ignores such gaps. The scheduler
    /// runs a thread that wakes up before threads that only compute, but a thread that spins or
    /// yields waits until their time slices end.
    pub robbed_for: Duration,
    /// A yield that takes at least this long gave the core to another thread that spins; the value
    /// is a little less than [`yield_after`](Self::yield_after). Three such yields in a row count
    /// as losing the core, because two peers on one core would each spin while the other has work
    /// to do. The kernel's own threads, which serve the disk, take less time.
    pub shared_after: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::Adaptive,
            spin_least: Duration::from_micros(25),
            spin_most: Duration::from_micros(200),
            yield_after: Duration::from_micros(10),
            robbed_after: Duration::from_micros(700),
            robbed_for: Duration::from_millis(20),
            shared_after: Duration::from_micros(8),
        }
    }
}

impl Policy {
    /// Returns the default limits with the given mode.
    #[must_use]
    pub fn of(mode: Mode) -> Self {
        Self { mode, ..Self::default() }
    }
}

/// What to do after a loop iteration that found no work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IdleStep {
    /// Run the next iteration at once.
    Spin,
    /// Yield the core to other threads, then run the next iteration.
    Yield,
    /// Sleep until something happens.
    Sleep,
}

/// Decides for one node. Call [`worked`](Self::worked) or [`idle`](Self::idle) after each iteration
/// of the loop.
#[derive(Clone, Debug)]
pub struct Decider {
    policy: Policy,
    /// When an iteration last found work.
    worked: Nanos,
    /// One bit for each of the latest arrivals: whether the gap before it was short. The lowest bit
    /// is for the newest arrival.
    short_gaps: u8,
    /// The time of the last iteration, if it found no work and was not followed by a sleep.
    idled: Option<Nanos>,
    yielded: Nanos,
    /// Whether the last iteration ended in a yield.
    yielding: bool,
    /// Consecutive yields that gave the core to another thread.
    shared: u8,
    /// The time until which the node does not spin, because other threads need the core.
    robbed_until: Nanos,
}

const _: () = assert!(GAPS <= u8::BITS as usize);

impl Decider {
    /// Creates the state of a node that is idle at `now`.
    #[must_use]
    pub fn new(policy: Policy, now: Nanos) -> Self {
        Self {
            policy,
            worked: now,
            short_gaps: 0,
            idled: None,
            yielded: now,
            yielding: false,
            shared: 0,
            robbed_until: Nanos(0),
        }
    }

    /// Notes that an iteration found work.
    pub fn worked(&mut self, now: Nanos) {
        self.detect_shared_core(now);
        let gap = now.since(self.worked);
        self.short_gaps = self.short_gaps << 1 | u8::from(gap <= self.policy.spin_most);
        self.worked = now;
        self.idled = None;
    }

    /// Decides what to do after an iteration that found nothing.
    pub fn idle(&mut self, now: Nanos) -> IdleStep {
        self.detect_lost_core(now);
        self.detect_shared_core(now);
        let step = self.step(now);
        self.idled = (step != IdleStep::Sleep).then_some(now);
        self.yielding = step == IdleStep::Yield;
        if self.yielding {
            self.yielded = now;
        }
        step
    }

    /// Returns how long an adaptive node stays awake after work, if no other thread takes its core.
    #[must_use]
    pub fn spin_bound(&self) -> Duration {
        if self.short_gaps == 0 { self.policy.spin_least } else { self.policy.spin_most }
    }

    fn step(&self, now: Nanos) -> IdleStep {
        if self.sleeps_at_once(now) {
            return IdleStep::Sleep;
        }
        let spin = self.policy.mode == Mode::Spin;
        let since = now.since(self.worked);
        if since < self.policy.yield_after {
            return IdleStep::Spin;
        }
        if !spin && since >= self.spin_bound() {
            return IdleStep::Sleep;
        }
        // A node that never sleeps yields less often, because each yield may cost it another
        // thread's whole time slice.
        let every = if spin { self.policy.spin_most } else { Duration::ZERO };
        if now.since(self.yielded) >= every { IdleStep::Yield } else { IdleStep::Spin }
    }

    /// Returns whether the node, if it finds nothing, sleeps without spinning first.
    #[must_use]
    pub fn sleeps_at_once(&self, now: Nanos) -> bool {
        match self.policy.mode {
            Mode::Spin => false,
            Mode::Sleep => true,
            Mode::Adaptive => now < self.robbed_until,
        }
    }

    fn detect_lost_core(&mut self, now: Nanos) {
        let Some(before) = self.idled else { return };
        let gap = now.since(before);
        if gap >= self.policy.robbed_after {
            self.robbed_until =
                now + (gap * ROBBED_SHARE).clamp(self.policy.robbed_for, ROBBED_MOST);
        }
    }

    fn detect_shared_core(&mut self, now: Nanos) {
        if !std::mem::take(&mut self.yielding) {
            return;
        }
        let gave_core = now.since(self.yielded) >= self.policy.shared_after;
        self.shared = if gave_core { self.shared + 1 } else { 0 };
        if self.shared == SHARED {
            self.shared = 0;
            self.robbed_until = self.robbed_until.max(now + self.policy.robbed_for);
        }
    }
}
