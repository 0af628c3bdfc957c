//! A port: one device, of whichever kind.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

#[cfg(feature = "dpdk")]
use super::dpdk::{self, Dpdk};
use super::memif::{self, Memif};
use super::state::DeviceState;
use crate::ether::Route;
use crate::{Counters, Mac, Nanos, Sources};

#[allow(clippy::large_enum_variant, reason = "there are few")]
pub(super) enum Port {
    Memif(Memif),
    #[cfg(feature = "dpdk")]
    Dpdk(Dpdk),
}

/// Calls the same method of whichever it is.
macro_rules! each {
    ($port:expr, $device:ident => $call:expr) => {
        match $port {
            Port::Memif($device) => $call,
            #[cfg(feature = "dpdk")]
            Port::Dpdk($device) => $call,
        }
    };
}

impl Port {
    pub(super) fn mac(&self) -> Mac {
        each!(self, device => device.mac())
    }

    pub(super) fn state(&self) -> DeviceState {
        each!(self, device => device.state())
    }

    /// Has it take in frames to a group: cards pass on only what they were told to.
    pub(super) fn hear(&mut self, group: Mac) {
        match self {
            Self::Memif(_) => _ = group, // takes in everything
            #[cfg(feature = "dpdk")]
            Self::Dpdk(dpdk) => dpdk.hear(group),
        }
    }

    /// Takes a datagram to send: its route, and its parts, `len` bytes together.
    #[inline]
    pub(super) fn send(
        &mut self,
        route: &Route,
        parts: &[IoSlice<'_>],
        len: usize,
        counters: &mut Counters,
    ) {
        each!(self, device => device.send(route, parts, len, counters));
    }

    /// Sends a whole frame.
    pub(super) fn send_frame(&mut self, frame: &[u8], counters: &mut Counters) {
        each!(self, device => {
            device.send_frame(frame, counters);
            device.flush(counters);
        });
    }

    /// Sends what waits, as far as there is room.
    #[inline]
    pub(super) fn flush(&mut self, counters: &mut Counters) {
        each!(self, device => device.flush(counters));
    }

    /// Does what is due now and then; whether the other end is there.
    pub(super) fn tend(&mut self, now: Nanos, counters: &mut Counters) -> bool {
        each!(self, device => device.tend(now, counters))
    }

    /// The memory interface, if it is one.
    #[inline]
    pub(super) fn memif(&mut self) -> Option<&mut Memif> {
        match self {
            Self::Memif(memif) => Some(memif),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(_) => None,
        }
    }

    /// Where its frames come from, if DPDK drives it.
    #[cfg(feature = "dpdk")]
    pub(super) fn pool(&mut self) -> Option<&mut dpdk::Pool> {
        match self {
            Self::Memif(_) => None,
            Self::Dpdk(dpdk) => Some(dpdk.pool()),
        }
    }

    /// Frames there are to wait in.
    pub(super) fn frames_max(&self) -> usize {
        match self {
            Self::Memif(_) => memif::MAX_BACKLOG,
            #[cfg(feature = "dpdk")]
            Self::Dpdk(dpdk) => dpdk.frames(),
        }
    }

    /// Frames that wait, or that a device has.
    pub(super) fn frames_in_use(&self) -> usize {
        match self {
            Self::Memif(memif) => memif.waiting(),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(dpdk) => dpdk.frames_in_use(),
        }
    }

    /// Whether it is about to find its peer, and is to be tended often.
    pub(super) fn is_joining(&self) -> bool {
        match self {
            Self::Memif(memif) => memif.is_joining(),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(_) => false,
        }
    }

    /// Drops what waits to be sent; how many frames those were.
    pub(super) fn forget(&mut self) -> usize {
        each!(self, device => device.forget())
    }

    /// Whether it stood on an interface that was removed.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Memif(_) => false,
            #[cfg(feature = "dpdk")]
            Self::Dpdk(dpdk) => dpdk.is_gone(),
        }
    }

    /// The socket by which it has an interface of the kernel's, if it stands on one.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Memif(_) => None,
            #[cfg(feature = "dpdk")]
            Self::Dpdk(dpdk) => dpdk.socket(),
        }
    }

    /// What to sleep on.
    pub(super) fn sources<'a>(&'a self, now: Nanos, sources: &mut Sources<'a>) {
        match self {
            Self::Memif(memif) => memif.sources(now, sources),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(dpdk) => dpdk.sources(sources),
        }
    }
}
