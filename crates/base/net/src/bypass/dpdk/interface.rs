//! What the kernel says of a network interface that one of DPDK's devices stands on.
//!
//! `af_packet` and `af_xdp` call their link up from start to stop, whatever becomes of the
//! interface below. The kernel tells of every change over netlink (`man 7 rtnetlink`); to hear that
//! there is none costs one call.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::io::Errno;
use rustix::net::netdevice;

use super::arguments::argument;
use super::netlink::{DELETED_LINK, Kernel, LINKS, Message, NEW_LINK};

/// Messages read in one look; the others wait for the next.
const MAX_MESSAGES: usize = 16;

/// Bytes taken of a message. Longer ones are cut: what we want stands at the beginning.
const MESSAGE: usize = 1024;

/// Flags of an interface: switched on, and with something at the other end.
const UP_AND_RUNNING: u32 = 0x1 | 0x40;

/// How an interface fares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    /// It carries frames.
    Up,
    /// It is switched off, or has nobody at the other end.
    Down,
    /// There is none of that name.
    Gone,
    /// There is one of that name, but not the one that the device was opened on.
    Another,
}

/// An interface, by its name.
pub(super) struct Interface {
    name: String,
    kernel: Kernel,
    /// The number of the one that the device was opened on.
    index: u32,
    standing: Standing,
}

impl Interface {
    /// The interface that a device's arguments name, in the network namespace of this thread;
    /// `None` for devices that stand on none, or on one that the kernel says nothing of.
    pub(super) fn below(arguments: &str) -> Option<Self> {
        let kernel_keeps =
            arguments.starts_with("net_af_packet") || arguments.starts_with("net_af_xdp");
        let name = argument(arguments, "iface=").filter(|_| kernel_keeps)?;
        Self::named(name).ok()
    }

    fn named(name: &str) -> io::Result<Self> {
        let kernel = Kernel::open(LINKS)?;
        let index = netdevice::name_to_index(&kernel.socket, name)?;
        let interface = Self { name: name.to_owned(), kernel, index, standing: Standing::Up };
        interface.kernel.ask_for_link(index)?;
        Ok(interface)
    }

    /// Whether frames can be given to the device, as of the last [look](Self::look).
    #[inline]
    pub(super) fn is_up(&self) -> bool {
        self.standing == Standing::Up
    }

    /// Readable when there is news of it.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.kernel.socket.as_fd()
    }

    /// How it fares now.
    pub(super) fn look(&mut self) -> Standing {
        let mut buffer = [0; MESSAGE];
        let Self { kernel, name, index, standing } = self;
        for _ in 0..MAX_MESSAGES {
            let heard = kernel.receive(&mut buffer, |message| {
                if let Message::Link { kind, index: of, flags, .. } = message {
                    let is_there = || netdevice::name_to_index(&kernel.socket, name).is_ok();
                    *standing = standing.after(kind, of == *index, flags, is_there);
                }
            });
            match heard {
                Ok(()) => {}
                // More has happened than the kernel kept for us: ask how things are.
                Err(Errno::NOBUFS) => drop(kernel.ask_for_link(*index)),
                Err(_) => break,
            }
        }
        self.standing
    }

    /// The device has been opened anew, on the interface that has the name now.
    pub(super) fn opened_again(&mut self) {
        let Ok(index) = netdevice::name_to_index(&self.kernel.socket, &self.name) else { return };
        (self.index, self.standing) = (index, Standing::Down);
        let _ = self.kernel.ask_for_link(index); // without an answer it stays down until the kernel tells of a change
    }
}

impl Standing {
    /// What it is after a message about our interface, or another.
    fn after(self, kind: u16, ours: bool, flags: u32, is_there: impl Fn() -> bool) -> Self {
        match (kind, self) {
            (DELETED_LINK, _) if ours => Self::Gone,
            (NEW_LINK, Self::Up | Self::Down)
                if ours && flags & UP_AND_RUNNING == UP_AND_RUNNING =>
            {
                Self::Up
            }
            (NEW_LINK, Self::Up | Self::Down) if ours => Self::Down,
            (NEW_LINK | DELETED_LINK, Self::Gone | Self::Another) if is_there() => Self::Another,
            (NEW_LINK | DELETED_LINK, Self::Gone | Self::Another) => Self::Gone,
            (_, same) => same,
        }
    }
}
