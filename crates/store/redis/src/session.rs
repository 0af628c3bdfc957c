//! What the server knows of a connection, and of all connections.

use crate::channels::{Channels, Subscriptions};
use crate::collections::{Changes, Cursors};
use crate::sweep::Sweep;
use crate::waiting::Waiting;
use sprat_chance::Chance;
use sprat_lua::Engine;
use sprat_net::Nanos;
use sprat_resp::{CommandList, Protocol};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::Instant;

/// Number of databases that `SELECT` can choose from.
pub const DATABASES: usize = 16;

/// What a server needs done with the table of a database. The answer is a call of
/// [`Front::set_table`](crate::Front::set_table).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TableRequest {
    /// Find the table of this database, or make it.
    Open(usize),
    /// If this database has a table, replace it by an empty one that is like it.
    Clear(usize),
}

/// Takes the requests of a server.
pub type TableRequests = Sender<TableRequest>;

/// The commands after `MULTI`.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) commands: CommandList,
    /// Whether a command was refused, so that `EXEC` fails.
    pub(crate) is_broken: bool,
}

/// A key that a connection watches, as it was when `WATCH` was executed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Watched {
    /// The table of the key's database.
    pub(crate) table: u32,
    /// The version of the key's object; `None` if there was none.
    pub(crate) version: Option<u64>,
    /// How many changes of collections there had been.
    pub(crate) changes: u64,
}

/// Bytes of memory for a watched key, besides those of the key.
const WATCHED_BYTES: usize = 64;

/// A client, as commands see it.
#[derive(Debug)]
pub(crate) struct Session {
    /// The number of the connection, unique in the server's life.
    pub(crate) id: u64,
    /// Where the server keeps the connection.
    pub(crate) slot: usize,
    pub(crate) peer: SocketAddr,
    pub(crate) since: Instant,
    /// The name that the client gave to itself; empty for none.
    pub(crate) name: Vec<u8>,
    pub(crate) database: usize,
    pub(crate) protocol: Protocol,
    pub(crate) transaction: Option<Transaction>,
    /// By database and key.
    pub(crate) watched: BTreeMap<(usize, Vec<u8>), Watched>,
    /// Bytes of memory for the keys that are watched.
    pub(crate) watched_bytes: usize,
    pub(crate) subscriptions: Subscriptions,
    /// Whether the client has sent the password, or need not.
    pub(crate) is_authenticated: bool,
    /// When its next command may be executed: later if a script took too long.
    pub(crate) not_before: Nanos,
    /// Whether the connection ends once all replies are sent.
    pub(crate) ends: bool,
}

impl Session {
    pub(crate) fn new((id, slot): (u64, usize), peer: SocketAddr, is_authenticated: bool) -> Self {
        Self {
            id,
            slot,
            peer,
            since: Instant::now(),
            name: Vec::new(),
            database: 0,
            protocol: Protocol::default(),
            transaction: None,
            watched: BTreeMap::new(),
            watched_bytes: 0,
            subscriptions: Subscriptions::default(),
            is_authenticated,
            not_before: Nanos(0),
            ends: false,
        }
    }

    /// Watches a key, unless it is watched already.
    pub(crate) fn watch(&mut self, key: &[u8], now: Watched) {
        self.watched.entry((self.database, key.to_vec())).or_insert_with(|| {
            self.watched_bytes += WATCHED_BYTES + key.len();
            now
        });
    }

    /// Forgets the keys that are watched.
    pub(crate) fn unwatch(&mut self) {
        (self.watched, self.watched_bytes) = (BTreeMap::new(), 0);
    }

    /// Forgets the commands after `MULTI`, and the keys that are watched.
    pub(crate) fn end_transaction(&mut self) {
        self.transaction = None;
        self.unwatch();
    }

    /// Makes `EXEC` fail, if there was a `MULTI`.
    pub(crate) fn break_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.is_broken = true;
        }
    }

    /// Returns the bytes of memory that the session holds.
    pub(crate) fn held(&self) -> usize {
        let transaction = self.transaction.as_ref();
        let transaction = transaction.map_or(0, |transaction| transaction.commands.held());
        self.watched_bytes + self.subscriptions.held() + transaction
    }
}

/// The table of a database, as far as the server knows it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct TableState {
    /// Whether it is being found or made.
    is_requested: bool,
    /// Whether it is being replaced by an empty one.
    is_cleared: bool,
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Server {
    /// The tables of the databases, as far as they are known.
    pub(crate) tables: [Option<u32>; DATABASES],
    states: [TableState; DATABASES],
    requests: TableRequests,
    /// The hash of the password.
    password: Option<blake3::Hash>,
    pub(crate) port: u16,
    pub(crate) began: Instant,
    pub(crate) connections: usize,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) commands: u64,
    pub(crate) errors: u64,
    pub(crate) channels: Channels,
    pub(crate) changes: Changes,
    pub(crate) cursors: Cursors,
    pub(crate) sweep: Sweep,
    pub(crate) waiting: Waiting,
    /// Made when the first script comes.
    pub(crate) scripts: Option<Box<Engine>>,
    /// For `RANDOMKEY` and the like.
    random: Chance,
}

impl Server {
    pub(crate) fn new(
        port: u16,
        requests: TableRequests,
        seed: u64,
        password: Option<&[u8]>,
    ) -> Self {
        Self {
            tables: [None; DATABASES],
            states: [TableState::default(); DATABASES],
            requests,
            password: password.map(blake3::hash),
            port,
            began: Instant::now(),
            connections: 0,
            accepted: 0,
            refused: 0,
            commands: 0,
            errors: 0,
            channels: Channels::default(),
            changes: Changes::default(),
            cursors: Cursors::default(),
            sweep: Sweep::default(),
            waiting: Waiting::default(),
            scripts: None,
            random: Chance::new(seed),
        }
    }

    /// Returns whether clients must send a password.
    pub(crate) fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// Returns whether this is the password, or none is needed. The time that it takes depends only
    /// on the length of `given`.
    pub(crate) fn is_password(&self, given: &[u8]) -> bool {
        self.password.is_none_or(|password| password == blake3::hash(given))
    }

    /// Returns a random number.
    pub(crate) fn random(&mut self) -> u64 {
        self.random.draw()
    }

    /// Returns a random number below `end`, which is not zero.
    pub(crate) fn random_below(&mut self, end: usize) -> usize {
        self.random.index(end)
    }

    /// Returns `count` random numbers below `end`, all of them different.
    pub(crate) fn random_distinct(&mut self, count: usize, end: usize) -> Vec<usize> {
        // Floyd's sampling (Bentley and Floyd, *A Sample of Brilliance*, CACM 1987).
        let mut chosen = BTreeSet::new();
        for last in end - count..end {
            let drawn = self.random_below(last + 1);
            if !chosen.insert(drawn) {
                chosen.insert(last);
            }
        }
        chosen.into_iter().collect()
    }

    /// Requests the table of a database, once.
    pub(crate) fn open(&mut self, database: usize) {
        let TableState { is_requested, is_cleared } = &mut self.states[database];
        if !*is_requested && !*is_cleared {
            // If there is no receiver, the server is ending.
            *is_requested = self.requests.send(TableRequest::Open(database)).is_ok();
        }
    }

    /// Requests that a database becomes empty. Until it is, commands wait for its table.
    pub(crate) fn clear(&mut self, database: usize) {
        let TableState { is_cleared, .. } = &mut self.states[database];
        if !*is_cleared {
            (self.tables[database], *is_cleared) = (None, true);
            // If there is no receiver, the server is ending, and the command is not answered.
            let _ = self.requests.send(TableRequest::Clear(database));
        }
    }

    /// Returns whether a database is going to become empty.
    pub(crate) fn is_clearing(&self, database: usize) -> bool {
        self.states[database].is_cleared
    }

    /// Takes the answer to a request for the table of a database, of which there is none if a
    /// database without a table was to become empty.
    pub(crate) fn set_table(&mut self, request: TableRequest, table: Option<u32>) {
        let (TableRequest::Open(database) | TableRequest::Clear(database)) = request;
        let state = &mut self.states[database];
        match request {
            TableRequest::Open(_) => state.is_requested = false,
            TableRequest::Clear(_) => state.is_cleared = false,
        }
        // The table of an earlier request is being replaced.
        if !state.is_cleared {
            self.tables[database] = table;
            table.into_iter().for_each(|table| self.sweep.visit(table));
        }
    }
}
