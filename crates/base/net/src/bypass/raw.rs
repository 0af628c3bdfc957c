//! A device without a host: whole Ethernet frames in and out, whatever their addresses.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::Instant;

#[cfg(feature = "dpdk")]
use super::dpdk::{self, AcceptedFrames, Burst, Dpdk, ThreadRegistration};
use super::driver::{CLOCK_ITERATIONS, JOINING_MAINTENANCE, MAINTENANCE};
use super::memif::Memif;
use super::port::Port;
use super::sizes::{ETHERNET, FRAME_ROOM, JUMBO};
use super::state::DeviceState;
use crate::{Counters, Nanos, Sources};

/// The largest number of frames that wait for room at a device; further ones are refused. This
/// limit is below the number at which the drivers drop the oldest.
const MAX_WAITING: usize = 256;

/// The largest MTU for which a device can be opened, in bytes.
const MAX_MTU: u16 = 16_000;

/// A device that receives and sends whole Ethernet frames unchanged.
///
/// Call [`receive`](Self::receive) and [`send`](Self::send) for frames, [`poll`](Self::poll) often,
/// and sleep on [`sources`](Self::sources). It may be opened on one thread and used on another, but
/// only by one thread at a time.
pub struct RawDevice {
    port: Port,
    counters: Counters,
    /// Length of the longest frame, in bytes.
    longest: usize,
    /// Space for a frame copied out of shared memory.
    frame: Vec<u8>,
    #[cfg(feature = "dpdk")]
    burst: Burst,
    /// The index of the next frame in the burst.
    #[cfg(feature = "dpdk")]
    next: usize,
    start: Instant,
    iterations: u32,
    maintained: Nanos,
    up: bool,
    /// The number of frames dropped because they were waiting when the peer left.
    discarded: u64,
    /// Whether the user has gone to sleep on the device.
    asleep: Cell<bool>,
}

/// Starts DPDK for all devices that will be opened. DPDK probes the buses only once, when it
/// starts, so call this before the first [`RawDevice::open`].
///
/// # Errors
/// DPDK's error on start.
pub fn start_devices(devices: &[String]) -> io::Result<()> {
    #[cfg(feature = "dpdk")]
    {
        let driven: Vec<_> = devices.iter().filter(|device| !Memif::is(device)).cloned().collect();
        if !driven.is_empty() {
            dpdk::start(&driven)?;
        }
    }
    #[cfg(not(feature = "dpdk"))]
    let _ = devices; // opening them reports the missing feature
    Ok(())
}

impl RawDevice {
    /// Opens a device, named as in a locator's `dev=`. `mtu` is the length of the longest packet
    /// without its Ethernet header, in bytes. Its default is 1,500, and 9,000 for memory
    /// interfaces. A kernel interface is looked up in the network namespace of the calling thread,
    /// and the device must be dropped in the same namespace.
    ///
    /// # Errors
    /// Errors of the device or of DPDK. `InvalidInput` if `mtu` is over 16,000 or larger than the
    /// device carries. `Unsupported` for devices of DPDK's in a build without DPDK.
    pub fn open(device: &str, mtu: Option<u16>) -> io::Result<Self> {
        let mtu = mtu.unwrap_or(if Memif::is(device) { JUMBO } else { ETHERNET });
        if mtu > MAX_MTU {
            let reason = format!("packets of {mtu} bytes: a device carries {MAX_MTU} at most");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let longest = usize::from(mtu) + FRAME_ROOM;
        Ok(Self {
            port: open(device, mtu)?,
            counters: Counters::default(),
            longest,
            frame: vec![0; longest],
            #[cfg(feature = "dpdk")]
            burst: Burst::new(),
            #[cfg(feature = "dpdk")]
            next: 0,
            start: Instant::now(),
            iterations: 0,
            maintained: Nanos(0),
            up: false,
            discarded: 0,
            asleep: Cell::new(false),
        })
    }

    /// Returns the next received frame, if there is one.
    #[inline]
    pub fn receive(&mut self) -> Option<&[u8]> {
        if self.asleep.replace(false) {
            if let Some(memif) = self.port.memif() {
                memif.wake();
            }
            self.maintained = Nanos(0);
        }
        match &mut self.port {
            Port::Memif(memif) => {
                let len = memif.take(&mut self.frame)?;
                memif.release();
                Some(&self.frame[..len])
            }
            #[cfg(feature = "dpdk")]
            Port::Dpdk(dpdk) => {
                if self.burst.get(self.next).is_none() {
                    register_thread();
                    dpdk.receive(&mut self.burst);
                    self.next = 0;
                }
                self.next += 1;
                self.burst.get(self.next - 1)
            }
        }
    }

    /// Sends a frame, given in parts, at the latest with the next [`poll`](Self::poll). Returns
    /// false if the frame is longer than the device was opened for, the peer is not there, too many
    /// frames wait for room, or no buffer is free.
    #[inline]
    pub fn send(&mut self, parts: &[IoSlice<'_>]) -> bool {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > self.longest {
            return false;
        }
        let counters = &mut self.counters;
        match &mut self.port {
            Port::Memif(memif) => {
                let room = memif.is_up() && memif.waiting() < MAX_WAITING;
                room && {
                    memif.send_parts(&[], parts, len, counters);
                    true
                }
            }
            #[cfg(feature = "dpdk")]
            Port::Dpdk(dpdk) => {
                dpdk.is_up()
                    && dpdk.waiting() < MAX_WAITING
                    && dpdk.send_parts(parts, len, counters)
            }
        }
    }

    /// Sends waiting frames, as many as there is room for, and does periodic work. Call this often,
    /// also if there was nothing to send.
    ///
    /// # Errors
    /// `NotConnected` if the kernel's interface below was removed. The device does not recover from
    /// this.
    #[inline]
    pub fn poll(&mut self) -> io::Result<()> {
        self.port.flush(&mut self.counters);
        self.iterations = self.iterations.wrapping_add(1);
        if self.iterations.is_multiple_of(CLOCK_ITERATIONS) || self.maintained == Nanos(0) {
            return self.maintain();
        }
        Ok(())
    }

    #[cold]
    fn maintain(&mut self) -> io::Result<()> {
        let now = Nanos(1) + self.start.elapsed();
        let every = if self.port.is_joining() { JOINING_MAINTENANCE } else { MAINTENANCE };
        if self.maintained != Nanos(0) && now.since(self.maintained) < every {
            return Ok(());
        }
        self.maintained = now;
        let up = self.port.maintain(now, &mut self.counters);
        if self.up && !up {
            // The next peer must not get frames meant for the previous one.
            self.discarded += self.port.discard_waiting() as u64;
        }
        self.up = up;
        if self.port.is_interface_removed() {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the interface was removed"));
        }
        Ok(())
    }

    /// Adds to `sources` the descriptors to sleep on until a frame arrives. If the device must be
    /// polled once more before a sleep, limits the sleep to zero.
    pub fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        self.asleep.set(true);
        self.port.sources(Nanos(1) + self.start.elapsed(), sources);
    }

    /// Returns the packet socket on the kernel's interface below, if there is one. It is meant for
    /// setting socket options.
    #[must_use]
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.port.socket()
    }

    /// Returns whether a peer was at the other end when [`poll`](Self::poll) last did its periodic
    /// work.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Returns the state of the device.
    #[must_use]
    pub fn state(&self) -> DeviceState {
        self.port.state()
    }

    /// Returns the number of frames that were accepted for sending, still waited when the peer
    /// left, and were dropped then.
    #[must_use]
    pub fn discarded(&self) -> u64 {
        self.discarded
    }
}

impl std::fmt::Debug for RawDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawDevice").field("state", &self.state()).finish_non_exhaustive()
    }
}

fn open(device: &str, mtu: u16) -> io::Result<Port> {
    if Memif::is(device) {
        return Ok(Port::Memif(Memif::open(device, None, usize::from(mtu) + FRAME_ROOM)?));
    }
    #[cfg(feature = "dpdk")]
    {
        start_devices(&[device.to_owned()])?;
        let (dpdk, _) = Dpdk::open(Some(device), None, mtu, AcceptedFrames::All)?;
        // If the peer is missing, it may appear later. If the interface is missing, this fails at
        // once, because a retry could run in another network namespace.
        match dpdk.state().trouble.filter(|_| dpdk.has_interface()) {
            Some(trouble) => Err(io::Error::other(trouble)),
            None => Ok(Port::Dpdk(dpdk)),
        }
    }
    #[cfg(not(feature = "dpdk"))]
    {
        let reason = format!(
            "{device} is driven by DPDK, which this sprat was built without: install libdpdk \
             22.11 and build with --features sprat-cli/dpdk (`make build` does where libdpdk is)"
        );
        Err(io::Error::new(io::ErrorKind::Unsupported, reason))
    }
}

/// Registers the thread with DPDK for as long as the thread lives. DPDK then gives it caches of its
/// own; without them the thread is only slower.
#[cfg(feature = "dpdk")]
#[inline]
fn register_thread() {
    thread_local! {
        static REGISTRATION: Option<ThreadRegistration> = ThreadRegistration::register().ok();
    }
    REGISTRATION.with(|_| {});
}
