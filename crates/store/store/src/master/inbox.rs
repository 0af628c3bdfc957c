//! The channel between a master and the control thread of its process.

use super::TabletAddresses;
use crate::replication::BackupServer;
use sprat_host::lock;
use sprat_net::{Figure, Nanos};
use sprat_redis::TableRequest;
use sprat_wire::index::SortOrder;
use sprat_wire::op::{Load, MoveOrder, RecoveryOrder};
use sprat_wire::tablet::Tablet;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

/// The largest number of commands that may wait at once. [`Outbox::send`] refuses further ones.
const MAX_COMMANDS: usize = 64;

/// An assignment of the coordinator to a server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MasterAssignment {
    /// Version of the coordinator's tablet map.
    pub version: u64,
    /// The tablets that the server serves. The server drops the objects of all tablets that are
    /// neither in this list nor in `orders` or `arriving`.
    pub tablets: Vec<Tablet>,
    /// The servers that can keep replicas, this one included.
    pub members: Vec<BackupServer>,
    /// Ids of the masters whose replicas are needed, all below `next_server`.
    pub masters: Vec<u32>,
    /// Servers with this id or a higher one were not known when the assignment was made.
    pub next_server: u32,
    /// Recoveries that this server is to perform.
    pub orders: Vec<RecoveryOrder>,
    /// The names, by id, of the tables of which the server has tablets.
    pub names: Vec<(u32, String)>,
    /// Tablets that move from this server to others.
    pub leaving: Vec<MoveOrder>,
    /// Tablets that move to this server.
    pub arriving: Vec<MoveOrder>,
    /// The tables whose objects give way when memory is full.
    pub evicting: Vec<u32>,
    /// The orders in which objects are kept.
    pub sort_orders: Vec<SortOrder>,
}

impl MasterAssignment {
    /// Returns an assignment of these whole tables alone, without a cluster.
    #[must_use]
    pub fn tables(version: u64, tables: Vec<u32>) -> Self {
        Self {
            version,
            tablets: tables.into_iter().map(Tablet::whole).collect(),
            ..Self::default()
        }
    }
}

/// A command from the control thread.
#[derive(Debug)]
pub enum Command {
    /// Apply what the coordinator has assigned.
    Assign(Box<MasterAssignment>),
    /// The coordinator has recorded that recovery must not use open replicas of heads below this
    /// segment.
    Voided(u64),
    /// The tablets of a table, in answer to a [wanted](Outbox::take_wanted_table) table, are at
    /// these addresses.
    Located(u32, TabletAddresses),
    /// The answer to a request of the [`Front`](sprat_redis::Front) for the table of a database.
    RedisTable(TableRequest, Option<u32>),
    /// Send the master's counters, and the network's, to this sender.
    Stats(Sender<Vec<Figure>>),
}

/// The result of a recovery, or of a move to this server, to be reported to the coordinator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecoveryResult {
    /// The id that the coordinator gave to the recovery or move.
    pub order: u64,
    /// First segment of this log whose entries count for the tablets that were recovered or moved
    /// here.
    pub since: u64,
    /// Why the recovery or move failed for now; empty when everything is here and durable.
    pub failure: String,
    /// Whether a recovery failed because its tablets do not fit into this server's memory or disk.
    pub no_room: bool,
}

/// State that both ends share.
struct Shared {
    applied: AtomicU64,
    min_open: AtomicU64,
    /// The time until which tables may be served, by the node's clock.
    lease: AtomicU64,
    /// Results of recoveries and moves; at most one for each id.
    recovery_results: Mutex<VecDeque<RecoveryResult>>,
    /// Capacity of the log in bytes of objects, and the load of each tablet.
    loads: Mutex<Option<(u64, Vec<Load>)>>,
    /// Tables whose tablets the master looks for.
    wanted_tables: Mutex<BTreeSet<u32>>,
}

/// The control thread's end of the channel.
#[derive(Clone)]
pub struct Outbox {
    commands: SyncSender<Command>,
    shared: Arc<Shared>,
}

/// The master's end of the channel.
pub struct Inbox {
    commands: Receiver<Command>,
    shared: Arc<Shared>,
}

/// Creates the two ends. Until a lease is set, tables may be served without limit.
#[must_use]
pub fn inbox() -> (Outbox, Inbox) {
    let (sender, receiver) = sync_channel(MAX_COMMANDS);
    let shared = Arc::new(Shared {
        applied: AtomicU64::new(0),
        min_open: AtomicU64::new(0),
        lease: AtomicU64::new(Nanos::NEVER.0),
        recovery_results: Mutex::default(),
        loads: Mutex::default(),
        wanted_tables: Mutex::default(),
    });
    (Outbox { commands: sender, shared: Arc::clone(&shared) }, Inbox { commands: receiver, shared })
}

impl Outbox {
    /// Queues a command; the caller rings the node's bell afterwards. Returns false when the master
    /// is gone or has too many commands waiting.
    pub fn send(&self, command: Command) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// Returns the version of the tablet map that the master serves.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.shared.applied.load(Ordering::Acquire)
    }

    /// Returns the lowest segment whose open replicas recovery may use, as the master wants it.
    /// When it has grown, the control thread has the coordinator record it, and then confirms it to
    /// the master with [`Command::Voided`].
    #[must_use]
    pub fn min_open(&self) -> u64 {
        self.shared.min_open.load(Ordering::Acquire)
    }

    /// Sets the end of the master's lease: it may serve its tables until `until`, by the node's
    /// clock.
    pub fn set_lease(&self, until: Nanos) {
        self.shared.lease.store(until.0, Ordering::Release);
    }

    /// Takes the newest load report, if there was one after the last call: the log's capacity in
    /// bytes of objects, and the load of each tablet.
    #[must_use]
    pub fn take_loads(&self) -> Option<(u64, Vec<Load>)> {
        lock(&self.shared.loads).take()
    }

    /// Takes a table whose tablets the master looks for: the control thread asks the coordinator,
    /// and answers with [`Command::Located`].
    #[must_use]
    pub fn take_wanted_table(&self) -> Option<u32> {
        lock(&self.shared.wanted_tables).pop_first()
    }

    /// Takes the oldest result that the control thread has not taken yet.
    #[must_use]
    pub fn take_recovery_result(&self) -> Option<RecoveryResult> {
        lock(&self.shared.recovery_results).pop_front()
    }
}

impl Inbox {
    pub(crate) fn take(&mut self) -> Option<Command> {
        self.commands.try_recv().ok()
    }

    pub(super) fn applied(&self, version: u64) {
        self.shared.applied.store(version, Ordering::Release);
    }

    pub(crate) fn wants_min_open(&self, segment: u64) {
        self.shared.min_open.store(segment, Ordering::Release);
    }

    /// Returns the time until which tables may be served.
    #[inline]
    pub(super) fn lease(&self) -> Nanos {
        Nanos(self.shared.lease.load(Ordering::Acquire))
    }

    pub(super) fn loads(&self, capacity: u64, loads: Vec<Load>) {
        *lock(&self.shared.loads) = Some((capacity, loads));
    }

    /// Asks the control thread for the addresses of a table's tablets.
    pub(super) fn wants_table(&self, table: u32) {
        lock(&self.shared.wanted_tables).insert(table);
    }

    pub(crate) fn report_recovery(&self, result: RecoveryResult) {
        let mut waiting = lock(&self.shared.recovery_results);
        // Only the newest result of each recovery or move counts, so the queue never has more
        // results than there are recoveries and moves, even if the control thread takes none for
        // long.
        waiting.retain(|other| other.order != result.order);
        waiting.push_back(result);
    }
}
