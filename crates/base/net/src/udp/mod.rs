//! The driver for kernel UDP.

mod gso;
mod receive;
mod refused;
mod route;

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Ipv4RecvErr, Ipv6RecvErr, UdpGroSegment};
use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg as _;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg, sendto, sockopt};
use socket2::{Domain, MsgHdr, Protocol, SockAddr, Socket, Type};

use self::gso::{MAX_DISTINCT, Run, Stage, segment_control};
pub(crate) use self::receive::UdpRx;
use self::route::{MAX_DATAGRAM, Routes};
use crate::driver::Sink;
use crate::refusals::Refusals;
use crate::{Counters, Driver, Transmit};

/// Frames up to this many bytes are copied and sent at the flush, or earlier if many have gathered;
/// longer ones are sent at once from where they lie. Jumbo Ethernet's frames are shorter than this,
/// so the driver sends them in runs (many frames to one peer in one call). Copying this much costs
/// about 0.3 us; a system call for each frame would cost 1 to 2 us (256 KB in frames of 4 KB: 150
/// us one by one).
pub const SMALL_FRAME: usize = 9216;

/// The size of the kernel's socket buffer in each direction, in bytes. If the process may not force
/// it, `net.core.rmem_max` and `wmem_max` limit the size.
const SOCKET_BUFFER: usize = 8 << 20;

/// The driver for kernel UDP, IPv4 and IPv6.
///
/// Runs of frames to one peer are sent in one call and received in one call (`UDP_SEGMENT`,
/// `UDP_GRO`). A driver bound to the unspecified IPv6 address also reaches IPv4 peers. Frames of up
/// to [`SMALL_FRAME`] bytes are sent at the flush, or earlier if many have gathered; longer frames
/// are sent at once. The driver sends the frames to one peer in the order of the calls of `send`.
pub struct Udp {
    tx: UdpTx,
    rx: UdpRx,
    local: SocketAddr,
}

/// The sending half of [`Udp`].
pub struct UdpTx {
    stage: Stage,
    port: Port,
}

/// The socket, its counters, and what the driver has found out about the socket and its peers.
struct Port {
    socket: Socket,
    v6: bool,
    /// Whether the kernel and the device can segment runs.
    segments: bool,
    routes: Routes,
    /// Peers that refuse datagrams; `None` unless the kernel queues ICMP errors.
    refusals: Option<Refusals>,
    /// Whether a send has failed, so that the socket's error queue may hold reports.
    has_reports: bool,
    counters: Counters,
}

impl Udp {
    /// Opens a socket at `local`. Port 0 lets the system choose a port.
    ///
    /// # Errors
    /// The operating system's error if a system call fails: the address is in use, forbidden or not
    /// this machine's, or the process may open no more descriptors.
    pub fn bind(local: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        if local.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        enlarge(&socket)?;
        // Kernels before 5.0 do not support UDP_GRO; frames are then sent and received one by one.
        let segments = setsockopt(&socket, UdpGroSegment, &true).is_ok();
        socket.bind(&local.into())?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let v6 = local.is_ipv6();
        let (routes, counters) = (Routes::default(), Counters::default());
        let port =
            Port { socket, v6, segments, routes, refusals: None, has_reports: false, counters };
        Ok(Self { tx: UdpTx { stage: Stage::new(), port }, rx: UdpRx::new(), local })
    }

    /// Makes the kernel queue ICMP errors for datagrams to ports where no process listens;
    /// [`AnyDriver::take_refusal`](crate::AnyDriver::take_refusal) returns those peers. Only for
    /// sockets that reach a few servers: a server would be woken for every client that has exited.
    ///
    /// # Errors
    /// The operating system's error if it does not support `IP_RECVERR` or `IPV6_RECVERR`.
    pub fn enable_refusals(&mut self) -> io::Result<()> {
        let port = &mut self.tx.port;
        if port.v6 {
            setsockopt(&port.socket, Ipv6RecvErr, &true)?;
        }
        setsockopt(&port.socket, Ipv4RecvErr, &true)?;
        port.refusals = Some(Refusals::default());
        Ok(())
    }

    /// Makes the kernel poll the device for up to `micros` microseconds instead of sleeping
    /// (`SO_BUSY_POLL`). This helps with network cards, but not with loopback, which has no device
    /// to poll.
    ///
    /// # Errors
    /// `EPERM` without the right `CAP_NET_ADMIN`.
    pub fn set_busy_poll(&mut self, micros: u32) -> io::Result<()> {
        self.tx.port.socket.set_busy_poll(micros)
    }

    /// Returns the driver's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.tx.counters()
    }

    /// Returns both halves and the local address, for [`AnyDriver`](crate::AnyDriver).
    pub(crate) fn into_parts(self) -> (UdpTx, UdpRx, SocketAddr) {
        (self.tx, self.rx, self.local)
    }
}

/// Enlarges the socket's buffers. Exceeds the system's limits if the process may.
fn enlarge(socket: &Socket) -> io::Result<()> {
    if sockopt::set_socket_recv_buffer_size_force(socket, SOCKET_BUFFER).is_err() {
        socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    }
    if sockopt::set_socket_send_buffer_size_force(socket, SOCKET_BUFFER).is_err() {
        socket.set_send_buffer_size(SOCKET_BUFFER)?;
    }
    Ok(())
}

impl Driver for Udp {
    type Tx = UdpTx;

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn tx(&mut self) -> &mut UdpTx {
        &mut self.tx
    }

    fn receive(&mut self, sink: Sink<'_, UdpTx>) -> io::Result<usize> {
        self.rx.receive(&mut self.tx, |tx| tx, sink)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tx.poll_fd())
    }
}

impl Transmit for UdpTx {
    fn mtu(&mut self, peer: SocketAddr) -> usize {
        self.port.routes.mtu(peer)
    }

    fn reliable(&self) -> bool {
        false
    }

    fn send(&mut self, peer: SocketAddr, parts: &[IoSlice<'_>]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len == 0 || len > MAX_DATAGRAM {
            self.port.counters.dropped_size += 1;
            return;
        }
        let Some(peer) = self.port.reachable(peer) else {
            self.port.counters.dropped_unreachable += 1;
            return;
        };
        if len > SMALL_FRAME {
            while let Some(run) = self.stage.next_run(Some(peer)) {
                self.port.send_run(&run);
            }
            self.port.send_parts(peer, parts, len);
            return;
        }
        if !self.stage.fits(len) {
            self.flush();
        }
        self.stage.push(peer, parts, len);
    }

    fn flush(&mut self) {
        if let Some((peer, frame)) = self.stage.single() {
            self.port.send_one(peer, frame);
        } else if let Some(frames) = self.stage.distinct_peers() {
            self.port.send_distinct(frames);
        } else {
            while let Some(run) = self.stage.next_run(None) {
                self.port.send_run(&run);
            }
        }
        self.stage.clear();
    }
}

impl UdpTx {
    /// Returns the driver's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.port.counters
    }

    pub(crate) fn poll_fd(&self) -> BorrowedFd<'_> {
        self.port.socket.as_fd()
    }

    pub(crate) fn take_refusal(&mut self) -> Option<SocketAddr> {
        self.port.refusals.as_mut()?.take()
    }
}

impl Port {
    /// Returns the address by which our socket reaches `peer`, or `None` if it cannot.
    fn reachable(&self, peer: SocketAddr) -> Option<SocketAddr> {
        match peer {
            SocketAddr::V4(v4) if self.v6 => Some((v4.ip().to_ipv6_mapped(), v4.port()).into()),
            SocketAddr::V6(_) if !self.v6 => None,
            peer => Some(peer),
        }
    }

    /// Sends a run in one call if the kernel and the device can segment it, otherwise frame by
    /// frame.
    fn send_run(&mut self, run: &Run<'_>) {
        if let ([_, _, ..], true) = (run.frames(), self.segments) {
            let address = SockAddr::from(run.peer);
            let control = segment_control(run.segment);
            let message =
                MsgHdr::new().with_addr(&address).with_buffers(run.frames()).with_control(&control);
            let result = retry(|| self.socket.sendmsg(&message, 0));
            if !result.as_ref().is_err_and(|error| self.cannot_segment(error)) {
                self.counters.segmented += u64::from(result.is_ok());
                self.settle(result, run.peer, run.frames().len(), run.bytes);
                return;
            }
        }
        for frame in run.frames() {
            self.send_one(run.peer, frame);
        }
    }

    /// Sends a long frame from where it lies.
    fn send_parts(&mut self, peer: SocketAddr, parts: &[IoSlice<'_>], len: usize) {
        let address = SockAddr::from(peer);
        let message = MsgHdr::new().with_addr(&address).with_buffers(parts);
        let result = retry(|| self.socket.sendmsg(&message, 0));
        self.settle(result, peer, 1, len);
    }

    /// Sends one frame with `sendto`, which saves us and the kernel the work of a message header.
    fn send_one(&mut self, peer: SocketAddr, frame: &[u8]) {
        let result = retry(|| Ok(sendto(&self.socket, frame, SendFlags::empty(), &peer)?));
        self.settle(result, peer, 1, frame.len());
    }

    /// Sends frames to different peers in one call.
    fn send_distinct<'a>(&mut self, frames: impl Iterator<Item = (SocketAddr, &'a [u8])>) {
        let mut peers = [(SocketAddr::from(([0; 4], 0)), 0); MAX_DISTINCT];
        let mut addresses: [_; MAX_DISTINCT] = std::array::from_fn(|_| peers[0].0.as_any());
        let mut slices = [[IoSlice::new(&[])]; MAX_DISTINCT];
        let mut count = 0;
        for (peer, frame) in frames {
            peers[count] = (peer, frame.len());
            addresses[count] = peer.as_any();
            slices[count] = [IoSlice::new(frame)];
            count += 1;
        }
        let mut controls: [_; MAX_DISTINCT] =
            std::array::from_fn(|_| SendAncillaryBuffer::default());
        let mut controls = controls.iter_mut();
        let mut messages: [_; MAX_DISTINCT] = std::array::from_fn(|at| {
            MMsgHdr::new_with_addr(&addresses[at], &slices[at], controls.next().expect("as many"))
        });
        let (mut sent, mut reports) = (0, 1);
        while sent < count {
            match sendmmsg(&self.socket, &mut messages[sent..count], SendFlags::empty()) {
                Ok(more) => {
                    let bytes = peers[sent..sent + more].iter().map(|(_, bytes)| bytes).sum();
                    self.settle(Ok(bytes), peers[sent].0, more, bytes);
                    sent += more;
                }
                Err(Errno::INTR) => {}
                // The error reports an earlier datagram: see `retry`.
                Err(Errno::CONNREFUSED) if reports > 0 => reports -= 1,
                // The first frame that was not sent is the frame that failed.
                Err(error) => {
                    let (peer, bytes) = peers[sent];
                    self.settle(Err(error.into()), peer, 1, bytes);
                    sent += 1;
                }
            }
        }
    }

    /// Returns whether a send failed only because it was a run. The error is `EINVAL` if a frame is
    /// longer than one packet on the path. It is `EIO` if the device cannot checksum segments; then
    /// no more runs are sent in one call.
    fn cannot_segment(&mut self, error: &io::Error) -> bool {
        match Errno::from_io_error(error) {
            Some(Errno::INVAL) => true,
            Some(Errno::IO) => {
                self.segments = false;
                true
            }
            _ => false,
        }
    }

    /// Counts `frames` frames sent in one call as sent or dropped, according to `result`.
    fn settle(&mut self, result: io::Result<usize>, peer: SocketAddr, frames: usize, bytes: usize) {
        self.counters.sends += 1;
        let Err(error) = result else {
            return self.counters.sent(frames, bytes);
        };
        self.has_reports = self.refusals.is_some();
        let counters = &mut self.counters;
        let dropped = match Errno::from_io_error(&error) {
            Some(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => &mut counters.dropped_full,
            Some(Errno::MSGSIZE) => {
                self.routes.forget(peer);
                &mut counters.dropped_size
            }
            Some(Errno::CONNREFUSED) => &mut counters.dropped_refused,
            Some(
                Errno::NETUNREACH
                | Errno::HOSTUNREACH
                | Errno::NETDOWN
                | Errno::ACCESS
                | Errno::PERM,
            ) => &mut counters.dropped_unreachable,
            _ => &mut counters.dropped_other,
        };
        *dropped += frames as u64;
    }
}

/// Calls again after a signal, and once more when the kernel reports an error of an earlier
/// datagram, perhaps to another peer: in that case the kernel has not sent this datagram.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let mut reports = 1;
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if reports > 0 && error.kind() == io::ErrorKind::ConnectionRefused => {
                reports -= 1
            }
            result => return result,
        }
    }
}
