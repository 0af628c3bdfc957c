//! Ports: where frames come from and go to, each with a virtio-net header before it, which is empty
//! where a port knows none.

mod device;
mod error;
mod netns;
mod packet_socket;
mod pair;
mod stats;
mod sys;
mod tap;

use crate::frame::{Malformed, Packet, Received};
use crate::memory::{Landing, Memory};
use crate::time::Time;
use device::Device;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use sprat_host::lock;
use stats::InterfaceStats;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use device::{DpdkSpec, XdpSpec, open_dpdk, open_xdp, prepare};
pub use error::PortError;
pub use packet_socket::{PacketSpec, open_packet};
pub use pair::pair;
pub use tap::{MTU, TapSpec, open_tap};

/// What became of a packet that was sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sent {
    /// The port has it.
    Whole,
    /// The port does not take it: its queue is full, it is down, or the packet is none for it.
    Refused(Errno),
}

/// A port. Reading and writing may go on at once, from two threads.
#[derive(Debug)]
pub struct Port {
    name: String,
    kind: Kind,
    opened: Instant,
    /// The interface that it is, by a socket in its namespace.
    interface: Option<(OwnedFd, String)>,
}

#[derive(Debug)]
enum Kind {
    /// A TAP, and what the kernel counts for it.
    Tap(OwnedFd, Option<InterfaceStats>),
    /// A packet socket, and frames that it has dropped: the kernel forgets what it has told.
    Packet(OwnedFd, AtomicU64),
    /// One of a pair of sockets.
    Pair(OwnedFd),
    /// A device past the kernel. It is for one thread at a time; the engine sees to it that nobody
    /// ever waits here.
    Device(Box<Mutex<Device>>),
}

impl Port {
    fn new(name: &str, kind: Kind) -> Self {
        Self { name: name.to_owned(), kind, opened: Instant::now(), interface: None }
    }

    /// Whether it says when packets came.
    pub(crate) fn dates(&self) -> bool {
        matches!(self.kind, Kind::Packet(..))
    }

    /// Lets it know its interface, by any socket that was made in the interface's namespace.
    fn with_interface(self, socket: OwnedFd) -> Self {
        let interface = Some((socket, self.name.clone()));
        Self { interface, ..self }
    }

    /// The longest packet that its interface carries, in bytes above Ethernet; none where that is
    /// not known. It may change.
    pub(crate) fn mtu(&self) -> Option<u32> {
        let (socket, name) = self.interface.as_ref()?;
        sys::mtu(socket, name).ok()
    }

    /// How long it has been there: what came meanwhile may wait in it.
    pub(crate) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Calls it something else, where interfaces of several namespaces have one name.
    #[must_use]
    pub fn called(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Its name: that of the interface, unless it was called something else.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads a packet; none when none is there. It arrived when the kernel says that it did, if it
    /// does (a packet socket), otherwise when `clock` says that it has been read.
    ///
    /// # Errors
    /// The port is gone.
    pub fn receive(
        &self,
        landing: &mut Landing,
        memory: &mut Memory,
        clock: impl FnOnce() -> Time,
    ) -> Result<Option<Received>, PortError> {
        let mut came = None;
        let read = |slices: &mut [IoSliceMut<'_>]| match &self.kind {
            Kind::Packet(fd, _) => {
                let read = sys::receive_packet(fd.as_fd(), slices)?;
                came = read.came;
                Ok((read.len, read.tag))
            }
            Kind::Tap(fd, _) | Kind::Pair(fd) => match rustix::io::readv(fd, slices)? {
                0 => Err(Errno::PIPE), // no frame is empty: the far end of a pair is closed
                len => Ok((len, None)),
            },
            Kind::Device(device) => Ok((device::receive(&mut lock(device), slices)?, None)),
        };
        match Packet::receive(landing, memory, Time::ZERO, read) {
            // A ring whose places are short keeps the beginning of a longer frame.
            Ok(Received::Packet(packet)) if self.is_device() && packet.is_cut_short() => {
                packet.free(memory);
                Ok(Some(Received::Malformed(Malformed::Short)))
            }
            Ok(Received::Packet(mut packet)) => {
                packet.arrived = clock().before(came.map_or(Duration::ZERO, age));
                if self.is_device() {
                    packet.mark_unmade_checksum();
                }
                Ok(Some(Received::Packet(packet)))
            }
            Ok(other) => Ok(Some(other)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => {
                Err(PortError::Refused { port: self.name.clone(), step: "reading from it", error })
            }
        }
    }

    /// Writes a packet: a single frame with all its checksums, if the port [is a
    /// device](Self::is_device).
    #[must_use]
    pub fn send(&self, packet: &Packet) -> Sent {
        let sent = match &self.kind {
            Kind::Tap(fd, _) | Kind::Packet(fd, _) | Kind::Pair(fd) => {
                packet.gather(|slices| rustix::io::writev(fd, slices))
            }
            Kind::Device(device) if device::send(&mut lock(device), packet) => return Sent::Whole,
            Kind::Device(_) => Err(Errno::NOBUFS),
        };
        match sent {
            Ok(_) => Sent::Whole,
            Err(error) => Sent::Refused(error),
        }
    }

    /// Does what a device has to have done often, whether there are packets or not: what was
    /// written leaves.
    ///
    /// # Errors
    /// The port is gone.
    pub fn turn(&self) -> Result<(), PortError> {
        match &self.kind {
            Kind::Device(device) => {
                lock(device).poll().map_err(|error| device::gone(&self.name, error))
            }
            _ => Ok(()),
        }
    }

    /// Whether it is a device past the kernel: it carries single frames, wants its
    /// [turns](Self::turn), and has one thread.
    #[must_use]
    pub fn is_device(&self) -> bool {
        matches!(self.kind, Kind::Device(_))
    }

    /// What can be waited for, of a port that is no device.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Tap(fd, _) | Kind::Packet(fd, _) | Kind::Pair(fd) => Some(fd.as_fd()),
            Kind::Device(_) => None,
        }
    }

    /// The device, of a port that is one.
    pub(crate) fn device(&self) -> Option<MutexGuard<'_, Device>> {
        match &self.kind {
            Kind::Device(device) => Some(lock(device)),
            _ => None,
        }
    }

    /// Packets that the kernel, or a device, dropped on the way to the port, mostly because nobody
    /// had read those before. Counted since the port was opened; 0 where there is no such
    /// count.
    #[must_use]
    pub fn dropped_by_kernel(&self) -> u64 {
        match &self.kind {
            Kind::Tap(_, stats) => stats.as_ref().map_or(0, InterfaceStats::dropped),
            Kind::Packet(fd, dropped) => {
                let more = u64::from(sys::packet_drops(fd.as_fd()));
                dropped.fetch_add(more, Ordering::Relaxed) + more
            }
            Kind::Pair(_) => 0,
            Kind::Device(device) => device::lost_before(&lock(device)),
        }
    }

    /// Frames that a device took and did not send: the other end had gone, or the kernel below
    /// refused them.
    #[must_use]
    pub fn lost_by_device(&self) -> u64 {
        match &self.kind {
            Kind::Device(device) => device::lost_behind(&lock(device)),
            _ => 0,
        }
    }
}

/// How long ago that was, since 1970; nothing where the clock was set back.
fn age(came: Duration) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(came)
}
