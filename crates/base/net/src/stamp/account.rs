//! What the kernel accounts to a thread: how long the thread ran, and why it did not run at other
//! times.

use nix::sys::resource::{UsageWho, getrusage};
use rustix::time::{ClockId, clock_gettime};

use super::ticks;

/// The calling thread's accounts since the thread started. The difference of two readings
/// ([`since`](Self::since)) says what happened in between. A reading takes two system calls, about
/// half a microsecond.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ThreadAccount {
    /// When the account was read, in [`ticks`].
    pub at: u64,
    /// Time the thread ran, in ns. In a virtual machine, this excludes the time stolen by the
    /// hypervisor, if the hypervisor reports it.
    pub ran_ns: u64,
    /// Number of involuntary context switches, in which another thread got the core.
    pub preempted: u64,
    /// Number of voluntary context switches, in which the thread waited.
    pub waited: u64,
    /// Number of page faults, minor and major.
    pub faults: u64,
}

impl ThreadAccount {
    /// Reads the calling thread's accounts. A value that the kernel does not supply is 0.
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

    /// Returns the difference to `before`. Its `at` is the number of ticks in between.
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

fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
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
