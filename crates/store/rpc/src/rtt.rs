//! Estimates how long to wait for an answer before retransmitting.

use std::time::Duration;

use crate::config::{INITIAL_RTO, MAX_RTO, MIN_RTO, RELIABLE_RTO};

/// Smoothed round-trip time and its variation, in nanoseconds, as TCP estimates them (RFC 6298).
/// Only answers to requests that were sent once are samples (Karn's algorithm).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    smoothed: u64,
    variation: u64,
    floor: u64,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Rtt {
    pub(crate) fn new(reliable: bool) -> Self {
        Self {
            smoothed: 0,
            variation: 0,
            floor: nanos(if reliable { RELIABLE_RTO } else { MIN_RTO }),
        }
    }

    #[inline]
    pub(crate) fn sample(&mut self, measured: Duration) {
        let measured = nanos(measured).min(nanos(MAX_RTO)).max(1);
        if self.smoothed == 0 {
            self.smoothed = measured;
            self.variation = measured / 2;
        } else {
            self.variation = (3 * self.variation + self.smoothed.abs_diff(measured)) / 4;
            self.smoothed = (7 * self.smoothed + measured) / 8;
        }
    }

    /// Returns how long to wait for the answer to attempt `tries`, counted from 0. The wait doubles
    /// with each attempt, up to [`MAX_RTO`].
    #[inline]
    pub(crate) fn timeout(&self, tries: u32) -> Duration {
        let first = if self.smoothed == 0 {
            nanos(INITIAL_RTO)
        } else {
            self.smoothed + 4 * self.variation
        };
        let first = first.max(self.floor);
        Duration::from_nanos((first << tries.min(10)).min(nanos(MAX_RTO)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_between_its_bounds() {
        let mut rtt = Rtt::new(false);
        assert_eq!(rtt.timeout(0), INITIAL_RTO);
        for _ in 0..100 {
            rtt.sample(Duration::from_micros(5));
        }
        assert_eq!(rtt.timeout(0), MIN_RTO);
        assert_eq!(rtt.timeout(1), 2 * MIN_RTO);
        assert_eq!(rtt.timeout(1000), MAX_RTO);
        rtt.sample(Duration::MAX);
        assert!(rtt.timeout(0) > MIN_RTO && rtt.timeout(0) <= MAX_RTO);
        assert_eq!(Rtt::new(true).timeout(0), RELIABLE_RTO);
    }
}
