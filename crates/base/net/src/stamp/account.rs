//! What the kernel's accounts say of a thread: how much of its time it was given, and how it lost
//! the rest.

use nix::sys::resource::{UsageWho, getrusage};
use rustix::time::{ClockId, clock_gettime};

use super::ticks;

/// The calling thread's accounts since it started. Two of them tell what came between: see
/// [`since`](Self::since). Reading takes two system calls, about half a microsecond.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ThreadAccount {
    /// When they were read, [`ticks`].
    pub at: u64,
    /// Time it ran, ns. A guest whose hypervisor tells what it took leaves that out.
    pub ran_ns: u64,
    /// Times another thread was given its core before it was done.
    pub preempted: u64,
    /// Times it gave its core away, to wait.
    pub waited: u64,
    /// Page faults, those that read from a disk too.
    pub faults: u64,
}

impl ThreadAccount {
    /// Those of the calling thread, now. What the kernel does not tell is 0.
    #[must_use]
    pub fn read() -> Self {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let at = ticks();
        let ran_ns =
            count(now.tv_sec).saturating_mul(1_000_000_000).saturating_add(count(now.tv_nsec));
        let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else {
            return Self { at, ran_ns, ..Self::default() };
        };
        Self {
            at,
            ran_ns,
            preempted: count(usage.involuntary_context_switches()),
            waited: count(usage.voluntary_context_switches()),
            faults: count(usage.minor_page_faults())
                .saturating_add(count(usage.major_page_faults())),
        }
    }

    /// What came since `before`: `at` is then how many ticks that were.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            at: self.at.saturating_sub(before.at),
            ran_ns: self.ran_ns.saturating_sub(before.ran_ns),
            preempted: self.preempted.saturating_sub(before.preempted),
            waited: self.waited.saturating_sub(before.waited),
            faults: self.faults.saturating_sub(before.faults),
        }
    }
}

fn count(told: i64) -> u64 {
    u64::try_from(told).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_has_not_run() {
        let before = ThreadAccount::read();
        #[allow(clippy::disallowed_methods, reason = "a test that is to wait")]
        std::thread::sleep(std::time::Duration::from_millis(20));
        let passed = ThreadAccount::read().since(&before);
        assert!(passed.waited >= 1, "{passed:?}");
        assert!(passed.ran_ns < 20_000_000, "it slept for 20 ms: {passed:?}");
        assert!(passed.at > 0);
    }

    #[test]
    fn memory_that_is_touched_first_is_a_fault() {
        let before = ThreadAccount::read();
        let pages = std::hint::black_box(vec![1_u8; 64 << 20]);
        let passed = ThreadAccount::read().since(&before);
        assert!(passed.faults >= 1 && passed.ran_ns > 0, "{passed:?}, {} bytes", pages.len());
    }
}
