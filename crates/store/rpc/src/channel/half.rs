//! Limits how fast an endpoint answers handshakes, because anyone who has the door key, or has
//! recorded a first message, can make the endpoint answer.

use sprat_net::Nanos;

use crate::config::{HANDSHAKE_EVERY, HANDSHAKES_AT_ONCE};

/// A rate limit: [`HANDSHAKES_AT_ONCE`] answers in a burst, then one every [`HANDSHAKE_EVERY`].
#[derive(Debug, Default)]
pub(super) struct HandshakePace {
    /// The time at which the steady rate would have allowed the handshakes answered so far.
    spent: Nanos,
}

impl HandshakePace {
    /// Returns whether a handshake may be answered now, and counts it if so.
    pub(super) fn take(&mut self, now: Nanos) -> bool {
        let spent = self.spent.max(now) + HANDSHAKE_EVERY;
        let allowance = HANDSHAKE_EVERY * HANDSHAKES_AT_ONCE;
        if spent.since(now) > allowance {
            return false;
        }
        self.spent = spent;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once_and_then_at_a_pace() {
        let (mut pace, now) = (HandshakePace::default(), Nanos(1_000_000_000));
        let at_once = (0..1000).filter(|_| pace.take(now)).count();
        assert_eq!(at_once, HANDSHAKES_AT_ONCE as usize);
        let later = now + HANDSHAKE_EVERY * 10;
        assert_eq!((0..1000).filter(|_| pace.take(later)).count(), 10);
    }
}
