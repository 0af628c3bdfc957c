//! Time stamps cheap enough to be left in: where a request passes from one room to the next.

#![allow(unsafe_code, reason = "the processor's time stamp counter has no safe interface")]

mod account;
mod count;

use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub use account::ThreadAccount;
pub use count::{Count, Event, counts, stamp};

use crate::Transmit;

/// Latest laps that are kept.
const LAPS: usize = 4096;

/// How long a scale is measured: the error is then below one in 10,000.
const MEASURED: Duration = Duration::from_millis(20);

/// The processor's time stamp counter, which every core of a machine of today counts alike;
/// nanoseconds on processors without one. One reading takes 7 to 20 ns. See [`Scale`] for what a
/// tick is.
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

/// How long a tick is.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    nanos_per_tick: f64,
}

impl Scale {
    /// Measures it against the system's clock; takes 20 ms. Not for a node's loop.
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

    /// Ticks as nanoseconds.
    #[must_use]
    pub fn nanos(self, ticks: u64) -> f64 {
        ticks as f64 * self.nanos_per_tick
    }
}

/// The latest times that one stage took, in ticks; or events, where [`stamp`]s count those.
#[derive(Clone, Debug)]
pub struct Laps {
    kept: Vec<u32>,
    next: usize,
    count: u64,
}

impl Default for Laps {
    fn default() -> Self {
        Self { kept: Vec::with_capacity(LAPS), next: 0, count: 0 }
    }
}

impl Laps {
    /// Takes one.
    #[inline]
    pub fn push(&mut self, ticks: u64) {
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        if self.kept.len() < LAPS {
            self.kept.push(ticks);
        } else {
            self.kept[self.next] = ticks;
            self.next = (self.next + 1) % LAPS;
        }
        self.count += 1;
    }

    /// Forgets those kept; the count goes on.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.next = 0;
    }

    /// How many there have been.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean of the latest; 0 when there are none. Of times the median tells more.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let sum: u64 = self.kept.iter().copied().map(u64::from).sum();
        sum as f64 / self.kept.len().max(1) as f64
    }

    /// The median of the latest, ticks; 0 when there are none.
    #[must_use]
    pub fn median(&self) -> u64 {
        let mut sorted = self.kept.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().map_or(0, u64::from)
    }
}

/// A driver's sending half that takes a [`stamp`] when it is first used: up to there the time was
/// its user's.
pub struct Stamped<'a, T: ?Sized> {
    tx: &'a mut T,
    /// When; 0 for not yet.
    first: &'a mut u64,
    on: bool,
}

impl<'a, T: Transmit + ?Sized> Stamped<'a, T> {
    /// The same sending half; `first` gets the time if `on`, unless it has one.
    #[inline]
    pub fn new(tx: &'a mut T, first: &'a mut u64, on: bool) -> Self {
        Self { tx, first, on }
    }
}

impl<T: Transmit + ?Sized> Transmit for Stamped<'_, T> {
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
    fn laps_keep_the_latest() {
        let mut laps = Laps::default();
        assert_eq!((laps.median(), laps.mean(), laps.count()), (0, 0.0, 0));
        (0..100).for_each(|ticks| laps.push(ticks));
        assert_eq!((laps.median(), laps.mean()), (50, 49.5));
        (0..LAPS).for_each(|_| laps.push(7));
        assert_eq!((laps.median(), laps.count()), (7, 100 + LAPS as u64));
        laps.push(u64::MAX);
        assert_eq!(laps.median(), 7);
        laps.clear();
        laps.push(9);
        assert_eq!((laps.median(), laps.count()), (9, 102 + LAPS as u64));
    }
}
