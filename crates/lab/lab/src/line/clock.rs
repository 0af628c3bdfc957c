//! The transmitter's virtual clock.
//!
//! What leaves next begins when what left before has ended, or when it arrived if that is later,
//! however late anybody looks: a loop that was asleep loses no rate. Nanoseconds are exact: what a
//! transmission needs of a part of one is carried on.

use super::settings::Rate;
use crate::time::Time;

/// When the transmitter is free, to a fraction of a nanosecond.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    free_at: Time,
    /// Beyond `free_at`, in nanoseconds / the rate in bits per second.
    fraction: u64,
    /// The rate of what is being transmitted: what is set meanwhile is for what comes next.
    rate: Option<Rate>,
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
        self.change_rate(rate);
        if let Some(rate) = rate {
            let needed = bytes * 8 * 1_000_000_000 + self.fraction;
            self.free_at = Time(self.free_at.0.saturating_add(needed / rate.bits_per_second()));
            self.fraction = needed % rate.bits_per_second();
        }
        self.free_at
    }

    /// Bytes of what is being transmitted that have not left by `now`.
    pub(super) fn unsent(&self, now: Time) -> u64 {
        self.rate.map_or(0, |rate| rate.bytes_in(self.free_at.since(now)))
    }

    /// A fraction is of the rate that it came from; at another it is as long, rounded down.
    fn change_rate(&mut self, rate: Option<Rate>) {
        if rate != self.rate {
            let steps = |rate: Option<Rate>| rate.map_or(1, Rate::bits_per_second);
            let fraction =
                u128::from(self.fraction) * u128::from(steps(rate)) / u128::from(steps(self.rate));
            self.fraction =
                u64::try_from(fraction).expect("less than a nanosecond stays less than one");
            self.rate = rate;
        }
    }
}
