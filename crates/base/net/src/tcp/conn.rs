//! A TCP connection to or from a peer.

use std::io::IoSlice;
use std::net::SocketAddr;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

use super::stream::{Inbox, Outbox, prefix};

/// The largest number of slices in one vectored write: pending bytes, the length prefix, and the
/// frame's parts. A frame in more parts is copied.
const MAX_SLICES: usize = 32;

/// A connection to or from a peer.
pub(super) struct Conn {
    pub(super) socket: OwnedFd,
    pub(super) peer: SocketAddr,
    /// Distinguishes this connection from earlier connections in its slot.
    pub(super) serial: u32,
    /// Whether the peer opened the connection.
    pub(super) incoming: bool,
    /// Whether writes must wait until epoll reports the socket writable, because the socket is
    /// still connecting or its send buffer is full.
    pub(super) blocked: bool,
    /// Whether the connection is still being established.
    pub(super) connecting: bool,
    /// Whether the connection is in the list of connections to flush.
    pub(super) dirty: bool,
    /// Whether the connection was opened or has carried a frame since the last search for idle
    /// connections.
    pub(super) used: bool,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
}

/// The result of a write.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Written {
    /// The kernel took everything.
    All,
    /// The kernel took only a part, or nothing. The outbox has the remaining bytes.
    Blocked,
    /// The connection is broken.
    Broken,
}

impl Conn {
    pub(super) fn new(socket: OwnedFd, peer: SocketAddr, serial: u32, incoming: bool) -> Self {
        let connecting = !incoming;
        Self {
            socket,
            peer,
            serial,
            incoming,
            blocked: connecting,
            connecting,
            dirty: false,
            used: true,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
        }
    }

    /// Writes the pending bytes.
    pub(super) fn write(&mut self) -> Written {
        while !self.outbox.is_empty() {
            match send(&self.socket, self.outbox.pending(), SendFlags::NOSIGNAL) {
                Ok(count) => self.outbox.advance(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => return Written::Blocked,
                Err(_) => return Written::Broken,
            }
        }
        Written::All
    }

    /// Writes the pending bytes, and then a frame of `len` bytes from where it lies. This is one
    /// call if the kernel takes all of it. Bytes of the frame that the kernel does not take go to
    /// the outbox.
    pub(super) fn write_frame(&mut self, parts: &[IoSlice<'_>], len: usize) -> Written {
        if parts.len() + 2 > MAX_SLICES {
            self.outbox.push(parts, len, 0);
            return self.write();
        }
        let prefix = prefix(len);
        let pending = self.outbox.len();
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        slices[0] = IoSlice::new(self.outbox.pending());
        slices[1] = IoSlice::new(&prefix);
        slices[2..][..parts.len()].copy_from_slice(parts);
        let slices = &slices[usize::from(pending == 0)..parts.len() + 2];
        let written = loop {
            match sendmsg(
                &self.socket,
                slices,
                &mut SendAncillaryBuffer::default(),
                SendFlags::NOSIGNAL,
            ) {
                Ok(count) => break count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => break 0,
                Err(_) => return Written::Broken,
            }
        };
        self.outbox.advance(written.min(pending));
        if written == pending + prefix.len() + len {
            return Written::All;
        }
        self.outbox.push(parts, len, written.saturating_sub(pending));
        Written::Blocked
    }
}

/// Reads into `inbox` once, and returns whether there may be more to read. `None` if the stream has
/// ended or broken.
pub(super) fn read(socket: &OwnedFd, inbox: &mut Inbox) -> Option<bool> {
    loop {
        match recv(socket, inbox.room(), RecvFlags::empty()) {
            Ok((0, _)) => return None,
            Ok((count, _)) => return Some(inbox.filled(count)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return Some(false),
            Err(_) => return None,
        }
    }
}
