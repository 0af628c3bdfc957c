//! Answers that wait for the log to become durable.
//!
//! An answer tells of a state; it may leave only when that state would survive a crash. So every
//! answer that depends on something not yet durable waits here for the log's position at that
//! moment: writes, but also reads of what was just written. Positions only grow, so the queue is in
//! order by itself.

use super::body::Body;
use crate::shares::Shares;
use sprat_rpc::{Reply, RequestId};
use std::collections::VecDeque;

/// Answers that wait, of which sessions have shares beside one each. Beyond, requests are turned
/// away until the disk has caught up.
pub const MAX_WAITING: usize = 65_536;

/// An answer and the log position that it waits for.
pub(super) struct Waiter {
    position: u64,
    pub(super) id: RequestId,
    pub(super) reply: Reply<Body>,
}

/// The queue.
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
    /// Whether an answer for this session may wait.
    #[inline]
    pub(super) fn admits(&mut self, session: u32) -> bool {
        self.shares.admits(session)
    }

    /// What sessions have of the answers that may wait.
    pub(super) fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Has an answer wait until the log is durable up to `position`.
    pub(super) fn push(&mut self, position: u64, id: RequestId, reply: Reply<Body>) {
        self.shares.take(id.session());
        // What waits for an earlier position may come later: it then waits a little longer than it
        // must.
        let position = self.queue.back().map_or(position, |last| position.max(last.position));
        self.queue.push_back(Waiter { position, id, reply });
    }

    /// The next answer that may leave now that the log is durable up to `durable`.
    pub(super) fn pop(&mut self, durable: u64) -> Option<Waiter> {
        if self.queue.front()?.position > durable {
            return None;
        }
        self.abandon()
    }

    /// The next answer, whatever it waits for: when nothing will become durable any more.
    pub(super) fn abandon(&mut self) -> Option<Waiter> {
        let waiter = self.queue.pop_front()?;
        self.shares.give(waiter.id.session());
        Some(waiter)
    }
}
