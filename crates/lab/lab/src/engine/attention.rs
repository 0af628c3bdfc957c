//! Detects when a worker did not run although it should have.
//!
//! Packets wait in a port until the worker reads them, and most ports do not say when a packet
//! arrived. Sometimes a worker does not run for a while, because other threads have the processor
//! or the process is stopped. All packets that it finds afterwards may be late. So a worker records
//! how long it meant to sleep, and counts the rest of the time between two reads as missed.

use crate::time::Time;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use std::time::Duration;

/// The kernel's file with the time for which the calling thread ran, and the time for which it
/// waited for a processor, both in nanoseconds.
const SCHEDULE: &str = "/proc/thread-self/schedstat";

/// Limit on the bytes that are read from [`SCHEDULE`].
const SCHEDULE_BYTES: usize = 96;

/// Measures the time in which a worker did not run although it should have.
#[derive(Debug, Default)]
pub(super) struct MissedTime {
    /// When the worker last read its ports.
    looked: Time,
    /// The total time for which the worker meant to sleep since `looked`.
    asleep: Duration,
    /// The total time for which the worker waited for a processor when it woke, since `looked`.
    waited: Duration,
    /// The open [`SCHEDULE`]; `None` before the worker runs, or if the kernel does not have the
    /// file.
    schedule: Option<OwnedFd>,
}

impl MissedTime {
    /// Starts the measurement. Call it on the worker's own thread.
    pub(super) fn begin(&mut self, now: Time) {
        self.looked = now;
        self.schedule = open(SCHEDULE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
    }

    /// Runs `sleep`, which sleeps for at most `longest`, and measures how long the thread then
    /// waited for a processor. Does not measure if `longest` is at most `matters`.
    pub(super) fn sleep<R>(
        &mut self,
        longest: Duration,
        matters: Duration,
        sleep: impl FnOnce() -> R,
    ) -> R {
        self.asleep += longest;
        // A shorter sleep cannot miss anything that matters.
        let before = if longest > matters { self.total_wait() } else { None };
        let result = sleep();
        if let (Some(before), Some(after)) = (before, before.and_then(|_| self.total_wait())) {
            self.waited += after.saturating_sub(before);
        }
        result
    }

    /// Notes that the worker reads its ports now. Returns the time since it last read them without
    /// the intended sleep, or the time for which it waited for a processor, whichever is longer.
    pub(super) fn take_missed(&mut self, now: Time) -> Duration {
        let since = now.since(std::mem::replace(&mut self.looked, now));
        let (asleep, waited) = (std::mem::take(&mut self.asleep), std::mem::take(&mut self.waited));
        since.saturating_sub(asleep).max(waited)
    }

    /// Returns how long the thread has waited for a processor since the thread began; `None` if the
    /// kernel does not say.
    fn total_wait(&self) -> Option<Duration> {
        let mut text = [0; SCHEDULE_BYTES];
        let len = rustix::io::pread(self.schedule.as_ref()?, &mut text, 0).ok()?;
        let text = str::from_utf8(&text[..len]).ok()?;
        text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
    }
}
