//! The receiving half of the UDP driver.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};

use super::UdpTx;
use crate::driver::Sink;

/// Size of the buffer of one receive, in bytes. A run that the kernel has coalesced is at most as
/// long as an IP packet.
const RECEIVE_BYTES: usize = 64 << 10;

/// The largest number of receives in one call, so that a node under load still gets to the other
/// work of its loop.
const RECEIVE_BATCH: usize = 16;

/// Bytes of room for control messages. Only one is expected (the segment size), which needs less.
const CONTROL_BYTES: usize = 64;

/// Room for control messages, which need the alignment of `cmsghdr`.
#[repr(align(16))]
struct Control([u8; CONTROL_BYTES]);

pub(crate) struct UdpRx {
    buffer: Box<[u8]>,
    control: Control,
    /// Whether the last call emptied the socket.
    drained: bool,
}

/// The result of one receive: `len` bytes in the buffer, in frames of `segment` bytes. The last
/// frame may be shorter.
struct Received {
    peer: SocketAddr,
    len: usize,
    segment: usize,
}

impl UdpRx {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; RECEIVE_BYTES].into(),
            control: Control([0; CONTROL_BYTES]),
            drained: true,
        }
    }

    /// Implements [`Driver::receive`](crate::Driver::receive) for any `holder` of the sending half.
    /// `of` returns the holder's sending half.
    pub(crate) fn receive<T>(
        &mut self,
        holder: &mut T,
        of: impl Fn(&mut T) -> &mut UdpTx,
        sink: Sink<'_, T>,
    ) -> io::Result<usize> {
        // After a call that emptied the socket, receive only one datagram. Its reply is then sent
        // before the next receive, and is not delayed by a system call that finds nothing.
        let batch = if self.drained { 1 } else { RECEIVE_BATCH };
        self.drained = false;
        let mut frames = 0;
        for _ in 0..batch {
            let tx = of(holder);
            if tx.port.has_reports {
                tx.port.take_reports();
            }
            let received = match self.take(tx) {
                Ok(Some(received)) => received,
                Ok(None) => continue,
                Err(Errno::EAGAIN) => {
                    self.drained = true;
                    break;
                }
                Err(Errno::EBADF | Errno::ENOTSOCK | Errno::EFAULT | Errno::EINVAL) => {
                    return Err(io::Error::last_os_error());
                }
                Err(Errno::EINTR) => continue,
                // The error is of an earlier send, or a temporary lack of memory.
                Err(_) => {
                    tx.port.counters.receive_errors += 1;
                    tx.port.take_reports();
                    continue;
                }
            };
            for frame in self.buffer[..received.len].chunks(received.segment) {
                of(holder).port.counters.received(frame.len());
                sink(holder, received.peer, frame);
                frames += 1;
            }
        }
        Ok(frames)
    }

    /// Receives once. Returns `None` if the datagram is empty or truncated, or its sender's address
    /// is unknown.
    fn take(&mut self, tx: &mut UdpTx) -> Result<Option<Received>, Errno> {
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        let message = recvmsg::<SockaddrStorage>(
            tx.port.socket.as_raw_fd(),
            &mut parts,
            Some(&mut self.control.0),
            MsgFlags::empty(),
        )?;
        let len = message.bytes;
        let peer = message.address.as_ref().and_then(address);
        let segment = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
            _ => None,
        });
        match peer {
            Some(peer) if len > 0 && !message.flags.contains(MsgFlags::MSG_TRUNC) => {
                let segment = segment.filter(|&segment| segment > 0).unwrap_or(len);
                Ok(Some(Received { peer, len, segment }))
            }
            _ => {
                tx.port.counters.malformed += 1;
                Ok(None)
            }
        }
    }
}

/// Returns a peer's address. An IPv4-mapped IPv6 address becomes an IPv4 address.
pub(super) fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddr::from(*v4));
    }
    let v6 = SocketAddr::from(*storage.as_sockaddr_in6()?);
    match v6.ip().to_canonical() {
        ip if ip.is_ipv4() => Some(SocketAddr::new(ip, v6.port())),
        _ => Some(v6),
    }
}
