//! When a lane could not look at its ports although it was to.
//!
//! What comes to a port waits there until it is read, and most ports do not say when it came. A
//! lane that does not run for a while, because others have the processor or the process is stopped,
//! is late with all that it finds then. So a lane knows how long it meant to sleep, and takes the
//! rest of the time between two looks for time that it missed.

use crate::time::Time;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use std::time::Duration;

/// How long the calling thread was on a processor, and how long it waited for one, in nanoseconds.
const SCHEDULE: &str = "/proc/thread-self/schedstat";

/// Bytes of that.
const SCHEDULE_BYTES: usize = 96;

/// What a lane knows about its own time.
#[derive(Debug, Default)]
pub(super) struct Attention {
    /// When it looked last.
    looked: Time,
    /// How long it meant to sleep since.
    asleep: Duration,
    /// How long it waited for a processor after that.
    waited: Duration,
    /// [`SCHEDULE`]; none before the lane runs, or where the kernel has none.
    schedule: Option<OwnedFd>,
}

impl Attention {
    /// Begins, on the thread that is watched.
    pub(super) fn begin(&mut self, now: Time) {
        self.looked = now;
        self.schedule = open(SCHEDULE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
    }

    /// Has `sleep` sleep for `longest` at most.
    pub(super) fn sleep<R>(
        &mut self,
        longest: Duration,
        matters: Duration,
        sleep: impl FnOnce() -> R,
    ) -> R {
        self.asleep += longest;
        // In a shorter sleep nothing that matters can be missed.
        let before = if longest > matters { self.waited_ever() } else { None };
        let result = sleep();
        if let (Some(before), Some(after)) = (before, before.and_then(|_| self.waited_ever())) {
            self.waited += after.saturating_sub(before);
        }
        result
    }

    /// Notes that the lane looks at its ports now, and says how long it could not have done so.
    pub(super) fn looks(&mut self, now: Time) -> Duration {
        let since = now.since(std::mem::replace(&mut self.looked, now));
        let (asleep, waited) = (std::mem::take(&mut self.asleep), std::mem::take(&mut self.waited));
        since.saturating_sub(asleep).max(waited)
    }

    /// How long the thread ever waited for a processor.
    fn waited_ever(&self) -> Option<Duration> {
        let mut text = [0; SCHEDULE_BYTES];
        let len = rustix::io::pread(self.schedule.as_ref()?, &mut text, 0).ok()?;
        let text = str::from_utf8(&text[..len]).ok()?;
        text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
    }
}
