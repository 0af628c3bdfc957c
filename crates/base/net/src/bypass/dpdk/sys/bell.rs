//! What wakes a node that sleeps: a descriptor of its device's that polls readable when frames have
//! arrived.

use sprat_host::lock;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard};

use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, sockopt};

/// Families of the sockets by which DPDK has the kernel's interfaces: `af_packet` and `af_xdp`.
const FAMILIES: [AddressFamily; 2] = [AddressFamily::PACKET, AddressFamily::XDP];

/// A bell. It stays ours when the device has given its descriptor up, and then rings no more.
pub(in crate::bypass) enum Bell {
    /// A set that tells of the device's interrupt: rings for the next frame when it has been armed,
    /// and until it is [hushed](Self::hush). Each interrupt is told once, so that nobody has to
    /// take from the descriptor what only its driver knows how to take: some count events, some
    /// are sets themselves.
    Interrupt(OwnedFd),
    /// A socket of the kernel's: readable as long as a frame lies in its ring.
    Socket(OwnedFd),
}

impl Bell {
    /// Of the interrupt behind `fd`, which is DPDK's.
    pub(super) fn of_interrupt(fd: RawFd) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        // SAFETY: open, for DPDK has just named it, and its device, which is this thread's, is not
        // closed meanwhile.
        let theirs = unsafe { BorrowedFd::borrow_raw(fd) };
        epoll::add(&set, theirs, epoll::EventData::new_u64(0), flags)?;
        Ok(Self::Interrupt(set))
    }

    /// What to wait for.
    pub(in crate::bypass) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Interrupt(fd) | Self::Socket(fd) => fd.as_fd(),
        }
    }

    /// Whether it rings only when it has been armed.
    pub(in crate::bypass) fn is_armed(&self) -> bool {
        matches!(self, Self::Interrupt(_))
    }

    /// Forgets that it rang.
    pub(in crate::bypass) fn hush(&self) {
        match self {
            Self::Interrupt(set) => {
                let mut told = [epoll::Event {
                    flags: epoll::EventFlags::empty(),
                    data: epoll::EventData::new_u64(0),
                }];
                let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
                let _ = epoll::wait(set, &mut told, Some(&at_once)); // it rang or it did not
            }
            // An interface that is switched off leaves an error with the socket, which polls
            // readable until it is read.
            Self::Socket(fd) => drop(sockopt::socket_error(fd)),
        }
    }
}

/// A copy of a descriptor of DPDK's.
fn copy(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: open, for the process has just listed it, and its device, which is this thread's, is
    // not closed meanwhile.
    let theirs = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(rustix::io::fcntl_dupfd_cloexec(theirs, 0)?)
}

/// One device is opened at a time, so that the sockets that appear meanwhile are its own.
static OPENING: Mutex<()> = Mutex::new(());

/// The process's sockets of the kernel's interfaces, before a device is opened.
pub(in crate::bypass) struct Before {
    sockets: BTreeSet<RawFd>,
    _opening: MutexGuard<'static, ()>,
}

impl Before {
    /// Begins to open a device.
    pub(in crate::bypass) fn opening() -> Self {
        let opening = lock(&OPENING);
        Self { sockets: sockets().collect(), _opening: opening }
    }

    /// The bells that the opening brought, one a queue: of a device that stands on an interface of
    /// the kernel's.
    pub(in crate::bypass) fn found(&self) -> Vec<Bell> {
        let fresh = sockets().filter(|fd| !self.sockets.contains(fd));
        fresh.filter_map(|fd| copy(fd).ok().map(Bell::Socket)).collect()
    }
}

/// Open sockets of such families, the oldest first.
fn sockets() -> impl Iterator<Item = RawFd> {
    let numbers = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: BTreeSet<RawFd> =
        numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.into_iter().filter(|&fd| {
        // SAFETY: it is only asked what it is; if it has been closed since, the kernel says that it
        // is nothing.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        sockopt::socket_domain(fd).is_ok_and(|family| FAMILIES.contains(&family))
    })
}
