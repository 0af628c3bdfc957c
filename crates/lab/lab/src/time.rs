//! Time on the clock of a box.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Time since the box started, in nanoseconds. Monotonic. Times are comparable only within one box.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time(pub u64);

impl Time {
    /// The time at which the box started.
    pub const ZERO: Self = Self(0);

    /// Returns the time that has passed since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns this time minus `duration`, but at least [`ZERO`](Self::ZERO).
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// Returns a duration in nanoseconds. Durations above 584 years saturate.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
