//! What the server knows of a connection, and of all connections.

use sprat_chance::Chance;
use sprat_resp::Protocol;
use std::net::SocketAddr;
use std::time::Instant;

/// Number of databases that `SELECT` can choose from.
pub const DATABASES: usize = 16;

/// A client, as commands see it.
#[derive(Debug)]
pub(crate) struct Session {
    /// The number of the connection, unique in the server's life.
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) since: Instant,
    /// The name that the client gave to itself; empty for none.
    pub(crate) name: Vec<u8>,
    pub(crate) database: usize,
    pub(crate) protocol: Protocol,
    /// Whether the connection ends once all replies are sent.
    pub(crate) ends: bool,
}

impl Session {
    pub(crate) fn new(id: u64, peer: SocketAddr) -> Self {
        let (name, protocol) = (Vec::new(), Protocol::default());
        Self { id, peer, since: Instant::now(), name, database: 0, protocol, ends: false }
    }
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Server {
    /// The tables of the databases, as far as they are known.
    pub(crate) tables: [Option<u32>; DATABASES],
    pub(crate) port: u16,
    pub(crate) began: Instant,
    pub(crate) connections: usize,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) commands: u64,
    pub(crate) errors: u64,
    /// For `RANDOMKEY`.
    random: Chance,
}

impl Server {
    pub(crate) fn new(port: u16, seed: u64) -> Self {
        Self {
            tables: [None; DATABASES],
            port,
            began: Instant::now(),
            connections: 0,
            accepted: 0,
            refused: 0,
            commands: 0,
            errors: 0,
            random: Chance::new(seed),
        }
    }

    /// Returns a random number.
    pub(crate) fn random(&mut self) -> u64 {
        self.random.draw()
    }
}
