//! Accepts and counts connections. Above the limits a connection waits for a slot, and is rejected
//! if too many connections wait.

use super::connection::Connection;
use super::options::{Limits, ShareError};
use super::shared::{ActiveConnection, Connections, Shared, Waiting};
use super::socket::{Channel, Socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Type};
use sprat_http::server::answer::Head;
use sprat_pace::path::{Buffer, enlarge};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Length of the kernel's accept queue.
const BACKLOG: i32 = 128;

/// Upper limit of a connection's receive buffer in bytes, if the server accepts uploads. It is
/// enough for 10 Gb/s over 200 ms.
const RECEIVE_BUFFER: usize = 256 << 20;

/// `Retry-After` of a rejected connection, in seconds.
const RETRY_AFTER: u64 = 5;

/// How long the server accepts no connections after the system ran out of descriptors or memory.
/// Also the interval at which waiting connections are checked.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Listens on all `addresses`. Returns the sockets with their actual addresses.
pub(super) fn listen(
    addresses: &[SocketAddr],
    receives: bool,
) -> Result<Vec<(TcpListener, SocketAddr)>, ShareError> {
    if addresses.is_empty() {
        return Err(ShareError::Nowhere);
    }
    let listen = |address: &SocketAddr| {
        listen_at(*address, receives)
            .map_err(|source| ShareError::Listen { address: *address, source })
    };
    addresses.iter().map(listen).collect()
}

fn listen_at(address: SocketAddr, receives: bool) -> io::Result<(TcpListener, SocketAddr)> {
    let socket =
        socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` means all addresses of both families.
        socket.set_only_v6(address.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED))?;
    }
    if receives {
        // Set the buffer before listening, because connections inherit it, and it determines the
        // window scale, which cannot change later.
        enlarge(&socket, Buffer::Receive, RECEIVE_BUFFER)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from(socket);
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Accepts connections until the other end of `woken` is closed.
pub(super) fn run(shared: &Arc<Shared>, listeners: &[(TcpListener, SocketAddr)], woken: &OwnedFd) {
    let mut pause = false;
    loop {
        let mut waited = vec![PollFd::new(woken, PollFlags::IN)];
        if !pause {
            waited
                .extend(listeners.iter().map(|(listener, _)| PollFd::new(listener, PollFlags::IN)));
        }
        let has_waiting = !shared.connections().waiting.is_empty();
        let timeout = if pause || has_waiting { Some(&PAUSE) } else { None };
        // An interrupted poll is treated like a timeout.
        let _ = poll(&mut waited, timeout);
        if !waited[0].revents().is_empty() || shared.is_stopping() {
            return;
        }
        pause = false;
        expire(shared);
        for (listener, _) in listeners {
            match listener.accept() {
                Ok((socket, peer)) => begin(shared, socket, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A lack of descriptors or memory affects the next connection too. Other errors
                // concern only a connection that has already been closed.
                Err(error) if is_exhausted(&error) => pause = true,
                Err(_) => {}
            }
        }
    }
}

/// Returns whether the system lacks a resource that every connection needs.
fn is_exhausted(error: &io::Error) -> bool {
    let wants = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| wants.iter().any(|want| want.raw_os_error() == code))
}

/// Serves a connection, queues it, or rejects it.
fn begin(shared: &Arc<Shared>, socket: TcpStream, peer: SocketAddr) {
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let waiting = Waiting { socket: Arc::new(socket), peer, since: Instant::now() };
    let mut connections = shared.connections();
    if let Some(slot) = connections.slot(shared, &waiting) {
        drop(connections);
        return serve(slot, peer);
    }
    if connections.waiting.len() >= shared.limits.waiting {
        drop(connections);
        return reject(shared, &waiting.socket);
    }
    connections.make_room(waiting.network(), &shared.limits);
    connections.waiting.push_back(waiting);
}

/// Serves a connection on a thread of its own.
fn serve(slot: ConnectionSlot, peer: SocketAddr) {
    let spawned =
        std::thread::Builder::new().name("share-connection".to_owned()).spawn(move || {
            let (shared, active) = (slot.shared.clone(), slot.active.clone());
            let channel = Socket::new(active.socket.clone(), shared.limits.patience)
                .and_then(|socket| Channel::new(socket, shared.tls.as_ref()));
            if let Ok(channel) = channel {
                Connection {
                    shared,
                    active,
                    channel,
                    peer,
                    unread: Vec::new(),
                    paced: None,
                    stream: None,
                }
                .serve();
            }
        });
    drop(spawned);
}

/// Rejects connections that have waited too long.
fn expire(shared: &Shared) {
    let now = Instant::now();
    let mut connections = shared.connections();
    while let Some(first) = connections.waiting.front()
        && now.duration_since(first.since) > shared.limits.idle
    {
        reject(shared, &first.socket);
        connections.waiting.pop_front();
    }
}

/// Tries to send a 503 response, without waiting; with TLS, sends nothing. The caller then closes
/// the connection.
fn reject(shared: &Shared, mut socket: &TcpStream) {
    if shared.tls.is_some() || socket.set_nonblocking(true).is_err() {
        return;
    }
    let text = "too many connections\n";
    let head = Head::new(503)
        .field("Retry-After", RETRY_AFTER)
        .field("Content-Type", "text/plain; charset=utf-8");
    let head = head.field("Content-Length", text.len()).finish(false);
    let _ = socket.write(&[&head, text.as_bytes()].concat());
    // The request may have arrived. To close the socket with unread bytes would send a reset, which
    // can discard the response.
    let _ = socket.shutdown(Shutdown::Write);
    let mut rest = [0; 4096];
    let _ = io::Read::read(&mut socket, &mut rest);
}

impl Connections {
    /// Takes a slot for a connection, if one is free.
    fn slot(&mut self, shared: &Arc<Shared>, waiting: &Waiting) -> Option<ConnectionSlot> {
        let network = waiting.network();
        if self.served.len() >= shared.limits.connections {
            return None;
        }
        let count = self.per_network.entry(network).or_default();
        if *count >= shared.limits.per_address {
            return None;
        }
        *count += 1;
        let id = self.next;
        self.next += 1;
        let active = Arc::new(ActiveConnection {
            socket: waiting.socket.clone(),
            network,
            idle: Mutex::new(None),
        });
        self.served.insert(id, active.clone());
        Some(ConnectionSlot { shared: shared.clone(), id, active })
    }

    /// Ends the connection that has been idle longest, among those whose slot could go to a client
    /// from `network`. A request that has already arrived on that connection is still answered.
    fn make_room(&self, network: IpAddr, limits: &Limits) {
        let all = self.served.len() >= limits.connections;
        let fits = self.served.values().filter(|active| all || active.network == network);
        let idle = fits.filter_map(|active| active.idle().map(|since| (since, active)));
        if let Some((_, active)) = idle.min_by_key(|(since, _)| *since) {
            active.set_idle(false);
            let _ = active.socket.shutdown(Shutdown::Read); // fails if the connection is closed
        }
    }

    /// Removes the first waiting connection that can get a slot now, and gives it the slot.
    fn admit(&mut self, shared: &Arc<Shared>) -> Option<(ConnectionSlot, SocketAddr)> {
        let at = (0..self.waiting.len()).find(|at| {
            let count =
                self.per_network.get(&self.waiting[*at].network()).copied().unwrap_or_default();
            self.served.len() < shared.limits.connections && count < shared.limits.per_address
        })?;
        let waiting = self.waiting.remove(at)?;
        Some((self.slot(shared, &waiting)?, waiting.peer))
    }
}

/// The slot of a connection, which counts towards the limits. When it is dropped, a waiting
/// connection gets a slot.
struct ConnectionSlot {
    shared: Arc<Shared>,
    id: u64,
    active: Arc<ActiveConnection>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut connections = self.shared.connections();
        connections.served.remove(&self.id);
        if let Some(count) = connections.per_network.get_mut(&self.active.network) {
            *count -= 1;
            if *count == 0 {
                connections.per_network.remove(&self.active.network);
            }
        }
        let next = if self.shared.is_stopping() { None } else { connections.admit(&self.shared) };
        drop(connections);
        self.shared.ended.notify_all();
        if let Some((slot, peer)) = next {
            serve(slot, peer);
        }
    }
}
