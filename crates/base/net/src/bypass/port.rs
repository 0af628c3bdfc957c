//! A port of a host: a memory interface, or a device that DPDK drives.

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

/// Calls a method of the device, whichever kind it is.
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

    /// Joins a multicast group, because cards pass on only frames to addresses that they were
    /// given.
    pub(super) fn join_group(&mut self, group: Mac) {
        match self {
            Self::Memif(_) => _ = group, // a memory interface receives everything
            #[cfg(feature = "dpdk")]
            Self::Dpdk(dpdk) => dpdk.join_group(group),
        }
    }

    /// Sends a datagram, given its route and its parts. `len` is the sum of the parts' lengths, in
    /// bytes.
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

    /// Sends waiting frames, as many as there is room for.
    #[inline]
    pub(super) fn flush(&mut self, counters: &mut Counters) {
        each!(self, device => device.flush(counters));
    }

    /// Does periodic work, and returns whether the peer is there.
    pub(super) fn maintain(&mut self, now: Nanos, counters: &mut Counters) -> bool {
        each!(self, device => device.maintain(now, counters))
    }

    /// Returns the memory interface, if the port is one.
    #[inline]
    pub(super) fn memif(&mut self) -> Option<&mut Memif> {
        match self {
            Self::Memif(memif) => Some(memif),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(_) => None,
        }
    }

    /// Returns the pool of the device's frames, if DPDK drives the device.
    #[cfg(feature = "dpdk")]
    pub(super) fn pool(&mut self) -> Option<&mut dpdk::Pool> {
        match self {
            Self::Memif(_) => None,
            Self::Dpdk(dpdk) => Some(dpdk.pool()),
        }
    }

    /// Returns the number of frames that the device's queue or pool holds.
    pub(super) fn frames_max(&self) -> usize {
        match self {
            Self::Memif(_) => memif::MAX_BACKLOG,
            #[cfg(feature = "dpdk")]
            Self::Dpdk(dpdk) => dpdk.frames(),
        }
    }

    /// Returns the number of frames that wait to be sent or that the device has.
    pub(super) fn frames_in_use(&self) -> usize {
        match self {
            Self::Memif(memif) => memif.waiting(),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(dpdk) => dpdk.frames_in_use(),
        }
    }

    /// Returns whether the port is in the handshake with its peer. It then needs maintenance often.
    pub(super) fn is_joining(&self) -> bool {
        match self {
            Self::Memif(memif) => memif.is_joining(),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(_) => false,
        }
    }

    /// Drops the frames waiting to be sent and returns how many.
    pub(super) fn discard_waiting(&mut self) -> usize {
        each!(self, device => device.discard_waiting())
    }

    /// Returns whether the kernel's interface below the device was removed.
    pub(super) fn is_interface_removed(&self) -> bool {
        match self {
            Self::Memif(_) => false,
            #[cfg(feature = "dpdk")]
            Self::Dpdk(dpdk) => dpdk.is_interface_removed(),
        }
    }

    /// Returns the socket of the kernel's interface below the device, if there is one.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Memif(_) => None,
            #[cfg(feature = "dpdk")]
            Self::Dpdk(dpdk) => dpdk.socket(),
        }
    }

    /// Adds the descriptors to sleep on.
    pub(super) fn sources<'a>(&'a self, now: Nanos, sources: &mut Sources<'a>) {
        match self {
            Self::Memif(memif) => memif.sources(now, sources),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(dpdk) => dpdk.sources(sources),
        }
    }
}
