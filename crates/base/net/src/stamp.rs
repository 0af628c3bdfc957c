//! Time stamps, taken where a request passes from one stage to the next. They are cheap enough to
//! stay in release builds.

#![allow(unsafe_code, reason = "the processor's time stamp counter has no safe interface")]

mod account;
mod count;

use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub use account::ThreadAccount;
pub use count::{EventCounter, PerfEvent, counts_events, stamp};

use crate::Transmit;

/// How many of the latest samples are kept.
const KEPT_SAMPLES: usize = 4096;

/// How long the measurement of a scale takes. The scale's error is then below one in 10,000.
const MEASURED: Duration = Duration::from_millis(20);

/// Reads the processor's time stamp counter, which today's machines keep synchronous across cores.
/// On processors other than x86-64 it returns nanoseconds. Takes 7 to 20 ns. [`Scale`] converts
/// ticks to time.
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, and it touches nothing.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The duration of a tick.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    nanos_per_tick: f64,
}

impl Scale {
    /// Measures a tick against the system's clock. This takes 20 ms, so do not call it in a node's
    /// loop.
    #[must_use]
    pub fn measure() -> Self {
        let (start, first) = (Instant::now(), ticks());
        while start.elapsed() < MEASURED {
            std::hint::spin_loop();
        }
        let (elapsed, last) = (start.elapsed(), ticks());
        let passed = last.wrapping_sub(first).max(1);
        Self { nanos_per_tick: elapsed.as_nanos() as f64 / passed as f64 }
    }

    /// Converts ticks to nanoseconds.
    #[must_use]
    pub fn nanos(self, ticks: u64) -> f64 {
        ticks as f64 * self.nanos_per_tick
    }
}

/// The latest durations of one stage, in ticks; or numbers of events, where [`stamp`]s count
/// events.
#[derive(Clone, Debug)]
pub struct RecentSamples {
    kept: Vec<u32>,
    next: usize,
    count: u64,
}

impl Default for RecentSamples {
    fn default() -> Self {
        Self { kept: Vec::with_capacity(KEPT_SAMPLES), next: 0, count: 0 }
    }
}

impl RecentSamples {
    /// Adds a sample. A sample above `u32::MAX` is stored as `u32::MAX`.
    #[inline]
    pub fn push(&mut self, ticks: u64) {
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        if self.kept.len() < KEPT_SAMPLES {
            self.kept.push(ticks);
        } else {
            self.kept[self.next] = ticks;
            self.next = (self.next + 1) % KEPT_SAMPLES;
        }
        self.count += 1;
    }

    /// Drops the samples, without resetting [`count`](Self::count).
    pub fn clear(&mut self) {
        self.kept.clear();
        self.next = 0;
    }

    /// Returns how many samples have ever been added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean of the samples kept; 0 if there are none. For times the median is more
    /// robust.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let sum: u64 = self.kept.iter().copied().map(u64::from).sum();
        sum as f64 / self.kept.len().max(1) as f64
    }

    /// Returns the median of the samples kept; 0 if there are none.
    #[must_use]
    pub fn median(&self) -> u64 {
        let mut sorted = self.kept.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().map_or(0, u64::from)
    }
}

/// Wraps a driver's sending half, and takes a [`stamp`] at the first send. The stamp separates the
/// time of the half's user from the driver's time.
pub struct StampedTx<'a, T: ?Sized> {
    tx: &'a mut T,
    /// The stamp of the first send; 0 before the first send.
    first: &'a mut u64,
    on: bool,
}

impl<'a, T: Transmit + ?Sized> StampedTx<'a, T> {
    /// Wraps `tx`. If `on`, the first send writes its stamp to `first`, unless `first` already
    /// holds a stamp.
    #[inline]
    pub fn new(tx: &'a mut T, first: &'a mut u64, on: bool) -> Self {
        Self { tx, first, on }
    }
}

impl<T: Transmit + ?Sized> Transmit for StampedTx<'_, T> {
    #[inline]
    fn mtu(&mut self, peer: SocketAddr) -> usize {
        self.tx.mtu(peer)
    }

    #[inline]
    fn reliable(&self) -> bool {
        self.tx.reliable()
    }

    #[inline]
    fn send(&mut self, peer: SocketAddr, parts: &[IoSlice<'_>]) {
        if self.on && *self.first == 0 {
            *self.first = stamp();
        }
        self.tx.send(peer, parts);
    }

    #[inline]
    fn flush(&mut self) {
        self.tx.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_keep_the_time() {
        let scale = Scale::measure();
        let (start, first) = (Instant::now(), ticks());
        while start.elapsed() < Duration::from_millis(5) {}
        let (elapsed, passed) = (start.elapsed().as_nanos() as f64, scale.nanos(ticks() - first));
        assert!((0.5..2.0).contains(&(passed / elapsed)), "{passed} ns by ticks in {elapsed} ns");
    }

    #[test]
    fn samples_keep_the_latest() {
        let mut laps = RecentSamples::default();
        assert_eq!((laps.median(), laps.mean(), laps.count()), (0, 0.0, 0));
        (0..100).for_each(|ticks| laps.push(ticks));
        assert_eq!((laps.median(), laps.mean()), (50, 49.5));
        (0..KEPT_SAMPLES).for_each(|_| laps.push(7));
        assert_eq!((laps.median(), laps.count()), (7, 100 + KEPT_SAMPLES as u64));
        laps.push(u64::MAX);
        assert_eq!(laps.median(), 7);
        laps.clear();
        laps.push(9);
        assert_eq!((laps.median(), laps.count()), (9, 102 + KEPT_SAMPLES as u64));
    }
}
