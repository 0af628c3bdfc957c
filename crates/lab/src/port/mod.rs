//! Ports: where frames come from and go to, each with a virtio-net header before it.

mod netns;
mod packet_socket;
mod pair;
mod stats;
mod sys;
mod tap;

use crate::frame::{Packet, Received};
use crate::memory::{Landing, Memory};
use crate::time::Time;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use stats::InterfaceStats;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, Ordering};

pub use packet_socket::{PacketSpec, open_packet};
pub use pair::pair;
pub use tap::{MTU, TapSpec, open_tap};

/// Why a port could not be opened, or is no more.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The kernel said no to a step of it.
    #[error("port {port}: {step}: {error}{}", mend(*error))]
    Refused {
        /// Which port.
        port: String,
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        error: Errno,
    },
    /// There is no such namespace.
    #[error("port {port}: no network namespace {netns:?} ({error}); make it with: ip netns add {netns}")]
    NoNamespace {
        /// Which port.
        port: String,
        /// Its namespace.
        netns: String,
        /// What opening it said.
        error: Errno,
    },
    /// Somebody uses the interface.
    #[error(
        "port {port}: the interface {why}, and what it carries would be cut off or go round in circles; if that is meant: --force"
    )]
    InUse {
        /// Which port.
        port: String,
        /// By what that can be seen.
        why: String,
    },
    /// A thread could not be made.
    #[error("port {port}: cannot start a thread: {error}")]
    Thread {
        /// Which port.
        port: String,
        /// What the system said.
        error: std::io::Error,
    },
}

fn mend(error: Errno) -> &'static str {
    match error {
        Errno::PERM | Errno::ACCESS => {
            "; this needs root, or the capability CAP_NET_ADMIN (and CAP_SYS_ADMIN to enter a namespace)"
        }
        Errno::NOENT => "; is the kernel's tun driver there (/dev/net/tun)?",
        Errno::BUSY => "; another process has it: give another name, or end that one",
        Errno::INVAL => "; a name has 1 to 15 characters, and a TAP that exists must be one with virtio-net headers",
        _ => "",
    }
}

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
    fd: OwnedFd,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A TAP, and what the kernel counts for it.
    Tap(Option<InterfaceStats>),
    /// A packet socket, and frames that it has dropped: the kernel forgets what it has told.
    Packet(AtomicU64),
    /// One of a pair of sockets.
    Pair,
}

impl Port {
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

    /// Reads a packet, stamped by `clock` when it has been read; none when none is there.
    ///
    /// # Errors
    /// The port is gone.
    pub fn receive(
        &self,
        landing: &mut Landing,
        memory: &mut Memory,
        clock: impl FnOnce() -> Time,
    ) -> Result<Option<Received>, PortError> {
        let read = |slices: &mut [IoSliceMut<'_>]| match self.kind {
            Kind::Packet(_) => sys::receive_packet(self.fd.as_fd(), slices),
            Kind::Tap(_) | Kind::Pair => match rustix::io::readv(&self.fd, slices)? {
                0 => Err(Errno::PIPE), // no frame is empty: the far end of a pair is closed
                len => Ok((len, None)),
            },
        };
        match Packet::receive(landing, memory, Time::ZERO, read) {
            Ok(Received::Packet(mut packet)) => {
                packet.arrived = clock();
                Ok(Some(Received::Packet(packet)))
            }
            Ok(other) => Ok(Some(other)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(PortError::Refused { port: self.name.clone(), step: "reading from it", error }),
        }
    }

    /// Writes a packet.
    #[must_use]
    pub fn send(&self, packet: &Packet) -> Sent {
        match packet.gather(|slices| rustix::io::writev(&self.fd, slices)) {
            Ok(_) => Sent::Whole,
            Err(error) => Sent::Refused(error),
        }
    }

    /// Packets that the kernel dropped on the way to the port, because nobody had read those before. Counted since the
    /// port was opened; 0 where there is no such count.
    #[must_use]
    pub fn dropped_by_kernel(&self) -> u64 {
        match &self.kind {
            Kind::Tap(stats) => stats.as_ref().map_or(0, InterfaceStats::dropped),
            Kind::Packet(dropped) => {
                let more = u64::from(sys::packet_drops(self.fd.as_fd()));
                dropped.fetch_add(more, Ordering::Relaxed) + more
            }
            Kind::Pair => 0,
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
