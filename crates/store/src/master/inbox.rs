//! What reaches a master from the control thread of its process.

use sprat_net::Figure;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};

/// Commands under way at once.
const MAX_COMMANDS: usize = 64;

/// A command of the control thread.
#[derive(Debug)]
pub enum Command {
    /// Serve exactly these tables, as version `version` of the coordinator's map has it. Objects of others are dropped.
    Serve {
        /// Version of the map.
        version: u64,
        /// Ids of the tables.
        tables: Vec<u32>,
    },
    /// Tell your counters, and the network's.
    Stats(Sender<Vec<Figure>>),
}

/// The control thread's end.
#[derive(Clone)]
pub struct Outbox {
    commands: SyncSender<Command>,
    applied: Arc<AtomicU64>,
}

/// The master's end.
pub struct Inbox {
    commands: Receiver<Command>,
    applied: Arc<AtomicU64>,
}

/// A pair of ends.
#[must_use]
pub fn inbox() -> (Outbox, Inbox) {
    let (sender, receiver) = sync_channel(MAX_COMMANDS);
    let applied = Arc::new(AtomicU64::new(0));
    (Outbox { commands: sender, applied: Arc::clone(&applied) }, Inbox { commands: receiver, applied })
}

impl Outbox {
    /// Leaves a command; ring the node's bell afterwards. False when the master is gone or has too many.
    pub fn send(&self, command: Command) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// Version of the map that the master serves.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }
}

impl Inbox {
    pub(super) fn take(&mut self) -> Option<Command> {
        self.commands.try_recv().ok()
    }

    pub(super) fn applied(&self, version: u64) {
        self.applied.store(version, Ordering::Release);
    }
}
