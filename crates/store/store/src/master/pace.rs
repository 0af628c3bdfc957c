//! Decides when the next commit begins.
//!
//! If a commit began with the first write to arrive, the other writes of that moment would wait for
//! the next commit, so each would wait for almost two. The more writes share a commit, the less it
//! costs each of them. So after a commit the next one is held back for the clients that have just
//! been answered, whose next writes are probably on their way. Say that N writes were in the commit
//! that has ended or waited when it ended. The next commit is held back until N writes wait, or
//! until half the average duration of a commit has passed, at most 50 us. While only one client
//! writes, one write at a time, no commit is held back. Reads of objects that are not durable yet
//! count as writes here.

use sprat_net::Nanos;
use std::time::Duration;

/// The longest time for which a commit is held back.
const HOLD_MOST: Duration = Duration::from_micros(50);

/// The newest commit's weight in the average duration of a commit: one part in this number.
const WEIGHT: u32 = 8;

/// When commits may begin.
#[derive(Default)]
pub(super) struct Pace {
    /// Writes that arrived after the last commit began.
    arrived: usize,
    /// Writes in the commit under way, and when it began.
    under_way: Option<(usize, Nanos)>,
    /// When the last commit ended: the writes in it, and those that waited for the next commit.
    expected: usize,
    /// When to stop waiting for the expected writes.
    hold_until: Nanos,
    /// Whether a commit is being held.
    holding: bool,
    /// Moving average of a commit's duration.
    takes: Duration,
}

impl Pace {
    /// Records a write that waits for its commit.
    pub(super) fn arrived(&mut self) {
        self.arrived += 1;
    }

    /// Returns whether a commit may begin now that none is under way.
    pub(super) fn may_begin(&mut self, now: Nanos) -> bool {
        self.holding = self.arrived > 0 && self.arrived < self.expected && now < self.hold_until;
        !self.holding
    }

    /// Records that a commit of everything that has arrived begins.
    pub(super) fn begun(&mut self, now: Nanos) {
        self.under_way = Some((std::mem::take(&mut self.arrived), now));
    }

    /// Records that no commit is under way. Does nothing if none was.
    pub(super) fn ended(&mut self, now: Nanos) {
        let Some((committed, begun)) = self.under_way.take() else { return };
        let took = now.since(begun);
        self.takes = (self.takes * (WEIGHT - 1) + took) / WEIGHT;
        self.expected = self.arrived + committed;
        self.hold_until = now + (self.takes / 2).min(HOLD_MOST);
    }

    /// Returns the time at which a held commit begins at the latest; `None` if none is held.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.holding.then_some(self.hold_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Nanos {
        Nanos(micros * 1000)
    }

    /// Commits what has arrived, from one time to another.
    fn commit(pace: &mut Pace, from: u64, to: u64) {
        assert!(pace.may_begin(at(from)));
        pace.begun(at(from));
        pace.ended(at(to));
    }

    #[test]
    fn single_writers_are_never_held() {
        let mut pace = Pace::default();
        for round in 0..100 {
            pace.arrived();
            commit(&mut pace, round * 60, round * 60 + 50);
        }
        assert_eq!(pace.deadline(), None);
    }

    #[test]
    fn commits_wait_briefly_for_clients_just_answered() {
        let mut pace = Pace::default();
        for round in 0..50 {
            (0..2).for_each(|_| pace.arrived());
            commit(&mut pace, round * 60, round * 60 + 50);
        }
        // One of the two clients has sent its next write.
        let now = 50 * 60;
        pace.arrived();
        assert!(!pace.may_begin(at(now - 5)), "held");
        let deadline = pace.deadline().expect("held, until then");
        assert!(deadline > at(now - 5) && deadline <= at(now - 10) + HOLD_MOST);
        assert!(pace.may_begin(deadline), "the other client's write does not arrive");
        assert_eq!(pace.deadline(), None);
        assert!(!pace.may_begin(at(now - 5)));
        pace.arrived();
        assert!(pace.may_begin(at(now - 5)), "the writes of both clients have arrived");
    }

    #[test]
    fn commits_without_waiting_writers_are_not_held() {
        let mut pace = Pace::default();
        (0..9).for_each(|_| pace.arrived());
        commit(&mut pace, 0, 50);
        assert!(pace.may_begin(at(51)));
    }

    #[test]
    fn a_slow_disk_does_not_hold_for_long() {
        let mut pace = Pace::default();
        for round in 0..100 {
            (0..2).for_each(|_| pace.arrived());
            commit(&mut pace, round * 20_000, round * 20_000 + 10_000);
        }
        pace.arrived();
        let ended = 99 * 20_000 + 10_000;
        assert!(!pace.may_begin(at(ended + 49)) && pace.may_begin(at(ended + 50)));
    }
}
