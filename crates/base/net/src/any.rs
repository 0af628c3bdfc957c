//! The driver that a locator names, chosen at run time.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use crate::bypass::{BypassDriver, BypassRx, BypassTx};
use crate::driver::Sink;
use crate::mem;
use crate::tcp::{Tcp, TcpRx, TcpTx};
use crate::udp::{Udp, UdpRx, UdpTx};
use crate::{Counters, Driver, Figure, Locator, Mac, Mem, MemTx, Sources, Transmit, Transport};

/// One of the drivers, chosen when the program starts.
///
/// [`open`](Self::open) opens the driver that a locator names; `from` wraps one that is open
/// already. Give peers the locator that [`advertised`](Self::advertised) returns, which has the
/// actual address and port. From then on use `AnyDriver` as a [`Driver`]. Only some drivers support
/// [`ping`](Self::ping), [`take_refusal`](Self::take_refusal) and [`close_idle`](Self::close_idle);
/// on other drivers these methods do nothing.
///
/// [`Mem`] is not `Send`, so `AnyDriver` is not `Send` either: open it on the thread that will own
/// it.
pub struct AnyDriver {
    tx: AnyTx,
    rx: AnyRx,
    local: SocketAddr,
}

/// The sending half of [`AnyDriver`].
pub enum AnyTx {
    /// The half of [`Udp`].
    Udp(UdpTx),
    /// The half of [`Tcp`].
    Tcp(TcpTx),
    /// The half of [`Mem`].
    Mem(MemTx),
    /// The half of [`BypassDriver`](crate::bypass::BypassDriver).
    Bypass(BypassTx),
}

/// The receiving half. It always belongs to the same driver as the sending half next to it.
enum AnyRx {
    Udp(UdpRx),
    Tcp(TcpRx),
    Mem,
    Bypass(BypassRx),
}

impl From<Udp> for AnyDriver {
    fn from(driver: Udp) -> Self {
        let (tx, rx, local) = driver.into_parts();
        Self { tx: AnyTx::Udp(tx), rx: AnyRx::Udp(rx), local }
    }
}

impl From<Tcp> for AnyDriver {
    fn from(driver: Tcp) -> Self {
        let (tx, rx, local) = driver.into_parts();
        Self { tx: AnyTx::Tcp(tx), rx: AnyRx::Tcp(rx), local }
    }
}

impl From<Mem> for AnyDriver {
    fn from(driver: Mem) -> Self {
        let tx = driver.into_tx();
        let local = tx.address();
        Self { tx: AnyTx::Mem(tx), rx: AnyRx::Mem, local }
    }
}

impl From<BypassDriver> for AnyDriver {
    fn from(driver: BypassDriver) -> Self {
        let (tx, rx) = driver.into_parts();
        let local = tx.local_addr();
        Self { tx: AnyTx::Bypass(tx), rx: AnyRx::Bypass(rx), local }
    }
}

impl AnyDriver {
    /// Returns the locator by which peers reach this driver: `locator`, at which the driver was
    /// opened, with the actual address, port and hardware address.
    #[must_use]
    pub fn advertised(&self, locator: &Locator) -> Locator {
        let mut advertised = locator.at(self.local);
        if let (Some(mac), Transport::FastDpdk(bypass)) = (self.mac(), &mut advertised.transport) {
            bypass.mac = Some(mac);
        }
        advertised
    }

    /// Returns the hardware address, if the driver has one.
    fn mac(&self) -> Option<Mac> {
        match &self.tx {
            AnyTx::Bypass(tx) => Some(tx.mac()),
            _ => None,
        }
    }

    /// Returns the driver's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        match &self.tx {
            AnyTx::Udp(tx) => tx.counters(),
            AnyTx::Tcp(tx) => tx.counters(),
            AnyTx::Mem(tx) => tx.counters(),
            AnyTx::Bypass(tx) => tx.counters(),
        }
    }

    /// Sends an ICMP echo request, which the peer's driver or kernel answers. Returns whether the
    /// request was sent. Drivers that do not bypass the kernel always return false. See
    /// [`BypassDriver::ping`].
    pub fn ping(&mut self, peer: IpAddr, number: u32, len: usize) -> bool {
        match &mut self.tx {
            AnyTx::Bypass(tx) => tx.ping(peer, number, len),
            _ => false,
        }
    }

    /// Returns the number of a ping that was answered and that no earlier call has returned, if
    /// there is one.
    pub fn take_pong(&mut self) -> Option<u32> {
        match &mut self.tx {
            AnyTx::Bypass(tx) => tx.take_pong(),
            _ => None,
        }
    }

    /// Takes a peer whose host has reported that no process listens at the peer's port. `None` if
    /// there is no further such peer. Only kernel TCP and kernel UDP opened to
    /// [connect](crate::DriverRole::Connect) report this.
    pub fn take_refusal(&mut self) -> Option<SocketAddr> {
        match &mut self.tx {
            AnyTx::Tcp(tx) => tx.take_refusal(),
            AnyTx::Udp(tx) => tx.take_refusal(),
            AnyTx::Mem(_) | AnyTx::Bypass(_) => None,
        }
    }

    /// Closes connections that have carried nothing since the last call and returns how many, as
    /// [`Tcp::close_idle`] does. Drivers without connections return 0.
    pub fn close_idle(&mut self) -> usize {
        match &mut self.tx {
            AnyTx::Tcp(tx) => tx.close_idle(),
            _ => 0,
        }
    }
}

impl Driver for AnyDriver {
    type Tx = AnyTx;

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn tx(&mut self) -> &mut AnyTx {
        &mut self.tx
    }

    fn receive(&mut self, sink: Sink<'_, AnyTx>) -> io::Result<usize> {
        match &mut self.rx {
            AnyRx::Udp(rx) => rx.receive(&mut self.tx, AnyTx::udp, sink),
            AnyRx::Tcp(rx) => rx.receive(&mut self.tx, AnyTx::tcp, sink),
            AnyRx::Mem => mem::receive(&mut self.tx, AnyTx::mem, sink),
            AnyRx::Bypass(rx) => Ok(rx.receive(&mut self.tx, AnyTx::bypass, sink)),
        }
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.tx {
            AnyTx::Udp(tx) => Some(tx.poll_fd()),
            AnyTx::Tcp(tx) => Some(tx.poll_fd()),
            AnyTx::Mem(_) => None,
            AnyTx::Bypass(_) => None,
        }
    }

    fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        match &self.tx {
            AnyTx::Tcp(tx) => tx.sources(sources),
            AnyTx::Bypass(tx) => tx.sources(sources),
            _ => sources.extend(self.poll_fd()),
        }
    }

    fn figures(&self, figures: &mut Vec<Figure>) {
        self.counters().figures(figures);
        if let AnyTx::Bypass(tx) = &self.tx {
            tx.figures(figures);
        }
    }
}

impl AnyTx {
    fn udp(&mut self) -> &mut UdpTx {
        match self {
            Self::Udp(tx) => tx,
            _ => unreachable!("halves are of one driver"),
        }
    }

    fn tcp(&mut self) -> &mut TcpTx {
        match self {
            Self::Tcp(tx) => tx,
            _ => unreachable!("halves are of one driver"),
        }
    }

    fn bypass(&mut self) -> &mut BypassTx {
        match self {
            Self::Bypass(tx) => tx,
            _ => unreachable!("halves are of one driver"),
        }
    }

    fn mem(&mut self) -> &mut MemTx {
        match self {
            Self::Mem(tx) => tx,
            _ => unreachable!("halves are of one driver"),
        }
    }
}

impl Transmit for AnyTx {
    fn mtu(&mut self, peer: SocketAddr) -> usize {
        match self {
            Self::Udp(tx) => tx.mtu(peer),
            Self::Tcp(tx) => tx.mtu(peer),
            Self::Mem(tx) => tx.mtu(peer),
            Self::Bypass(tx) => tx.mtu(peer),
        }
    }

    fn reliable(&self) -> bool {
        match self {
            Self::Udp(tx) => tx.reliable(),
            Self::Tcp(tx) => tx.reliable(),
            Self::Mem(tx) => tx.reliable(),
            Self::Bypass(tx) => tx.reliable(),
        }
    }

    fn send(&mut self, peer: SocketAddr, parts: &[IoSlice<'_>]) {
        match self {
            Self::Udp(tx) => tx.send(peer, parts),
            Self::Tcp(tx) => tx.send(peer, parts),
            Self::Mem(tx) => tx.send(peer, parts),
            Self::Bypass(tx) => tx.send(peer, parts),
        }
    }

    fn flush(&mut self) {
        match self {
            Self::Udp(tx) => tx.flush(),
            Self::Tcp(tx) => tx.flush(),
            Self::Mem(tx) => tx.flush(),
            Self::Bypass(tx) => tx.flush(),
        }
    }
}
