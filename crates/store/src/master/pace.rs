//! When the next commit begins.
//!
//! One that began with the first write to come would leave the others of its round to the next, and each would wait
//! for almost two; and the more writes share a commit, the less it costs each. So after a commit the next one is held
//! for those who have just been answered, as their next writes are likely on their way: until there are as many
//! writes as there were under way, or half the time of a commit has passed. A single writer is never held up.

use sprat_net::Nanos;
use std::time::Duration;

/// The longest a commit is held.
const HOLD_MOST: Duration = Duration::from_micros(50);

/// The newest commit's weight in the average of how long one takes: one part in this many.
const WEIGHT: u32 = 8;

/// The pace of commits.
#[derive(Default)]
pub(super) struct Pace {
    /// Writes that came after the last commit began.
    arrived: usize,
    /// Writes in the commit under way, and when it began.
    under_way: Option<(usize, Nanos)>,
    /// Writes that were under way when the last commit ended.
    expected: usize,
    /// Until when to wait for as many.
    hold_until: Nanos,
    /// Whether a commit is being held.
    holding: bool,
    /// How long a commit takes, about.
    takes: Duration,
}

impl Pace {
    /// A write has come that waits for its commit.
    pub(super) fn arrived(&mut self) {
        self.arrived += 1;
    }

    /// Whether a commit may begin, now that none is under way.
    pub(super) fn may_begin(&mut self, now: Nanos) -> bool {
        self.holding = self.arrived > 0 && self.arrived < self.expected && now < self.hold_until;
        !self.holding
    }

    /// A commit of everything that has arrived begins.
    pub(super) fn begun(&mut self, now: Nanos) {
        self.under_way = Some((std::mem::take(&mut self.arrived), now));
    }

    /// No commit is under way, any more perhaps.
    pub(super) fn ended(&mut self, now: Nanos) {
        let Some((committed, begun)) = self.under_way.take() else { return };
        let took = now.since(begun);
        self.takes = (self.takes * (WEIGHT - 1) + took) / WEIGHT;
        self.expected = self.arrived + committed;
        self.hold_until = now + (self.takes / 2).min(HOLD_MOST);
    }

    /// When a commit that is held begins at the latest.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.holding.then_some(self.hold_until)
    }
}
