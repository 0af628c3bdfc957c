//! What reaches a master from the control thread of its process.

use crate::replication::BackupServer;
use sprat_host::lock;
use sprat_net::{Figure, Nanos};
use sprat_wire::op::{Load, MoveOrder, RecoveryOrder};
use sprat_wire::tablet::Tablet;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

/// Commands under way at once.
const MAX_COMMANDS: usize = 64;

/// What a coordinator has for a server, as version `version` of its map has it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Assigned {
    /// Version of the map.
    pub version: u64,
    /// The tablets it serves: exactly these; objects of others are dropped.
    pub tablets: Vec<Tablet>,
    /// Servers that keep replicas.
    pub members: Vec<BackupServer>,
    /// Servers whose replicas are needed, of those with ids below `next_server`.
    pub masters: Vec<u32>,
    /// See `masters`.
    pub next_server: u32,
    /// What is to be brought back.
    pub orders: Vec<RecoveryOrder>,
    /// What the tables are called, by id.
    pub names: Vec<(u32, String)>,
    /// Tablets that are to move away, and those that are to move here.
    pub leaving: Vec<MoveOrder>,
    /// See `leaving`.
    pub arriving: Vec<MoveOrder>,
}

impl Assigned {
    /// These tables, and nothing of a cluster.
    #[must_use]
    pub fn tables(version: u64, tables: Vec<u32>) -> Self {
        Self {
            version,
            tablets: tables.into_iter().map(Tablet::whole).collect(),
            ..Self::default()
        }
    }
}

/// A command of the control thread.
#[derive(Debug)]
pub enum Command {
    /// Do as the coordinator has it.
    Assign(Box<Assigned>),
    /// The coordinator has noted that open replicas of heads below this segment are void.
    Voided(u64),
    /// Tell your counters, and the network's.
    Stats(Sender<Vec<Figure>>),
}

/// What has come of a recovery, or of a move to here, for the coordinator to know.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recovered {
    /// Which order that was.
    pub order: u64,
    /// The segment of the log here from which on entries of its tables count.
    pub since: u64,
    /// Why it cannot be had for now; empty when all is here, and durable.
    pub failure: String,
}

/// What both ends see.
struct Shared {
    applied: AtomicU64,
    min_open: AtomicU64,
    /// Until when tables may be served, by the node's clock.
    lease: AtomicU64,
    /// One of each order.
    recovered: Mutex<VecDeque<Recovered>>,
    /// Bytes of objects that the log takes, and what tablets are to it.
    loads: Mutex<Option<(u64, Vec<Load>)>>,
}

/// The control thread's end.
#[derive(Clone)]
pub struct Outbox {
    commands: SyncSender<Command>,
    shared: Arc<Shared>,
}

/// The master's end.
pub struct Inbox {
    commands: Receiver<Command>,
    shared: Arc<Shared>,
}

/// A pair of ends. Without anybody who sets a lease, tables may be served for ever.
#[must_use]
pub fn inbox() -> (Outbox, Inbox) {
    let (sender, receiver) = sync_channel(MAX_COMMANDS);
    let shared = Arc::new(Shared {
        applied: AtomicU64::new(0),
        min_open: AtomicU64::new(0),
        lease: AtomicU64::new(Nanos::NEVER.0),
        recovered: Mutex::default(),
        loads: Mutex::default(),
    });
    (Outbox { commands: sender, shared: Arc::clone(&shared) }, Inbox { commands: receiver, shared })
}

impl Outbox {
    /// Leaves a command; ring the node's bell afterwards. False when the master is gone or has too
    /// many.
    pub fn send(&self, command: Command) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// Version of the map that the master serves.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.shared.applied.load(Ordering::Acquire)
    }

    /// The least segment of which open replicas may count, as the master has it: the coordinator is
    /// to note what it did not know before, and the master to be told by [`Command::Voided`].
    #[must_use]
    pub fn min_open(&self) -> u64 {
        self.shared.min_open.load(Ordering::Acquire)
    }

    /// Tables may be served until then, by the node's clock.
    pub fn set_lease(&self, until: Nanos) {
        self.shared.lease.store(until.0, Ordering::Release);
    }

    /// What the tablets are to the master, and the bytes of objects that it takes, if that was told
    /// since.
    #[must_use]
    pub fn take_loads(&self) -> Option<(u64, Vec<Load>)> {
        lock(&self.shared.loads).take()
    }

    /// What has come of a recovery that the coordinator was not told of yet.
    #[must_use]
    pub fn take_recovered(&self) -> Option<Recovered> {
        lock(&self.shared.recovered).pop_front()
    }
}

impl Inbox {
    pub(super) fn take(&mut self) -> Option<Command> {
        self.commands.try_recv().ok()
    }

    pub(super) fn applied(&self, version: u64) {
        self.shared.applied.store(version, Ordering::Release);
    }

    pub(super) fn wants_min_open(&self, segment: u64) {
        self.shared.min_open.store(segment, Ordering::Release);
    }

    /// Until when tables may be served.
    #[inline]
    pub(super) fn lease(&self) -> Nanos {
        Nanos(self.shared.lease.load(Ordering::Acquire))
    }

    pub(super) fn loads(&self, capacity: u64, loads: Vec<Load>) {
        *lock(&self.shared.loads) = Some((capacity, loads));
    }

    pub(crate) fn recovered(&self, what: Recovered) {
        let mut waiting = lock(&self.shared.recovered);
        // Of an order only the newest counts: so there are no more of them than orders, however
        // long nobody takes them.
        waiting.retain(|other| other.order != what.order);
        waiting.push_back(what);
    }
}
