//! Addresses of peers.

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

/// Timeout for connecting to a peer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A byte-stream endpoint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Endpoint {
    /// Kernel TCP.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl Endpoint {
    /// Returns the transport's name in tables.
    #[must_use]
    pub fn transport(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Unix(_) => "unix",
        }
    }

    /// Opens one connection, with Nagle's algorithm off.
    ///
    /// # Errors When no server accepts the connection; over TCP, within five seconds.
    pub fn connect(&self) -> Result<OwnedFd> {
        match self {
            Self::Tcp(addr) => {
                let stream = TcpStream::connect_timeout(addr, CONNECT_TIMEOUT)
                    .with_context(|| format!("connecting to {addr}"))?;
                stream.set_nodelay(true)?;
                Ok(stream.into())
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path)
                    .with_context(|| format!("connecting to {}", path.display()))?;
                Ok(stream.into())
            }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => write!(f, "{addr}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}
