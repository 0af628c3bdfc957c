//! Replies that wait for the log to become durable.
//!
//! A reply reveals a state, so it may leave only when that state would survive a crash. Every reply
//! that depends on something not yet durable waits here until the log is durable up to the position
//! that the log had when the reply was made. This holds for replies to writes, and for replies to
//! reads of what was just written. A reply that an object was not found waits only for the last
//! removal. [`Waiting::push`] keeps the queue sorted by position.

use super::body::MasterBody;
use crate::shares::Shares;
use sprat_rpc::{Reply, RequestId};
use std::collections::VecDeque;

/// Waiting replies that sessions share, in addition to one for each session. When a session has
/// used up its share, the master asks it to retry until the disk or the backups have caught up.
pub const MAX_WAITING: usize = 65_536;

/// A reply and the log position that it waits for.
pub(super) struct Waiter {
    position: u64,
    pub(super) id: RequestId,
    pub(super) reply: Reply<MasterBody>,
}

/// The queue of replies.
pub(super) struct Waiting {
    queue: VecDeque<Waiter>,
    shares: Shares,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { queue: VecDeque::new(), shares: Shares::new(MAX_WAITING) }
    }
}

impl Waiting {
    /// Returns whether a reply for this session may wait.
    #[inline]
    pub(super) fn admits(&mut self, session: u32) -> bool {
        self.shares.admits(session)
    }

    /// Returns the sessions' shares of the queue.
    pub(super) fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Queues a reply until the log is durable up to `position`.
    pub(super) fn push(&mut self, position: u64, id: RequestId, reply: Reply<MasterBody>) {
        self.shares.take(id.session());
        // A reply that waits for an earlier position may be queued later: it then waits a little
        // longer than it must.
        let position = self.queue.back().map_or(position, |last| position.max(last.position));
        self.queue.push_back(Waiter { position, id, reply });
    }

    /// Takes the next reply that may leave when the log is durable up to `durable`.
    pub(super) fn pop(&mut self, durable: u64) -> Option<Waiter> {
        if self.queue.front()?.position > durable {
            return None;
        }
        self.abandon()
    }

    /// Takes the next reply regardless of its position. [`pop`](Self::pop) calls it for a reply
    /// that may leave, and the master for replies that must fail.
    pub(super) fn abandon(&mut self) -> Option<Waiter> {
        let waiter = self.queue.pop_front()?;
        self.shares.give(waiter.id.session());
        Some(waiter)
    }
}
