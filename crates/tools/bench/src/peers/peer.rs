//! Running peers, as `--vs` names them.

use std::net::ToSocketAddrs;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail};

use super::{Endpoint, memcached, redis};
use sprat_measure::target::LoadTarget;

/// A running peer named by a URL: `redis://host:port`, `redis+unix:///path`,
/// `memcached://host:port`, `memcached+unix:///path`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Peer {
    /// A server that understands RESP2.
    Redis(Endpoint),
    /// A server that understands memcached's meta protocol.
    Memcached(Endpoint),
}

impl Peer {
    /// Opens `connections` connections to the peer.
    ///
    /// # Errors
    /// When a connection cannot be opened.
    pub fn connect(&self, connections: usize) -> Result<Box<dyn LoadTarget>> {
        Ok(match self {
            Self::Redis(endpoint) => Box::new(redis::connect(endpoint, connections)?),
            Self::Memcached(endpoint) => Box::new(memcached::connect(endpoint, connections)?),
        })
    }
}

impl FromStr for Peer {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        let Some((scheme, rest)) = url.split_once("://") else {
            bail!("`{url}` is not a URL such as redis://127.0.0.1:6379");
        };
        let (system, unix) = match scheme.split_once('+') {
            Some((system, "unix")) => (system, true),
            Some((_, other)) => {
                bail!("unknown transport `{other}` in `{url}`: only `unix` may follow `+`")
            }
            None => (scheme, false),
        };
        let endpoint = if unix {
            if !rest.starts_with('/') {
                bail!("`{url}`: a unix socket needs an absolute path");
            }
            Endpoint::Unix(rest.into())
        } else {
            let host = rest.trim_end_matches('/');
            let mut found =
                host.to_socket_addrs().with_context(|| format!("`{host}` in `{url}`"))?;
            Endpoint::Tcp(found.next().with_context(|| format!("`{host}` has no address"))?)
        };
        match system {
            "redis" | "valkey" => Ok(Self::Redis(endpoint)),
            "memcached" => Ok(Self::Memcached(endpoint)),
            _ => bail!("unknown system `{system}` in `{url}`: redis and memcached are known"),
        }
    }
}
