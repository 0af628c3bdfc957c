//! What a driver is.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::{Figure, Sources};

/// Largest frame of any driver, bytes: 65,535 of payload behind a packet header of 24.
/// A driver may take less; [`Transmit::mtu`] tells.
pub const MAX_FRAME: usize = 65_535 + 24;

/// The sending half of a driver, handed to whoever handles a received frame, so that a request can
/// be answered while its bytes still lie in the receive buffer.
pub trait Transmit {
    /// Largest frame that can be sent to `peer`, bytes: what the path carries, as far as known.
    fn mtu(&mut self, peer: SocketAddr) -> usize;

    /// Whether frames arrive once and in order as long as the peer stays reachable.
    fn reliable(&self) -> bool;

    /// Takes one frame, gathered from `parts`, to send to `peer`. The parts may be reused on
    /// return: small frames are copied and leave together at the next [`flush`](Self::flush),
    /// large ones are handed to the kernel (or device) from where they lie.
    ///
    /// Best effort: a frame for which there is no room is dropped and counted, as a network would.
    fn send(&mut self, peer: SocketAddr, parts: &[IoSlice<'_>]);

    /// Sends what [`send`](Self::send) has gathered.
    fn flush(&mut self);
}

/// One network port, owned by one node.
pub trait Driver {
    /// The sending half.
    type Tx: Transmit;

    /// Where peers reach this driver.
    fn local_addr(&self) -> SocketAddr;

    /// The sending half.
    fn tx(&mut self) -> &mut Self::Tx;

    /// Hands frames that have arrived, up to the driver's batch limit, to `sink`, with the sending
    /// half; returns how many. Never blocks. Errors of single peers are counted, not returned.
    ///
    /// # Errors
    /// Only those after which the driver cannot receive at all.
    fn receive(&mut self, sink: Sink<'_, Self::Tx>) -> io::Result<usize>;

    /// A descriptor that polls readable when a frame may have arrived; `None` if the driver has
    /// none (the simulator), and then only time passes.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>>;

    /// What to sleep on until a frame may have arrived, as things stand: good until the driver is
    /// used again, and sometimes cheaper than [`poll_fd`](Self::poll_fd), which is good for as
    /// long as the driver.
    fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        sources.extend(self.poll_fd());
    }

    /// Adds what it has carried and lost, and how its devices fare. For whoever watches: may take
    /// microseconds.
    fn figures(&self, figures: &mut Vec<Figure>) {
        let _ = figures;
    }
}

/// Takes one received frame: the sending half, the peer it came from, its bytes.
pub type Sink<'a, Tx> = &'a mut dyn FnMut(&mut Tx, SocketAddr, &[u8]);
