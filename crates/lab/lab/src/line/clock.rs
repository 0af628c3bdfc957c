//! The transmitter's virtual clock.
//!
//! A transmission begins when the previous transmission has ended, or when the packet arrived if
//! that is later. It does not matter how late the line is polled: a loop that slept loses no rate.
//! Times are exact: the fraction of a nanosecond by which a transmission ends later is carried over
//! to the next transmission, if that one begins at once.

use super::settings::Rate;
use crate::time::Time;

/// When the transmitter is free, with the fraction of a nanosecond.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    free_at: Time,
    /// The time beyond `free_at`. The unit is a nanosecond divided by the rate in bits per second.
    fraction: u64,
    /// The rate of the current transmission. A rate that is set meanwhile applies to the next
    /// transmission.
    rate: Option<Rate>,
}

impl Clock {
    /// Returns when the last transmission ends, rounded down.
    pub(super) fn free_at(&self) -> Time {
        self.free_at
    }

    /// Returns when the transmission of a packet that is ready at `ready` can begin.
    pub(super) fn start(&self, ready: Time) -> Time {
        self.free_at.max(ready)
    }

    /// Transmits `bytes` that are ready at `ready`, and returns when their last bit has left.
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

    /// Returns the bytes of the current transmission that have not left by `now`.
    pub(super) fn unsent(&self, now: Time) -> u64 {
        self.rate.map_or(0, |rate| rate.bytes_in(self.free_at.since(now)))
    }

    /// Converts the fraction to the unit of another rate. Keeps the length of time, rounded down.
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
