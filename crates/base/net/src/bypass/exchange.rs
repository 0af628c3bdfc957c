//! Lets several nodes share one device. Each node has a queue of its own, and hands the frames for
//! other nodes over to those nodes.
//!
//! ```text
//! device -> queue i -> node i: own datagrams -> the node
//!                     datagrams for port P + j -> the inbox of node j, which is woken if it sleeps
//!                     others (ARP, neighbour discovery, ICMP) -> itself, a copy to each other node
//! ```
//!
//! All nodes have one address, and node i the UDP port P + i. A device that supports flow rules
//! steers datagrams to the right queue, so that nodes hand over few. Sharing also works on a device
//! without flow rules. Only node 0 answers requests to the address; all nodes learn from them.

use sprat_host::lock;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::dpdk::{Parcel, SharedDevice};
use crate::Sources;

/// The largest number of frames that wait in a node's inbox. Further frames are dropped and
/// counted.
const MAX_INBOX: usize = 512;

/// A node's inbox, in which other nodes leave frames for it.
struct Mailbox {
    inbox: SyncSender<Parcel>,
    bell: OwnedFd,
    /// Whether the mailbox's node sleeps or is about to sleep.
    sleeps: AtomicBool,
    lost: AtomicU64,
}

/// The state that the nodes share.
struct SharedState {
    mailboxes: Vec<Mailbox>,
    /// The device, while any node has it open.
    device: Mutex<Weak<SharedDevice>>,
}

/// A node's share of a device. Move it to the node's thread, which opens the node's driver with it.
pub struct DeviceShare {
    shared: Arc<SharedState>,
    number: usize,
    inbox: Receiver<Parcel>,
    /// Whether the node has waited for its bell since the bell was last cleared.
    slept: Cell<bool>,
    handed: Cell<u64>,
}

/// Creates shares for `nodes` nodes, in the order of their ports.
///
/// # Errors
/// The operating system's error if it creates no eventfd, because the process may open no more
/// descriptors.
pub fn shares(nodes: usize) -> io::Result<Vec<DeviceShare>> {
    let (mut mailboxes, mut inboxes) = (Vec::new(), Vec::new());
    for _ in 0..nodes {
        let (sender, inbox) = sync_channel(MAX_INBOX);
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        mailboxes.push(Mailbox {
            inbox: sender,
            bell,
            sleeps: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        });
        inboxes.push(inbox);
    }
    let shared = Arc::new(SharedState { mailboxes, device: Mutex::new(Weak::new()) });
    let share = |(number, inbox)| {
        let (slept, handed) = (Cell::new(false), Cell::new(0));
        DeviceShare { shared: Arc::clone(&shared), number, inbox, slept, handed }
    };
    Ok(inboxes.into_iter().enumerate().map(share).collect())
}

impl DeviceShare {
    /// Returns the node's number, from 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the number of nodes that share the device.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.shared.mailboxes.len()
    }

    /// Locks and returns the device, which may be closed. A node that finds it closed opens it
    /// while the other nodes wait for the lock.
    pub(super) fn device(&self) -> MutexGuard<'_, Weak<SharedDevice>> {
        lock(&self.shared.device)
    }

    /// Hands a frame over to another node.
    pub(super) fn hand_over(&self, to: usize, parcel: Parcel) {
        self.handed.set(self.handed.get() + 1);
        let mailbox = &self.shared.mailboxes[to];
        match mailbox.inbox.try_send(parcel) {
            Ok(()) => mailbox.ring(),
            // The node is overloaded, or has exited.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                _ = mailbox.lost.fetch_add(1, Ordering::Relaxed)
            }
        }
    }

    /// Returns the numbers of the other nodes.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> {
        let own = self.number;
        (0..self.nodes()).filter(move |&number| number != own)
    }

    /// Takes a frame that another node has handed over.
    #[inline]
    pub(super) fn take(&self) -> Option<Parcel> {
        self.inbox.try_recv().ok()
    }

    /// The first call announces that the node is about to sleep, but does not allow a sleep yet.
    /// The second adds the descriptor to sleep on, or limits the sleep to 1 ms if `sources` has no
    /// room for it. Poll the inbox between the two, because frames handed over before the first
    /// call ring no bell.
    pub(super) fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        let mailbox = &self.shared.mailboxes[self.number];
        if !mailbox.sleeps.swap(true, Ordering::SeqCst) {
            return sources.nap(Duration::ZERO);
        }
        if sources.room() > 0 {
            self.slept.set(true);
            sources.push(mailbox.bell.as_fd());
        } else {
            sources.nap(Duration::from_millis(1));
        }
    }

    /// Notes that the node is awake again.
    #[inline]
    pub(super) fn wake(&self) {
        if self.slept.take() {
            let mailbox = &self.shared.mailboxes[self.number];
            mailbox.sleeps.store(false, Ordering::SeqCst);
            let mut count = [0; 8];
            // Reads nothing if the bell did not ring.
            let _ = rustix::io::read(&mailbox.bell, &mut count);
        }
    }

    /// Returns the number of frames handed over to other nodes, and the number of frames that other
    /// nodes could not hand over to this node.
    pub(super) fn counted(&self) -> (u64, u64) {
        (self.handed.get(), self.shared.mailboxes[self.number].lost.load(Ordering::Relaxed))
    }
}

impl Mailbox {
    fn ring(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // Fails only when the counter is full. Then the node is being woken anyway.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }
}

/// Returns the number of the node for which a frame is meant; `None` if the frame is for all nodes.
/// The `nodes` nodes have consecutive ports from `first` on.
#[must_use]
pub(super) fn destination_node(frame: &[u8], first: u16, nodes: usize) -> Option<usize> {
    let port = crate::ether::port_of(frame)?;
    // Node 0 gets datagrams for other ports, and counts them.
    Some(port.checked_sub(first).map(usize::from).filter(|&number| number < nodes).unwrap_or(0))
}
