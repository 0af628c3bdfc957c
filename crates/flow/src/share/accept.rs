//! Connections: taken, counted, refused when there are too many.

use super::connection::Connection;
use super::socket::{Channel, Socket};
use super::{ShareError, Shared};
use crate::http::answer::Head;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Type};
use sprat_pace::path::{Buffer, enlarge};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Connections that the kernel holds until they are taken.
const BACKLOG: i32 = 128;

/// Bytes that a connection's receive buffer may grow to where files are taken: 10 Gb/s over 200 ms.
const RECEIVE_BUFFER: usize = 256 << 20;

/// Seconds after which one who was refused may try again.
const RETRY_AFTER: u64 = 5;

/// How long nothing is accepted after the system had no means to.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Listens at all addresses; gives what they are.
pub(super) fn listen(addresses: &[SocketAddr], receives: bool) -> Result<Vec<(TcpListener, SocketAddr)>, ShareError> {
    if addresses.is_empty() {
        return Err(ShareError::Nowhere);
    }
    let listen = |address: &SocketAddr| {
        listen_at(*address, receives).map_err(|source| ShareError::Listen { address: *address, source })
    };
    addresses.iter().map(listen).collect()
}

fn listen_at(address: SocketAddr, receives: bool) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` is every address there is, of both kinds.
        socket.set_only_v6(address.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED))?;
    }
    if receives {
        // Before listening: connections have it from here, and agree on the scale of the window by it, for good.
        enlarge(&socket, Buffer::Receive, RECEIVE_BUFFER)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from(socket);
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Accepts until the other end of `woken` is closed.
pub(super) fn run(shared: &Arc<Shared>, listeners: &[(TcpListener, SocketAddr)], woken: &OwnedFd) {
    let mut pause = false;
    loop {
        let mut waited = vec![PollFd::new(woken, PollFlags::IN)];
        if !pause {
            waited.extend(listeners.iter().map(|(listener, _)| PollFd::new(listener, PollFlags::IN)));
        }
        let timeout = if pause { Some(&PAUSE) } else { None };
        // An interruption: as if nothing had happened.
        let _ = poll(&mut waited, timeout);
        if !waited[0].revents().is_empty() || shared.is_stopping() {
            return;
        }
        pause = false;
        for (listener, _) in listeners {
            match listener.accept() {
                Ok((socket, peer)) => begin(shared, socket, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // One that is gone again says nothing of the next; want of descriptors or memory does.
                Err(error) if is_want(&error) => pause = true,
                Err(_) => {}
            }
        }
    }
}

/// Whether the system has no more of what a connection takes.
fn is_want(error: &io::Error) -> bool {
    let wants = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| wants.iter().any(|want| want.raw_os_error() == code))
}

/// Gives a connection a thread, or an apology.
fn begin(shared: &Arc<Shared>, socket: TcpStream, peer: SocketAddr) {
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let socket = Arc::new(socket);
    let Some(place) = Place::take(shared, &socket, peer.ip()) else {
        return apologise(shared, &socket);
    };
    let (shared, for_thread) = (shared.clone(), socket.clone());
    let spawned = std::thread::Builder::new().name("share-connection".to_owned()).spawn(move || {
        let _place = place;
        let channel = Socket::new(for_thread, shared.limits.patience)
            .and_then(|socket| Channel::new(socket, shared.tls.as_ref()));
        if let Ok(channel) = channel {
            Connection { shared, channel, peer, came: Vec::new(), paced: None, lane: None }.serve();
        }
    });
    drop(spawned);
}

/// Says that there is no room, as far as the kernel takes it at once.
fn apologise(shared: &Shared, mut socket: &TcpStream) {
    if shared.tls.is_some() || socket.set_nonblocking(true).is_err() {
        return;
    }
    let text = "too many connections\n";
    let head = Head::new(503).field("Retry-After", RETRY_AFTER).field("Content-Type", "text/plain; charset=utf-8");
    let head = head.field("Content-Length", text.len()).finish(false);
    let _ = socket.write(&[&head, text.as_bytes()].concat());
    // Its request may have come already: unread bytes would be answered by a reset.
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let mut rest = [0; 4096];
    let _ = io::Read::read(&mut socket, &mut rest);
}

/// A connection's place among all, until it is dropped.
struct Place {
    shared: Arc<Shared>,
    id: u64,
    from: IpAddr,
}

impl Place {
    fn take(shared: &Arc<Shared>, socket: &Arc<TcpStream>, peer: IpAddr) -> Option<Self> {
        let from = network(peer);
        let mut connections = shared.connections();
        if connections.sockets.len() >= shared.limits.connections {
            return None;
        }
        let count = connections.from.entry(from).or_default();
        if *count >= shared.limits.from_one {
            return None;
        }
        *count += 1;
        let id = connections.next;
        connections.next += 1;
        connections.sockets.insert(id, socket.clone());
        drop(connections);
        Some(Self { shared: shared.clone(), id, from })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut connections = self.shared.connections();
        connections.sockets.remove(&self.id);
        if let Some(count) = connections.from.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                connections.from.remove(&self.from);
            }
        }
        drop(connections);
        self.shared.ended.notify_all();
    }
}

/// What counts as one address: of IPv6, the network that one customer has.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}
