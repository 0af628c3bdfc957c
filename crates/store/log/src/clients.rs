//! The clients whose completions are kept: those that the log heard from recently.
//!
//! A completion has no tombstone. When its client has been silent for long, the client can no
//! longer repeat the operation, so the cleaner drops the completion. If a restart restores the
//! completion, its client counts as heard from at the restart, and the completion is dropped again
//! later.

use sprat_wire::expiry::TIME_CLIENT;
use std::collections::HashMap;

/// The largest number of clients whose operations can be completed. If this number of clients is
/// known, a master answers `Retry` to operations of other clients that need a completion.
/// Completions that the log restores or adopts may exceed this number.
pub const MAX_CLIENTS: usize = 1 << 20;

/// Clients, and the generation when the log last heard from each.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    heard: HashMap<u64, u32>,
    generation: u32,
    /// The client that the log heard from last. Most clients send many operations in a row, so this
    /// saves a lookup.
    last: Option<u64>,
}

impl Clients {
    pub(crate) fn note_heard(&mut self, client: u64) {
        if self.last != Some(client) {
            self.heard.insert(client, self.generation);
            self.last = Some(client);
        }
    }

    /// Returns whether the completions of a client are kept. Those of [`TIME_CLIENT`], the time
    /// records, always are.
    pub(crate) fn knows(&self, client: u64) -> bool {
        self.last == Some(client) || client == TIME_CLIENT || self.heard.contains_key(&client)
    }

    /// Returns whether there is room for a client that is not known.
    pub(crate) fn has_room(&self) -> bool {
        self.heard.len() < MAX_CLIENTS
    }

    pub(crate) fn len(&self) -> usize {
        self.heard.len()
    }

    /// Begins a generation: forgets the clients that were not heard from in the generation that
    /// ends. Returns whether there were any.
    pub(crate) fn age(&mut self) -> bool {
        let (before, ending) = (self.heard.len(), self.generation);
        self.heard.retain(|_, heard| *heard >= ending);
        self.generation += 1;
        self.last = None;
        self.heard.len() < before
    }
}
