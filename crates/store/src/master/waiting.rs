//! Answers that wait for the log to become durable.
//!
//! An answer tells of a state; it may leave only when that state would survive a crash. So every answer that
//! depends on something not yet durable waits here for the log's position at that moment: writes, but also reads of
//! what was just written. Positions only grow, so the queue is in order by itself.

use super::body::Body;
use sprat_rpc::{Reply, RequestId};
use std::collections::VecDeque;

/// Most answers that wait. Beyond, requests are turned away until the disk has caught up.
pub const MAX_WAITING: usize = 65_536;

/// An answer and the log position that it waits for.
pub(super) struct Waiter {
    position: u64,
    pub(super) id: RequestId,
    pub(super) reply: Reply<Body>,
}

/// The queue.
#[derive(Default)]
pub(super) struct Waiting {
    queue: VecDeque<Waiter>,
}

impl Waiting {
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= MAX_WAITING
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Has an answer wait until the log is durable up to `position`.
    pub(super) fn push(&mut self, position: u64, id: RequestId, reply: Reply<Body>) {
        assert!(!self.is_full(), "callers look first");
        // What waits for an earlier position may come later: it then waits a little longer than it must.
        let position = self.queue.back().map_or(position, |last| position.max(last.position));
        self.queue.push_back(Waiter { position, id, reply });
    }

    /// The next answer that may leave now that the log is durable up to `durable`.
    pub(super) fn pop(&mut self, durable: u64) -> Option<Waiter> {
        if self.queue.front()?.position > durable {
            return None;
        }
        self.queue.pop_front()
    }

    /// The next answer, whatever it waits for: when nothing will become durable any more.
    pub(super) fn abandon(&mut self) -> Option<Waiter> {
        self.queue.pop_front()
    }
}
