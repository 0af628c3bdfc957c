//! The traits that every driver implements.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::{Figure, Sources};

/// The largest frame of any driver, in bytes: 65,535 bytes of payload after a packet header of 24
/// bytes. A driver's own limit may be lower; see [`Transmit::mtu`].
pub const MAX_FRAME: usize = 65_535 + 24;

/// The sending half of a driver. The driver passes this half to the code that handles a received
/// frame, which can then reply while the request still lies in the receive buffer.
pub trait Transmit {
    /// Returns the largest frame that can be sent to `peer`, in bytes. This is what the path
    /// carries, as far as the driver knows.
    fn mtu(&mut self, peer: SocketAddr) -> usize;

    /// Returns whether every frame that the driver does not drop arrives once and in order, as long
    /// as the peer stays reachable.
    fn reliable(&self) -> bool;

    /// Sends one frame, gathered from `parts`, to `peer`. The caller may reuse the parts on return.
    /// The driver may keep a copy of the frame until the next [`flush`](Self::flush), so that small
    /// frames leave together. UDP and TCP usually pass large frames to the kernel at once, from
    /// where they lie.
    ///
    /// Delivery is best effort: if there is no room, the driver drops the frame and counts it.
    fn send(&mut self, peer: SocketAddr, parts: &[IoSlice<'_>]);

    /// Sends the frames that [`send`](Self::send) has gathered.
    fn flush(&mut self);
}

/// One network port, owned by one node and used on its thread.
///
/// In each iteration a node's loop calls [`receive`](Self::receive), whose `sink` handles each
/// frame and may send replies. At the end of the iteration the loop calls `flush` on
/// [`tx`](Self::tx). When there is no work, it sleeps on [`sources`](Self::sources).
pub trait Driver {
    /// The sending half.
    type Tx: Transmit;

    /// Returns the address at which peers reach this driver.
    fn local_addr(&self) -> SocketAddr;

    /// Returns the sending half.
    fn tx(&mut self) -> &mut Self::Tx;

    /// Passes the frames that have arrived, up to the driver's batch limit, to `sink` together with
    /// the sending half. Returns how many frames it has passed. Never blocks. An error that
    /// concerns only one peer is counted, not returned.
    ///
    /// # Errors
    /// Only errors after which the driver can no longer receive.
    fn receive(&mut self, sink: Sink<'_, Self::Tx>) -> io::Result<usize>;

    /// Returns a descriptor that polls readable when a frame may have arrived. `None` if the driver
    /// has no such descriptor, for example in the network in memory.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Adds to `sources` the descriptors to sleep on until a frame may have arrived. They are valid
    /// only until the driver is used again. They can be cheaper than [`poll_fd`](Self::poll_fd),
    /// whose descriptor is valid as long as the driver.
    fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        sources.extend(self.poll_fd());
    }

    /// Adds the driver's counters and the state of its devices to `figures`, for monitoring. The
    /// default adds nothing; [`AnyDriver`](crate::AnyDriver) adds the figures of the driver that it
    /// contains. May take microseconds.
    fn figures(&self, figures: &mut Vec<Figure>) {
        let _ = figures;
    }
}

/// Handles one received frame, given the driver's sending half, the address of the sender, and the
/// frame's bytes.
pub type Sink<'a, Tx> = &'a mut dyn FnMut(&mut Tx, SocketAddr, &[u8]);
