//! Ports: where frames come from and go to. Each frame has a virtio-net header in front of it. The
//! header is empty if the port has none for the frame.

mod device;
mod error;
mod netns;
mod packet_socket;
mod pair;
mod stats;
mod sys;
mod tap;

use crate::frame::{Malformed, Packet, Received};
use crate::memory::{Memory, ReceiveBuffer};
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

/// The result of sending a packet to a port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sent {
    /// The port has accepted the packet.
    Accepted,
    /// The port did not accept the packet: its queue is full, it is down, or it cannot carry this
    /// packet.
    Refused(Errno),
}

/// A port of a box: a TAP, an interface that exists already, a device that bypasses the kernel, or
/// one end of a pair for tests.
///
/// One thread may read while another writes. Calls never block. A [device](Self::is_device) belongs
/// to one thread, which must call [`poll`](Self::poll) in every loop iteration. Dropping the port
/// closes it.
#[derive(Debug)]
pub struct Port {
    name: String,
    kind: Kind,
    opened: Instant,
    /// A socket in the namespace of the port's interface, and the name of the interface.
    interface: Option<(OwnedFd, String)>,
}

#[derive(Debug)]
enum Kind {
    /// A TAP, with the kernel's counters for it.
    Tap(OwnedFd, Option<InterfaceStats>),
    /// A packet socket, with the number of frames that it has dropped so far. The kernel resets its
    /// own count when it is read.
    Packet(OwnedFd, AtomicU64),
    /// One end of a pair of sockets.
    Pair(OwnedFd),
    /// A device that bypasses the kernel. Only one thread uses it: the engine makes sure that no
    /// thread ever waits for this lock.
    Device(Box<Mutex<Device>>),
}

impl Port {
    fn new(name: &str, kind: Kind) -> Self {
        Self { name: name.to_owned(), kind, opened: Instant::now(), interface: None }
    }

    /// Returns whether the kernel says when each packet arrived.
    pub(crate) fn has_timestamps(&self) -> bool {
        matches!(self.kind, Kind::Packet(..))
    }

    /// Sets the port's interface. `socket` must have been made in the interface's namespace.
    fn with_interface(self, socket: OwnedFd) -> Self {
        let interface = Some((socket, self.name.clone()));
        Self { interface, ..self }
    }

    /// Returns the length of the longest packet that the interface carries, in bytes above
    /// Ethernet. `None` if it is unknown. It may change.
    pub(crate) fn mtu(&self) -> Option<u32> {
        let (socket, name) = self.interface.as_ref()?;
        sys::mtu(socket, name).ok()
    }

    /// Returns how long the port has been open. Packets that arrived since then may wait in the
    /// port.
    pub(crate) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Renames the port. This helps when interfaces in several namespaces have the same name.
    #[must_use]
    pub fn called(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Returns the port's name: that of its interface or device, unless the port was
    /// [renamed](Self::called).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads a packet; `None` if there is none. The packet's time of arrival is the kernel's time
    /// stamp if there is one (with a packet socket). Otherwise it is `clock`'s time after the read.
    ///
    /// # Errors
    /// The kernel or the device fails to receive, or the far end of a pair is closed.
    pub fn receive(
        &self,
        buffer: &mut ReceiveBuffer,
        memory: &mut Memory,
        clock: impl FnOnce() -> Time,
    ) -> Result<Option<Received>, PortError> {
        let mut arrived = None;
        let read = |slices: &mut [IoSliceMut<'_>]| match &self.kind {
            Kind::Packet(fd, _) => {
                let read = sys::receive_packet(fd.as_fd(), slices)?;
                arrived = read.arrived;
                Ok((read.len, read.tag))
            }
            Kind::Tap(fd, _) | Kind::Pair(fd) => match rustix::io::readv(fd, slices)? {
                0 => Err(Errno::PIPE), // no frame is empty: the far end of a pair is closed
                len => Ok((len, None)),
            },
            Kind::Device(device) => Ok((device::receive(&mut lock(device), slices)?, None)),
        };
        match Packet::receive(buffer, memory, Time::ZERO, read) {
            // A ring with short slots keeps only the beginning of a longer frame.
            Ok(Received::Packet(packet)) if self.is_device() && packet.is_cut_short() => {
                packet.free(memory);
                Ok(Some(Received::Malformed(Malformed::Short)))
            }
            Ok(Received::Packet(mut packet)) => {
                packet.arrived = clock().before(arrived.map_or(Duration::ZERO, age));
                if self.is_device() {
                    packet.mark_partial_checksum();
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

    /// Writes a packet.
    ///
    /// # Panics
    /// The port [is a device](Self::is_device), and the packet is not a single frame with complete
    /// checksums.
    #[must_use]
    pub fn send(&self, packet: &Packet) -> Sent {
        let sent = match &self.kind {
            Kind::Tap(fd, _) | Kind::Packet(fd, _) | Kind::Pair(fd) => {
                packet.gather(|slices| rustix::io::writev(fd, slices))
            }
            Kind::Device(device) if device::send(&mut lock(device), packet) => {
                return Sent::Accepted;
            }
            Kind::Device(_) => Err(Errno::NOBUFS),
        };
        match sent {
            Ok(_) => Sent::Accepted,
            Err(error) => Sent::Refused(error),
        }
    }

    /// Does a device's regular work, such as sending the frames that were written. Call it in every
    /// loop iteration, even when no packets pass.
    ///
    /// # Errors
    /// The device fails.
    pub fn poll(&self) -> Result<(), PortError> {
        match &self.kind {
            Kind::Device(device) => {
                lock(device).poll().map_err(|error| device::device_error(&self.name, error))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the port is a device that bypasses the kernel. Such a port carries single
    /// frames, must be [polled](Self::poll), and belongs to one thread.
    #[must_use]
    pub fn is_device(&self) -> bool {
        matches!(self.kind, Kind::Device(_))
    }

    /// Returns the descriptor to wait on. `None` for a device.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Tap(fd, _) | Kind::Packet(fd, _) | Kind::Pair(fd) => Some(fd.as_fd()),
            Kind::Device(_) => None,
        }
    }

    /// Returns the device; `None` if the port is not a device.
    pub(crate) fn device(&self) -> Option<MutexGuard<'_, Device>> {
        match &self.kind {
            Kind::Device(device) => Some(lock(device)),
            _ => None,
        }
    }

    /// Returns the number of packets that the kernel or a device dropped before the box read them,
    /// mostly because a queue was full. Counted since the port was opened. 0 if there is no such
    /// counter.
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

    /// Returns the number of frames that a device accepted but did not send, because the other end
    /// was closed or the kernel refused them.
    #[must_use]
    pub fn lost_by_device(&self) -> u64 {
        match &self.kind {
            Kind::Device(device) => device::lost_behind(&lock(device)),
            _ => 0,
        }
    }
}

/// Returns how long ago `arrived` was, which is a time since 1970. Zero if it is in the future,
/// because the clock was set back.
fn age(arrived: Duration) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(arrived)
}
