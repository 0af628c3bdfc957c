//! State that all threads of a server share.

use super::access::Tokens;
use super::names::Names;
use super::options::{Limits, Observer};
use super::receive::Uploads;
use super::root::Root;
use super::transfers::Transfers;
use super::values::Values;
use sprat_host::lock;
use sprat_pace::{Pace, Pacer};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// State that all threads of a server share.
pub(super) struct Shared {
    pub(super) root: Root,
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
    pub(super) tokens: RwLock<Tokens>,
    pub(super) names: Names,
    /// Limit on the length of an uploaded file, in bytes; `None` forbids uploads.
    pub(super) writable: Option<u64>,
    pub(super) uploads: Uploads,
    pub(super) xattrs: bool,
    pub(super) pace: Pace,
    pub(super) pacer: Pacer,
    pub(super) limits: Limits,
    pub(super) observer: Option<Observer>,
    pub(super) transfers: Arc<Transfers>,
    pub(super) values: Values,
    pub(super) connections: Mutex<Connections>,
    /// Notified when a connection ends.
    pub(super) ended: Condvar,
    pub(super) stopping: AtomicBool,
}

/// The connections that are served, and the connections that wait.
#[derive(Default)]
pub(super) struct Connections {
    pub(super) next: u64,
    pub(super) served: HashMap<u64, Arc<ActiveConnection>>,
    pub(super) per_network: HashMap<IpAddr, usize>,
    pub(super) waiting: VecDeque<Waiting>,
}

/// A connection that is served.
pub(super) struct ActiveConnection {
    pub(super) socket: Arc<TcpStream>,
    pub(super) network: IpAddr,
    /// The time since which the connection has been without a request; `None` while it has one.
    pub(super) idle: Mutex<Option<Instant>>,
}

/// A connection that waits for a slot.
pub(super) struct Waiting {
    pub(super) socket: Arc<TcpStream>,
    pub(super) peer: SocketAddr,
    pub(super) since: Instant,
}

impl Waiting {
    pub(super) fn network(&self) -> IpAddr {
        network(self.peer.ip())
    }
}

impl ActiveConnection {
    /// Records whether the connection waits for a request.
    pub(super) fn set_idle(&self, idle: bool) {
        *self.idle() = idle.then(Instant::now);
    }

    pub(super) fn idle(&self) -> MutexGuard<'_, Option<Instant>> {
        lock(&self.idle)
    }
}

impl Shared {
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(super) fn tokens(&self) -> RwLockReadGuard<'_, Tokens> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().expect("no holder panics")
    }

    pub(super) fn shut(&self, how: std::net::Shutdown) {
        for connection in self.connections().served.values() {
            let _ = connection.socket.shutdown(how);
        }
    }

    /// Waits until all connections have ended. Returns false if some have not ended after
    /// `longest`.
    pub(super) fn wait_for_none(&self, longest: Duration) -> bool {
        let until = Instant::now() + longest;
        let mut connections = self.connections();
        while !connections.served.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            connections = self.ended.wait_timeout(connections, left).expect("no holder panics").0;
        }
        true
    }

    /// Returns whether another connection waits for the slot of this connection. If so, this
    /// connection should not stay idle.
    pub(super) fn is_wanted(&self, connection: &ActiveConnection) -> bool {
        let connections = self.connections();
        let all = connections.served.len() >= self.limits.connections;
        connections.waiting.iter().any(|waiting| all || waiting.network() == connection.network)
    }
}

/// Returns the address that stands for one client: an IPv4 address, or an IPv6 network of 64 bits,
/// because one customer usually has a network of this size.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}
