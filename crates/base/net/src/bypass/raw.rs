//! A device for whoever is no host: whole Ethernet frames in and out, whomever they are for.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::Instant;

#[cfg(feature = "dpdk")]
use super::dpdk::{self, Burst, Dpdk, Seat, Whose};
use super::driver::{CLOCK_ROUNDS, JOIN, TEND};
use super::memif::Memif;
use super::port::Port;
use super::sizes::{ETHERNET, FRAME_ROOM, JUMBO};
use super::state::DeviceState;
use crate::{Counters, Nanos, Sources};

/// Frames that wait for room at a device; more are refused. Short of where drivers begin to drop
/// the oldest.
const MAX_WAITING: usize = 256;

/// Longest packet above Ethernet that a device can be opened for, in bytes.
const MAX_MTU: u16 = 16_000;

/// A device whose frames are all taken in and given out as they are. It may be opened on one thread
/// and used on another; it is for one at a time.
pub struct RawDevice {
    port: Port,
    counters: Counters,
    /// Bytes of the longest frame.
    longest: usize,
    /// A frame, copied out of shared memory.
    frame: Vec<u8>,
    #[cfg(feature = "dpdk")]
    burst: Burst,
    /// The next of the burst.
    #[cfg(feature = "dpdk")]
    next: usize,
    start: Instant,
    rounds: u32,
    tended: Nanos,
    up: bool,
    /// Frames that waited when the other end went.
    forgotten: u64,
    /// Somebody sleeps on it.
    asleep: Cell<bool>,
}

/// Prepares for devices that are about to be opened: DPDK looks for those on buses once, when it
/// starts.
///
/// # Errors
/// What DPDK says of its start.
pub fn start_devices(devices: &[String]) -> io::Result<()> {
    #[cfg(feature = "dpdk")]
    {
        let driven: Vec<_> = devices.iter().filter(|device| !Memif::is(device)).cloned().collect();
        if !driven.is_empty() {
            dpdk::start(&driven)?;
        }
    }
    #[cfg(not(feature = "dpdk"))]
    let _ = devices; // opening them says what is missing
    Ok(())
}

impl RawDevice {
    /// Opens a device, named as in a locator's `dev=`, for packets of up to `mtu` bytes above
    /// Ethernet: 1,500 unless told, and 9,000 over memory interfaces. An interface of the
    /// kernel's is looked for in the network namespace of the calling thread, and the device is
    /// to be dropped in the same.
    ///
    /// # Errors
    /// What the device or DPDK says; packets longer than it carries; `Unsupported` for devices of
    /// DPDK's in a build without it.
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
            rounds: 0,
            tended: Nanos(0),
            up: false,
            forgotten: 0,
            asleep: Cell::new(false),
        })
    }

    /// The next frame that has come, if there is one.
    #[inline]
    pub fn receive(&mut self) -> Option<&[u8]> {
        if self.asleep.replace(false) {
            if let Some(memif) = self.port.memif() {
                memif.wake();
            }
            self.tended = Nanos(0);
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
                    take_seat();
                    dpdk.receive(&mut self.burst);
                    self.next = 0;
                }
                self.next += 1;
                self.burst.get(self.next - 1)
            }
        }
    }

    /// Takes a frame to send, in parts; it leaves at the latest with the next [`turn`](Self::turn).
    /// False: it is longer than the device was opened for, the other end is not there, or too
    /// many wait for room.
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

    /// Sends what waits, as far as there is room, and does what is due now and then: to be called
    /// often, whether there was anything to send or not.
    ///
    /// # Errors
    /// `NotConnected`: the interface that it stands on was removed. It will not come back.
    #[inline]
    pub fn turn(&mut self) -> io::Result<()> {
        self.port.flush(&mut self.counters);
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(CLOCK_ROUNDS) || self.tended == Nanos(0) {
            return self.look_around();
        }
        Ok(())
    }

    #[cold]
    fn look_around(&mut self) -> io::Result<()> {
        let now = Nanos(1) + self.start.elapsed();
        let every = if self.port.is_joining() { JOIN } else { TEND };
        if self.tended != Nanos(0) && now.since(self.tended) < every {
            return Ok(());
        }
        self.tended = now;
        let up = self.port.tend(now, &mut self.counters);
        if self.up && !up {
            // Whoever comes next is not to get what the one before did not.
            self.forgotten += self.port.forget() as u64;
        }
        self.up = up;
        if self.port.is_gone() {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the interface was removed"));
        }
        Ok(())
    }

    /// Adds what to sleep on until a frame comes. A device that has yet to be looked at once more
    /// says so by a nap of no time.
    pub fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        self.asleep.set(true);
        self.port.sources(Nanos(1) + self.start.elapsed(), sources);
    }

    /// The socket by which it has an interface of the kernel's, if it stands on one: for options of
    /// its own.
    #[must_use]
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.port.socket()
    }

    /// Whether somebody is at the other end.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// What it is, and how it fares.
    #[must_use]
    pub fn state(&self) -> DeviceState {
        self.port.state()
    }

    /// Frames taken to be sent that were dropped, for the other end had gone.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
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
        let (dpdk, _) = Dpdk::open(Some(device), None, mtu, Whose::All)?;
        // A peer may come yet; an interface is there, or what is wrong with it would be tried again
        // from another namespace.
        match dpdk.state().trouble.filter(|_| dpdk.has_interface()) {
            Some(trouble) => Err(io::Error::other(trouble)),
            None => Ok(Port::Dpdk(dpdk)),
        }
    }
    #[cfg(not(feature = "dpdk"))]
    {
        let reason = format!(
            "{device} is driven by DPDK, which this sprat was built without: install libdpdk 22.11 and build with \
             --features sprat-cli/dpdk (`make build` does where libdpdk is)"
        );
        Err(io::Error::new(io::ErrorKind::Unsupported, reason))
    }
}

/// Gives the thread a place in DPDK, with caches of its own, for as long as it lives. Without one
/// it is merely slower.
#[cfg(feature = "dpdk")]
#[inline]
fn take_seat() {
    thread_local! {
        static SEAT: Option<Seat> = Seat::take().ok();
    }
    SEAT.with(|_| {});
}
