//! Several nodes that share one device: each has a queue of its own, and hands over what came to it
//! and is another's.
//!
//! ```text
//! device -> queue i -> node i: its own datagrams -> the node
//!                              datagrams for port P + j -> the inbox of node j, which is woken if it sleeps
//!                              all else (ARP, neighbour discovery, ICMP) -> itself, and a copy to each of the others
//! ```
//!
//! All have one address, and node i the UDP port P + i. A device that takes rules puts datagrams
//! where they belong, and little is handed over; one that does not is used just the same. Node 0
//! alone answers what anybody asks the address; everybody learns from what is said.

use sprat_host::lock;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::dpdk::{Joint, Parcel};
use crate::Sources;

/// Frames that wait to be taken over by a node; more are dropped, and counted.
const MAX_INBOX: usize = 512;

/// Where a node takes over what others got for it.
struct Door {
    inbox: SyncSender<Parcel>,
    bell: OwnedFd,
    /// Its node sleeps, or is about to.
    sleeps: AtomicBool,
    lost: AtomicU64,
}

/// What the nodes have in common.
struct Team {
    doors: Vec<Door>,
    /// The device, while any of them has it.
    device: Mutex<Weak<Joint>>,
}

/// A node's part: to be moved to its thread.
pub struct Share {
    team: Arc<Team>,
    number: usize,
    inbox: Receiver<Parcel>,
    /// The bell has been waited for since it was last hushed.
    slept: Cell<bool>,
    handed: Cell<u64>,
}

/// Parts for `nodes` nodes, in their order.
///
/// # Errors
/// Those of `eventfd`.
pub fn shares(nodes: usize) -> io::Result<Vec<Share>> {
    let (mut doors, mut inboxes) = (Vec::new(), Vec::new());
    for _ in 0..nodes {
        let (sender, inbox) = sync_channel(MAX_INBOX);
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        doors.push(Door {
            inbox: sender,
            bell,
            sleeps: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        });
        inboxes.push(inbox);
    }
    let team = Arc::new(Team { doors, device: Mutex::new(Weak::new()) });
    let share = |(number, inbox)| {
        let (slept, handed) = (Cell::new(false), Cell::new(0));
        Share { team: Arc::clone(&team), number, inbox, slept, handed }
    };
    Ok(inboxes.into_iter().enumerate().map(share).collect())
}

impl Share {
    /// Which node it is for, from 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// How many nodes share.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.team.doors.len()
    }

    /// The device, if it is open; whoever finds that it is not opens it while the others wait.
    pub(super) fn device(&self) -> MutexGuard<'_, Weak<Joint>> {
        lock(&self.team.device)
    }

    /// Hands a frame over to another node.
    pub(super) fn hand_over(&self, to: usize, parcel: Parcel) {
        self.handed.set(self.handed.get() + 1);
        let door = &self.team.doors[to];
        match door.inbox.try_send(parcel) {
            Ok(()) => door.ring(),
            // It is late, or has ended.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                _ = door.lost.fetch_add(1, Ordering::Relaxed)
            }
        }
    }

    /// The other nodes.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> {
        let own = self.number;
        (0..self.nodes()).filter(move |&number| number != own)
    }

    /// A frame that another node has handed over.
    #[inline]
    pub(super) fn take(&self) -> Option<Parcel> {
        self.inbox.try_recv().ok()
    }

    /// What to sleep on. Between the first call and the second the inbox must be looked into: what
    /// came before the first rings no bell.
    pub(super) fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        let door = &self.team.doors[self.number];
        if !door.sleeps.swap(true, Ordering::SeqCst) {
            return sources.nap(Duration::ZERO);
        }
        if sources.room() > 0 {
            self.slept.set(true);
            sources.push(door.bell.as_fd());
        } else {
            sources.nap(Duration::from_millis(1));
        }
    }

    /// Awake again.
    #[inline]
    pub(super) fn wake(&self) {
        if self.slept.take() {
            let door = &self.team.doors[self.number];
            door.sleeps.store(false, Ordering::SeqCst);
            let mut count = [0; 8];
            let _ = rustix::io::read(&door.bell, &mut count); // it rang or it did not
        }
    }

    /// Frames handed over to others, and frames that others could not hand over to this node.
    pub(super) fn counted(&self) -> (u64, u64) {
        (self.handed.get(), self.team.doors[self.number].lost.load(Ordering::Relaxed))
    }
}

impl Door {
    fn ring(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes()); // full: it is being woken anyway
        }
    }
}

/// Which of `nodes` nodes a frame is for, whose ports begin with `first`; `None` for all of them.
#[must_use]
pub(super) fn whose(frame: &[u8], first: u16, nodes: usize) -> Option<usize> {
    let port = crate::ether::port_of(frame)?;
    // What is for nobody here is nobody's news either: let the first count it.
    Some(port.checked_sub(first).map(usize::from).filter(|&number| number < nodes).unwrap_or(0))
}
