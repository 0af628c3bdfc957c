//! Connects to a host, at the first of its addresses that answers (RFC 8305, "Happy Eyeballs").

use super::fault::Fault;
use super::options::Options;
use super::tls::Trust;
use super::wire::{TICK, Wire};
use crate::address::Address;
use crate::cancel::Cancel;
use crate::error::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use sprat_pace::path::{Buffer, enlarge};
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// Time after which the next address is tried in parallel.
const STAGGER: Duration = Duration::from_millis(250);

/// Limit on the time to connect to a host, for all its addresses together. Includes neither the
/// resolution of its name nor the TLS handshake.
const CONNECT: Duration = Duration::from_secs(30);

/// Limit on the addresses of a host that are tried. Further addresses are ignored.
const MAX_ADDRESSES: usize = 16;

/// Makes connections. Any number of threads may share one connector. It loads the trusted
/// certificates when the first TLS connection needs them, and keeps them.
#[derive(Debug)]
pub struct Connector {
    trust: Trust,
    receive_buffer: usize,
    patience: Duration,
}

impl Connector {
    /// Makes a connector with `options`.
    ///
    /// # Errors
    /// [`Error::File`] if the file of certificate authorities cannot be read.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let Options { receive_buffer, patience, .. } = *options;
        Ok(Self { trust: Trust::new(options)?, receive_buffer, patience })
    }

    /// Connects to the server of `address`, with TLS if the scheme says so. `cancel` interrupts
    /// this call, except while the name is resolved, and later waits on the connection, except in
    /// [`Wire::send`].
    ///
    /// # Errors
    /// - [`Fault::NoConnection`] if the host's name cannot be resolved, no address accepts a
    ///   connection within 30 seconds, or the connection fails in the TLS handshake.
    /// - [`Fault::Untrusted`] if the certificate is not trusted, or TLS fails otherwise.
    /// - [`Fault::TimedOut`] if the TLS handshake takes too long.
    /// - [`Fault::Cancelled`] if the caller cancels.
    pub fn connect(&self, address: &Address, cancel: &Cancel) -> Result<Wire, Fault> {
        self.wire(address, cancel).map_err(|fault| match fault {
            Fault::Io(error) => Fault::NoConnection(error),
            other => other,
        })
    }

    fn wire(&self, address: &Address, cancel: &Cancel) -> Result<Wire, Fault> {
        let found = (address.host(), address.port()).to_socket_addrs().map_err(Fault::Io)?;
        let stream = race(&interleaved(found.collect()), self.receive_buffer, cancel)?;
        if !address.is_tls() {
            return Wire::plain(stream, self.patience, cancel.clone()).map_err(Fault::Io);
        }
        let session = self.trust.session(address.host())?;
        Wire::tls(stream, session, self.patience, cancel.clone())
    }
}

/// Orders addresses so that IPv6 and IPv4 alternate, IPv6 first. Within each family, the resolver's
/// order stays.
fn interleaved(all: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let (v6, v4): (Vec<_>, Vec<_>) = all.into_iter().partition(SocketAddr::is_ipv6);
    let (mut v6, mut v4) = (v6.into_iter(), v4.into_iter());
    let mut ordered = Vec::new();
    loop {
        let before = ordered.len();
        ordered.extend(v6.next());
        ordered.extend(v4.next());
        if ordered.len() == before || ordered.len() >= MAX_ADDRESSES {
            ordered.truncate(MAX_ADDRESSES);
            return ordered;
        }
    }
}

/// Begins to connect to each of `addresses`, [`STAGGER`] after the previous one or as soon as that
/// fails. Returns the first connection that succeeds.
fn race(
    addresses: &[SocketAddr],
    receive_buffer: usize,
    cancel: &Cancel,
) -> Result<TcpStream, Fault> {
    let begun = Instant::now();
    let mut waiting = addresses.iter();
    let mut trying: Vec<(Socket, SocketAddr)> = Vec::new();
    let mut next_at = begun;
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        if cancel.is_cancelled() {
            return Err(Fault::Cancelled);
        }
        if Instant::now() >= next_at
            && let Some(address) = waiting.next()
        {
            next_at = Instant::now() + STAGGER;
            match begin(*address, receive_buffer) {
                Ok(socket) => trying.push((socket, *address)),
                Err(failed) => (error, next_at) = (at(*address, failed), Instant::now()),
            }
        }
        if trying.is_empty() && waiting.len() == 0 {
            return Err(Fault::Io(error));
        }
        if begun.elapsed() > CONNECT {
            let why = format!("no answer within {} s", CONNECT.as_secs());
            return Err(Fault::Io(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
        let until = if waiting.len() > 0 {
            next_at.saturating_duration_since(Instant::now())
        } else {
            TICK
        };
        for index in ready(&trying, until.min(TICK)).into_iter().rev() {
            let (socket, address) = trying.swap_remove(index);
            match socket.take_error().map_err(Fault::Io)? {
                None => {
                    socket.set_nonblocking(false).map_err(Fault::Io)?;
                    return Ok(socket.into());
                }
                Some(failed) => (error, next_at) = (at(address, failed), Instant::now()),
            }
        }
    }
}

/// Begins a non-blocking connect.
fn begin(address: SocketAddr, receive_buffer: usize) -> io::Result<Socket> {
    let socket =
        Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if receive_buffer > 0 {
        // The buffer must be set before the handshake, which negotiates the window scale. The scale
        // cannot be changed later.
        enlarge(&socket, Buffer::Receive, receive_buffer)?;
    }
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => Ok(socket),
        Err(error) => Err(error),
        Ok(()) => Ok(socket),
    }
}

/// Waits for up to `wait`. Returns the indices of the sockets that have connected or failed.
fn ready(trying: &[(Socket, SocketAddr)], wait: Duration) -> Vec<usize> {
    let mut polled: Vec<_> =
        trying.iter().map(|(socket, _)| PollFd::new(socket, PollFlags::OUT)).collect();
    let timeout = Timespec::try_from(wait).ok();
    match poll(&mut polled, timeout.as_ref()) {
        Ok(1..) => (0..polled.len()).filter(|index| !polled[*index].revents().is_empty()).collect(),
        _ => Vec::new(), // none is ready, or a signal came: the caller tries again
    }
}

fn at(address: SocketAddr, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{address}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn families_take_turns_and_the_newer_begins() {
        let all = ["127.0.0.1:1", "127.0.0.2:1", "[::1]:1", "127.0.0.3:1"]
            .map(|text| text.parse().unwrap());
        let ordered: Vec<_> = interleaved(all.to_vec()).iter().map(ToString::to_string).collect();
        assert_eq!(ordered, ["[::1]:1", "127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1"]);
        assert_eq!(interleaved(vec![all[0]; 100]).len(), MAX_ADDRESSES);
    }

    #[test]
    fn the_first_address_that_answers_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        // `silent` has a full accept queue, so it does not answer. Nothing listens on the two other
        // addresses.
        let deaf = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        deaf.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        deaf.listen(0).unwrap();
        let silent = deaf.local_addr().unwrap().as_socket().unwrap();
        let _queue: Vec<_> = (0..3).map(|_| begin(silent, 0).unwrap()).collect();
        let not: [SocketAddr; 3] =
            ["[::1]:1".parse().unwrap(), "127.0.0.1:1".parse().unwrap(), silent];
        for place in 0..=not.len() {
            let mut addresses = not.to_vec();
            addresses.insert(place, there);
            let stream = race(&addresses, 0, &Cancel::default()).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), there);
        }
        assert!(matches!(race(&not[..2], 0, &Cancel::default()), Err(Fault::Io(_))));
    }
}
