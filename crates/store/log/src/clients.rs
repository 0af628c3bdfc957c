//! Whose completions are kept: those of clients that were heard of lately.
//!
//! A completion has no tombstone. Nobody asks for one whose client has long given up, so the
//! cleaner lets it go, and should it rise again after a restart, its client is as if heard of then,
//! and it goes the same way.

use std::collections::HashMap;

/// Most clients whose completions are kept at once. Of further ones nothing is taken that needs
/// one.
pub const MAX_CLIENTS: usize = 1 << 20;

/// Clients, and in which generation each was heard of last.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    heard: HashMap<u64, u32>,
    generation: u32,
    /// The client heard of last: most come many times in a row.
    last: Option<u64>,
}

impl Clients {
    pub(crate) fn hear(&mut self, client: u64) {
        if self.last != Some(client) {
            self.heard.insert(client, self.generation);
            self.last = Some(client);
        }
    }

    pub(crate) fn knows(&self, client: u64) -> bool {
        self.last == Some(client) || self.heard.contains_key(&client)
    }

    /// Whether a client may come that is not known.
    pub(crate) fn has_room(&self) -> bool {
        self.heard.len() < MAX_CLIENTS
    }

    pub(crate) fn len(&self) -> usize {
        self.heard.len()
    }

    /// Begins a generation: forgets the clients that were not heard of in the one that ends.
    /// Returns whether there were any.
    pub(crate) fn age(&mut self) -> bool {
        let (before, ending) = (self.heard.len(), self.generation);
        self.heard.retain(|_, heard| *heard >= ending);
        self.generation += 1;
        self.last = None;
        self.heard.len() < before
    }
}
