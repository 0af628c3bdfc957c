//! The descriptor of a device that wakes a sleeping node: it polls readable when frames have
//! arrived.

use sprat_host::lock;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard};

use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, sockopt};

/// Families of the sockets through which DPDK uses the kernel's interfaces: `af_packet` and
/// `af_xdp`.
const FAMILIES: [AddressFamily; 2] = [AddressFamily::PACKET, AddressFamily::XDP];

/// A descriptor that *rings*, which means that it polls readable, when frames have arrived. It
/// stays valid when the device has closed its own descriptor, but rings no more then.
pub(in crate::bypass) enum Bell {
    /// An epoll set with the device's interrupt. Once armed, it becomes readable with the next
    /// frame, until it is [cleared](Self::clear). It watches the interrupt edge-triggered, so that
    /// we need not read the interrupt's descriptor. Only the driver knows how to read it: some
    /// descriptors count events, some are epoll sets themselves.
    Interrupt(OwnedFd),
    /// A socket: readable as long as a frame lies in its ring.
    Socket(OwnedFd),
}

impl Bell {
    /// Creates the bell of the interrupt `fd`, which belongs to DPDK.
    pub(super) fn of_interrupt(fd: RawFd) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        // SAFETY: the descriptor is open, as DPDK has just returned it, and its device, which
        // belongs to this thread, is not closed in the meantime.
        let theirs = unsafe { BorrowedFd::borrow_raw(fd) };
        epoll::add(&set, theirs, epoll::EventData::new_u64(0), flags)?;
        Ok(Self::Interrupt(set))
    }

    /// Returns the descriptor to wait for.
    pub(in crate::bypass) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Interrupt(fd) | Self::Socket(fd) => fd.as_fd(),
        }
    }

    /// Returns whether the bell must be armed before each sleep. This is true of an interrupt and
    /// false of a socket.
    pub(in crate::bypass) fn is_armed(&self) -> bool {
        matches!(self, Self::Interrupt(_))
    }

    /// Clears the event, so that the descriptor can become readable again.
    pub(in crate::bypass) fn clear(&self) {
        match self {
            Self::Interrupt(set) => {
                let mut events = [epoll::Event {
                    flags: epoll::EventFlags::empty(),
                    data: epoll::EventData::new_u64(0),
                }];
                let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
                let _ = epoll::wait(set, &mut events, Some(&at_once));
            }
            // An interface that goes down leaves an error on the socket, which then polls readable
            // until the error is read.
            Self::Socket(fd) => drop(sockopt::socket_error(fd)),
        }
    }
}

/// Duplicates a descriptor that belongs to DPDK.
fn copy(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is open, as the process has just listed it, and its device, which
    // belongs to this thread, is not closed in the meantime.
    let theirs = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(rustix::io::fcntl_dupfd_cloexec(theirs, 0)?)
}

/// Only one device is opened at a time, so that the sockets that appear belong to it.
static OPENING: Mutex<()> = Mutex::new(());

/// The process's packet sockets before a device is opened.
pub(in crate::bypass) struct SocketSnapshot {
    sockets: BTreeSet<RawFd>,
    _opening: MutexGuard<'static, ()>,
}

impl SocketSnapshot {
    /// Lists the sockets before a device is opened.
    pub(in crate::bypass) fn take() -> Self {
        let opening = lock(&OPENING);
        Self { sockets: sockets().collect(), _opening: opening }
    }

    /// Returns the bells of the sockets opened after `self` was made, one for each queue of a
    /// device on a kernel's interface.
    pub(in crate::bypass) fn new_bells(&self) -> Vec<Bell> {
        let fresh = sockets().filter(|fd| !self.sockets.contains(fd));
        fresh.filter_map(|fd| copy(fd).ok().map(Bell::Socket)).collect()
    }
}

/// Returns the open sockets of those families, in the order of their numbers.
fn sockets() -> impl Iterator<Item = RawFd> {
    let numbers = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: BTreeSet<RawFd> =
        numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.into_iter().filter(|&fd| {
        // SAFETY: only the socket's family is read; if it has been closed since, the kernel returns
        // an error.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        sockopt::socket_domain(fd).is_ok_and(|family| FAMILIES.contains(&family))
    })
}
