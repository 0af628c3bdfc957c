//! When to spin, when to yield, when to sleep: the decision alone, without clock or system call.

use std::time::Duration;

use crate::Nanos;

/// Arrivals whose gaps are remembered.
const GAPS: usize = 8;

/// Being robbed may cost one part in this many of a node's time: so many times as long it sleeps
/// after.
const ROBBED_SHARE: u32 = 32;

/// The longest it sleeps for that.
const ROBBED_MOST: Duration = Duration::from_secs(1);

/// Yields in a row that gave the core to another thread, from which on it is taken to be shared.
const SHARED: u8 = 3;

/// How a node waits for work.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// Never sleep; yield now and then. For a node that has a core of its own.
    Spin,
    /// Never spin. For a node that has little to do, or must not cost anything.
    Sleep,
    /// Spin while work keeps coming, sleep when it does not.
    #[default]
    Adaptive,
}

/// The bounds of waiting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Policy {
    /// How to wait.
    pub mode: Mode,
    /// How long to spin after work that came by itself: it catches a peer that answers at once.
    pub spin_least: Duration,
    /// How long to spin while work keeps coming; also the gap up to which it counts as keeping
    /// coming. More than two wake-ups, or two sleeping peers would wake one another for ever.
    pub spin_most: Duration,
    /// How long to spin without yielding: a thread that shares the core then gets its turn.
    pub yield_after: Duration,
    /// A gap between two idle rounds from which on another thread must have had the core.
    pub robbed_after: Duration,
    /// How long not to spin (nor yield) after that, at least; and 32 times the gap. A sleeper
    /// is woken before threads that only compute; one that spins or yields waits for their turns
    /// to end.
    pub robbed_for: Duration,
    /// A yield that takes as long gave the core to a thread that spins itself: almost
    /// [`yield_after`](Self::yield_after). Three in a row, and it counts as robbed: two peers
    /// on one core would each spin while the other has work to do. The kernel's own threads,
    /// which serve the disk, take less.
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
    /// The default bounds, with another mode.
    #[must_use]
    pub fn of(mode: Mode) -> Self {
        Self { mode, ..Self::default() }
    }
}

/// What to do after a round of the loop that found nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Go round again.
    Spin,
    /// Offer the core to others, then go round again.
    Yield,
    /// Sleep until something happens.
    Sleep,
}

/// The state of one node's waiting.
#[derive(Clone, Debug)]
pub struct Decider {
    policy: Policy,
    /// When work last came.
    worked: Nanos,
    /// Gaps before the latest arrivals, of which only "short" matters: one bit each, the newest
    /// lowest.
    short_gaps: u8,
    /// When the last round was, if it found nothing and ended awake.
    idled: Option<Nanos>,
    yielded: Nanos,
    /// The last round ended in a yield.
    yielding: bool,
    /// Yields in a row that gave the core to another thread.
    shared: u8,
    /// Until when not to spin, for others need the core.
    robbed_until: Nanos,
}

const _: () = assert!(GAPS <= u8::BITS as usize);

impl Decider {
    /// Begins at `now`, idle.
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

    /// A round found work.
    pub fn worked(&mut self, now: Nanos) {
        self.look_for_sharers(now);
        let gap = now.since(self.worked);
        self.short_gaps = self.short_gaps << 1 | u8::from(gap <= self.policy.spin_most);
        self.worked = now;
        self.idled = None;
    }

    /// A round found nothing: what now?
    pub fn idle(&mut self, now: Nanos) -> Step {
        self.look_for_robbers(now);
        self.look_for_sharers(now);
        let step = self.step(now);
        self.idled = (step != Step::Sleep).then_some(now);
        self.yielding = step == Step::Yield;
        if self.yielding {
            self.yielded = now;
        }
        step
    }

    /// How long after work the node stays awake, as things are.
    #[must_use]
    pub fn spin_bound(&self) -> Duration {
        if self.short_gaps == 0 { self.policy.spin_least } else { self.policy.spin_most }
    }

    fn step(&self, now: Nanos) -> Step {
        if self.sleeps_at_once(now) {
            return Step::Sleep;
        }
        let spin = self.policy.mode == Mode::Spin;
        let since = now.since(self.worked);
        if since < self.policy.yield_after {
            return Step::Spin;
        }
        if !spin && since >= self.spin_bound() {
            return Step::Sleep;
        }
        // One that never sleeps yields less often: each yield may cost it another's whole turn.
        let every = if spin { self.policy.spin_most } else { Duration::ZERO };
        if now.since(self.yielded) >= every { Step::Yield } else { Step::Spin }
    }

    /// Whether a node with nothing to do sleeps without spinning first.
    #[must_use]
    pub fn sleeps_at_once(&self, now: Nanos) -> bool {
        match self.policy.mode {
            Mode::Spin => false,
            Mode::Sleep => true,
            Mode::Adaptive => now < self.robbed_until,
        }
    }

    fn look_for_robbers(&mut self, now: Nanos) {
        let Some(before) = self.idled else { return };
        let gap = now.since(before);
        if gap >= self.policy.robbed_after {
            self.robbed_until =
                now + (gap * ROBBED_SHARE).clamp(self.policy.robbed_for, ROBBED_MOST);
        }
    }

    fn look_for_sharers(&mut self, now: Nanos) {
        if !std::mem::take(&mut self.yielding) {
            return;
        }
        let lent = now.since(self.yielded) >= self.policy.shared_after;
        self.shared = if lent { self.shared + 1 } else { 0 };
        if self.shared == SHARED {
            self.shared = 0;
            self.robbed_until = self.robbed_until.max(now + self.policy.robbed_for);
        }
    }
}
