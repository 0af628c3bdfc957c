//! The driver for kernel TCP.

mod backoff;
mod conn;
mod receive;
mod stream;
mod table;

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use self::backoff::Backoff;
use self::conn::{Conn, Written};
pub(crate) use self::receive::TcpRx;
use self::table::Table;
use crate::driver::Sink;
use crate::refusals::Refusals;
use crate::udp::SMALL_FRAME;
use crate::{Counters, Driver, MAX_FRAME, Sources, Transmit};

/// The largest number of connections of one driver, incoming and outgoing. At the limit, further
/// incoming connections are closed, and frames to unconnected peers are dropped. The driver counts
/// both.
pub const MAX_CONNECTIONS: usize = 4096;

/// Limit on the bytes that wait for one peer that is slow or not yet connected, not counting the
/// length prefix of the last frame. A frame that would exceed it is dropped. This limit and
/// [`BUFFERED_LIMIT`] do not apply to a frame above [`SMALL_FRAME`] on a connection that is not
/// blocked: the part of the frame that the kernel does not take always waits.
const OUTBOX_LIMIT: usize = 2 << 20;

/// Number of bytes gathered for one peer at which they are sent without waiting for the flush. This
/// many bytes stay in the cache.
const STAGE_BYTES: usize = 48 << 10;

/// Limit on the bytes that wait for all peers together, not counting the length prefix of the last
/// frame. A frame that would exceed it is dropped.
const BUFFERED_LIMIT: usize = 128 << 20;

/// Up to this many connections, none of them blocked, a sleep waits for each socket directly rather
/// than for epoll.
const DIRECT_SOURCES: usize = 3;

/// The `listen` backlog: connections that the kernel completes before they are accepted.
const BACKLOG: i32 = 1024;

/// The keepalive probes by which the kernel detects silent peers.
const KEEPALIVE: socket2::TcpKeepalive = socket2::TcpKeepalive::new()
    .with_time(std::time::Duration::from_secs(10))
    .with_interval(std::time::Duration::from_secs(5))
    .with_retries(3);

/// The epoll data of the listener. The epoll data of a connection holds its serial and slot.
const LISTENER: u64 = u64::MAX;

/// The driver for kernel TCP, IPv4 and IPv6. A length of four bytes precedes each frame.
///
/// A peer is identified by the remote address of a connection. The first frame to an address
/// without a connection opens one, and waits until it is established. After a failure, frames to
/// the peer are dropped until a delay is over, which grows from 2 to 500 ms. Frames of a broken
/// connection are lost; the layer above repeats calls.
pub struct Tcp {
    tx: TcpTx,
    rx: TcpRx,
    local: SocketAddr,
}

/// The sending half of [`Tcp`], which owns the connections.
pub struct TcpTx {
    epoll: rustix::fd::OwnedFd,
    listener: Option<Socket>,
    /// Whether epoll has stopped watching the listener, because no more connections can be accepted
    /// now.
    listener_paused: bool,
    table: Table,
    /// Slots, with serials, of connections that have bytes to flush.
    dirty: Vec<(usize, u32)>,
    /// Number of connections that wait for epoll to report them writable.
    blocked: usize,
    /// Number of bytes in all outboxes.
    buffered: usize,
    backoff: Backoff,
    refusals: Refusals,
    counters: Counters,
}

impl Tcp {
    /// Listens at `local`. Port 0 lets the system choose a port.
    ///
    /// # Errors
    /// The operating system's error if a system call fails: the address is in use, forbidden or not
    /// this machine's, or the process may open no more descriptors.
    pub fn listen(local: SocketAddr) -> io::Result<Self> {
        let listener = Socket::new(Domain::for_address(local), Type::STREAM, Some(Protocol::TCP))?;
        listener.set_nonblocking(true)?;
        if local.is_ipv6() {
            listener.set_only_v6(false)?;
        }
        // Without this, a restarted server could not bind until the connections of its predecessor
        // have left TIME_WAIT.
        listener.set_reuse_address(true)?;
        listener.bind(&local.into())?;
        listener.listen(BACKLOG)?;
        let local = listener.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Self::new(Some(listener), local)
    }

    /// Opens a driver that connects to peers but does not listen: its local address is unspecified.
    ///
    /// # Errors
    /// The operating system's error if it creates no epoll instance, because the process may open
    /// no more descriptors.
    pub fn connect_only() -> io::Result<Self> {
        Self::new(None, (Ipv4Addr::UNSPECIFIED, 0).into())
    }

    fn new(listener: Option<Socket>, local: SocketAddr) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut tx = TcpTx {
            epoll,
            listener,
            listener_paused: true,
            table: Table::new(),
            dirty: Vec::new(),
            blocked: 0,
            buffered: 0,
            backoff: Backoff::default(),
            refusals: Refusals::default(),
            counters: Counters::default(),
        };
        tx.watch_listener()?;
        Ok(Self { tx, rx: TcpRx::default(), local })
    }

    /// Returns the number of connections, including those being opened.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.tx.table.len()
    }

    /// Closes connections that have carried nothing since the last call; returns how many.
    pub fn close_idle(&mut self) -> usize {
        self.tx.close_idle()
    }

    /// Returns the driver's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.tx.counters
    }

    /// Returns both halves and the local address, for [`AnyDriver`](crate::AnyDriver).
    pub(crate) fn into_parts(self) -> (TcpTx, TcpRx, SocketAddr) {
        (self.tx, self.rx, self.local)
    }
}

impl Driver for Tcp {
    type Tx = TcpTx;

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn tx(&mut self) -> &mut TcpTx {
        &mut self.tx
    }

    fn receive(&mut self, sink: Sink<'_, TcpTx>) -> io::Result<usize> {
        self.rx.receive(&mut self.tx, |tx| tx, sink)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tx.poll_fd())
    }

    fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        self.tx.sources(sources);
    }
}

impl Transmit for TcpTx {
    fn mtu(&mut self, _peer: SocketAddr) -> usize {
        MAX_FRAME
    }

    fn reliable(&self) -> bool {
        true
    }

    fn send(&mut self, peer: SocketAddr, parts: &[IoSlice<'_>]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len == 0 || len > MAX_FRAME {
            self.counters.dropped_size += 1;
            return;
        }
        let Some(slot) = self.table.find(peer).or_else(|| self.connect(peer)) else { return };
        let Some(conn) = self.table.get_mut(slot) else { return };
        conn.used = true;
        let before = conn.outbox.len();
        if len > SMALL_FRAME && !conn.blocked {
            let written = conn.write_frame(parts, len);
            let after = conn.outbox.len();
            self.buffered = self.buffered + after - before;
            self.counters.sends += 1;
            if written == Written::Broken {
                self.counters.dropped_refused += 1;
            } else {
                self.counters.sent(1, len);
            }
            self.settle(slot, written);
            return;
        }
        if before + len > OUTBOX_LIMIT || self.buffered + len > BUFFERED_LIMIT {
            self.counters.dropped_full += 1;
            return;
        }
        conn.outbox.push(parts, len, 0);
        self.buffered += conn.outbox.len() - before;
        self.counters.sent(1, len);
        if conn.blocked {
            return;
        }
        let full = conn.outbox.len() >= STAGE_BYTES;
        if !conn.dirty {
            conn.dirty = true;
            self.dirty.push((slot, conn.serial));
        }
        if full {
            self.write(slot);
        }
    }

    fn flush(&mut self) {
        while let Some((slot, serial)) = self.dirty.pop() {
            let Some(conn) = self.table.get_mut(slot).filter(|conn| conn.serial == serial) else {
                continue;
            };
            conn.dirty = false;
            // The connection may be blocked by now, or a long frame may have flushed it.
            if !conn.blocked && !conn.outbox.is_empty() {
                self.write(slot);
            }
        }
    }
}

impl TcpTx {
    /// Returns the driver's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn poll_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(crate) fn take_refusal(&mut self) -> Option<SocketAddr> {
        self.refusals.take()
    }

    /// Adds the sockets themselves if there are few connections and none is blocked, because a
    /// wake-up through epoll takes longer and gives the scheduler less information. Otherwise adds
    /// epoll.
    pub(crate) fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        let listener = self.listener.as_ref().filter(|_| !self.listener_paused);
        if self.table.len() > DIRECT_SOURCES || self.blocked > 0 || sources.room() <= DIRECT_SOURCES
        {
            sources.push(self.epoll.as_fd());
        } else {
            sources.extend(listener.map(AsFd::as_fd));
            sources.extend(self.table.iter().map(|conn| conn.socket.as_fd()));
        }
    }

    /// Closes connections that have carried nothing since the last call; returns how many.
    pub fn close_idle(&mut self) -> usize {
        let mut closed = 0;
        // Backwards, because closing a connection moves the last connection into its position.
        for position in (0..self.table.len()).rev() {
            let slot = self.table.slot_at(position);
            let Some(conn) = self.table.get_mut(slot) else { continue };
            if !std::mem::take(&mut conn.used) {
                self.close(slot);
                closed += 1;
            }
        }
        closed
    }

    /// Writes the pending bytes of the connection in `slot`.
    fn write(&mut self, slot: usize) {
        let Some(conn) = self.table.get_mut(slot) else { return };
        let before = conn.outbox.len();
        let written = conn.write();
        self.buffered -= before - conn.outbox.len();
        self.counters.sends += u64::from(before > 0);
        self.settle(slot, written);
    }

    /// Updates the connection after a write.
    fn settle(&mut self, slot: usize, written: Written) {
        match written {
            Written::All => self.set_blocked(slot, false),
            Written::Blocked => self.set_blocked(slot, true),
            Written::Broken => self.close(slot),
        }
    }

    /// Sets whether the connection is blocked. While it is, epoll also watches for room to write.
    fn set_blocked(&mut self, slot: usize, blocked: bool) {
        let Some(conn) = self.table.get_mut(slot) else { return };
        if conn.blocked == blocked {
            return;
        }
        conn.blocked = blocked;
        if blocked {
            self.blocked += 1;
        } else {
            self.blocked -= 1;
        }
        let flags = if blocked {
            epoll::EventFlags::IN | epoll::EventFlags::OUT
        } else {
            epoll::EventFlags::IN
        };
        let data = epoll::EventData::new_u64(event_data(slot, conn.serial));
        if epoll::modify(&self.epoll, &conn.socket, data, flags).is_err() {
            self.close(slot);
        }
    }

    /// Starts to connect to `peer`, and returns the connection's slot. Frames sent in the meantime
    /// wait. If this is not possible, counts the reason and returns `None`.
    fn connect(&mut self, peer: SocketAddr) -> Option<usize> {
        if self.table.len() >= MAX_CONNECTIONS {
            self.counters.dropped_full += 1;
            return None;
        }
        if !self.backoff.may_try(peer) {
            self.counters.dropped_unreachable += 1;
            return None;
        }
        match self.try_connect(peer) {
            Ok(slot) => Some(slot),
            Err(error) => {
                if error.kind() == io::ErrorKind::ConnectionRefused {
                    self.refusals.note(peer);
                }
                self.counters.connect_failed += 1;
                self.counters.dropped_unreachable += 1;
                self.backoff.failed(peer);
                None
            }
        }
    }

    fn try_connect(&mut self, peer: SocketAddr) -> io::Result<usize> {
        let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        set_options(socket.as_fd())?;
        match connect(&socket, &peer) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let slot = self.admit(socket, peer, false)?;
        self.blocked += 1;
        Ok(slot)
    }

    /// Adds a connection to the table and to epoll.
    fn admit(
        &mut self,
        socket: rustix::fd::OwnedFd,
        peer: SocketAddr,
        incoming: bool,
    ) -> io::Result<usize> {
        let (slot, conn) = self.table.insert(|serial| Conn::new(socket, peer, serial, incoming));
        let mut flags = epoll::EventFlags::IN;
        if conn.blocked {
            flags |= epoll::EventFlags::OUT;
        }
        let data = epoll::EventData::new_u64(event_data(slot, conn.serial));
        if let Err(error) = epoll::add(&self.epoll, &conn.socket, data, flags) {
            self.table.remove(slot);
            return Err(error.into());
        }
        Ok(slot)
    }

    /// Handles the kernel's report that an outgoing connection is established or has failed.
    fn connected(&mut self, slot: usize) {
        let Some(conn) = self.table.get_mut(slot) else { return };
        let peer = conn.peer;
        let error = sockopt::socket_error(&conn.socket);
        if let Ok(Ok(())) = error {
            conn.connecting = false;
            self.counters.connected += 1;
            self.backoff.succeeded(peer);
        } else {
            if error == Ok(Err(Errno::CONNREFUSED)) {
                self.refusals.note(peer);
            }
            self.counters.connect_failed += 1;
            self.backoff.failed(peer);
            self.close(slot);
        }
    }

    /// Closes the connection in `slot`. Its pending bytes are lost.
    fn close(&mut self, slot: usize) {
        let Some(conn) = self.table.remove(slot) else { return };
        self.buffered -= conn.outbox.len();
        self.blocked -= usize::from(conn.blocked);
        self.counters.dropped_refused += conn.outbox.frames();
        self.counters.closed += u64::from(!conn.connecting);
        if conn.incoming {
            self.backoff.left(conn.peer);
        }
        drop(conn); // closes the socket, which removes it from epoll
        if self.listener_paused && self.watch_listener().is_err() {
            self.counters.receive_errors += 1;
        }
    }

    /// Makes epoll watch the listener, if there is one.
    fn watch_listener(&mut self) -> io::Result<()> {
        if let Some(listener) = &self.listener {
            epoll::add(
                &self.epoll,
                listener,
                epoll::EventData::new_u64(LISTENER),
                epoll::EventFlags::IN,
            )?;
        }
        self.listener_paused = false;
        Ok(())
    }

    /// Stops watching the listener until a connection closes, because until then it would only wake
    /// a node that cannot accept.
    fn pause_listener(&mut self) {
        if let Some(listener) = &self.listener {
            self.listener_paused = epoll::delete(&self.epoll, listener).is_ok();
        }
    }
}

fn event_data(slot: usize, serial: u32) -> u64 {
    let slot = u32::try_from(slot).expect("slots are limited");
    u64::from(serial) << 32 | u64::from(slot)
}

/// Sets the options of every connection: `TCP_NODELAY` and keepalive probes.
fn set_options(socket: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    socket2::SockRef::from(&socket).set_tcp_keepalive(&KEEPALIVE)
}
