//! The transmitter's virtual clock.
//!
//! What leaves next begins when what left before has ended, or when it arrived if that is later, however late anybody looks:
//! a loop that was asleep loses no rate. Nanoseconds are exact: what a transmission needs of a part of one is carried on.

use super::settings::Rate;
use crate::time::Time;

/// When the transmitter is free, to a fraction of a nanosecond.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    free_at: Time,
    /// Beyond `free_at`, in nanoseconds / the rate in bits per second.
    fraction: u64,
}

impl Clock {
    /// When the last transmission ends, rounded down.
    pub(super) fn free_at(&self) -> Time {
        self.free_at
    }

    /// When what is `ready` then may begin.
    pub(super) fn start(&self, ready: Time) -> Time {
        self.free_at.max(ready)
    }

    /// Transmits `bytes` that are `ready` then, and says when their last bit has left.
    pub(super) fn transmit(&mut self, ready: Time, bytes: u64, rate: Option<Rate>) -> Time {
        if ready > self.free_at {
            (self.free_at, self.fraction) = (ready, 0);
        }
        if let Some(rate) = rate {
            let needed = bytes * 8 * 1_000_000_000 + self.fraction;
            self.free_at = Time(self.free_at.0.saturating_add(needed / rate.bits_per_second()));
            self.fraction = needed % rate.bits_per_second();
        }
        self.free_at
    }

    /// What is left of a fraction means nothing at another rate.
    pub(super) fn rate_changed(&mut self) {
        self.fraction = 0;
    }

    /// Bytes of what is being transmitted that have not left by `now`.
    pub(super) fn unsent(&self, now: Time, rate: Option<Rate>) -> u64 {
        let Some(rate) = rate else { return 0 };
        rate.bytes_in(self.free_at.since(now))
    }
}
