//! The state of a kernel network interface below one of DPDK's devices.
//!
//! `af_packet` and `af_xdp` report their link as up from start to stop, whatever happens to the
//! interface below. The kernel reports every change over netlink (`man 7 rtnetlink`); a poll that
//! finds no change costs one system call.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::io::Errno;
use rustix::net::netdevice;

use super::arguments::argument;
use super::netlink::{DELETED_LINK, LINKS, Message, NEW_LINK, Netlink};

/// The largest number of messages read in one poll; further messages wait for the next poll.
const MAX_MESSAGES: usize = 16;

/// Bytes read of a message. Longer messages are cut, as the fields that we need come first.
const MESSAGE: usize = 1024;

/// Interface flags IFF_UP and IFF_RUNNING.
const UP_AND_RUNNING: u32 = 0x1 | 0x40;

/// The state of an interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum InterfaceState {
    /// The interface is up and has a carrier.
    Up,
    /// The interface is down, or has no carrier.
    Down,
    /// No interface has its name.
    Gone,
    /// Another interface has the name of the one on which the device was opened.
    Replaced,
}

/// A watched interface, identified by its name.
pub(super) struct Interface {
    name: String,
    netlink: Netlink,
    /// The index of the interface on which the device was opened.
    index: u32,
    state: InterfaceState,
}

impl Interface {
    /// Watches the interface that a device's arguments name, in the network namespace of this
    /// thread. `None` for devices without an interface, or if its state cannot be watched.
    pub(super) fn of_device(arguments: &str) -> Option<Self> {
        let kernel_reports =
            arguments.starts_with("net_af_packet") || arguments.starts_with("net_af_xdp");
        let name = argument(arguments, "iface=").filter(|_| kernel_reports)?;
        Self::named(name).ok()
    }

    fn named(name: &str) -> io::Result<Self> {
        let netlink = Netlink::open(LINKS)?;
        let index = netdevice::name_to_index(&netlink.socket, name)?;
        let interface = Self { name: name.to_owned(), netlink, index, state: InterfaceState::Up };
        interface.netlink.request_link(index)?;
        Ok(interface)
    }

    /// Returns whether the interface carried frames at the last [poll](Self::poll).
    #[inline]
    pub(super) fn is_up(&self) -> bool {
        self.state == InterfaceState::Up
    }

    /// Returns a descriptor that polls readable when the interface's state may have changed.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.netlink.socket.as_fd()
    }

    /// Reads the kernel's messages and returns the current state.
    pub(super) fn poll(&mut self) -> InterfaceState {
        let mut buffer = [0; MESSAGE];
        let Self { netlink, name, index, state } = self;
        for _ in 0..MAX_MESSAGES {
            let received = netlink.receive(&mut buffer, |message| {
                if let Message::Link { kind, index: of, flags, .. } = message {
                    let is_there = || netdevice::name_to_index(&netlink.socket, name).is_ok();
                    *state = state.after(kind, of == *index, flags, is_there);
                }
            });
            match received {
                Ok(()) => {}
                // The kernel dropped messages: request the current state.
                Err(Errno::NOBUFS) => drop(netlink.request_link(*index)),
                Err(_) => break,
            }
        }
        self.state
    }

    /// Watches the interface that has the name now, on which the device was reopened.
    pub(super) fn reopened(&mut self) {
        let Ok(index) = netdevice::name_to_index(&self.netlink.socket, &self.name) else { return };
        (self.index, self.state) = (index, InterfaceState::Down);
        // Without a reply the state stays down until the kernel reports a change.
        let _ = self.netlink.request_link(index);
    }
}

impl InterfaceState {
    /// Returns the state after a message about an interface; `ours` says whether it is the watched
    /// interface.
    fn after(self, kind: u16, ours: bool, flags: u32, is_there: impl Fn() -> bool) -> Self {
        match (kind, self) {
            (DELETED_LINK, _) if ours => Self::Gone,
            (NEW_LINK, Self::Up | Self::Down)
                if ours && flags & UP_AND_RUNNING == UP_AND_RUNNING =>
            {
                Self::Up
            }
            (NEW_LINK, Self::Up | Self::Down) if ours => Self::Down,
            (NEW_LINK | DELETED_LINK, Self::Gone | Self::Replaced) if is_there() => Self::Replaced,
            (NEW_LINK | DELETED_LINK, Self::Gone | Self::Replaced) => Self::Gone,
            (_, same) => same,
        }
    }
}
