//! How many handshakes are answered, and how fast: whoever has the door key, or has overheard a
//! first message, can ask for them.

use sprat_net::Nanos;

use crate::config::{HANDSHAKE_EVERY, HANDSHAKES_AT_ONCE};

/// Handshakes that may be answered now.
#[derive(Debug, Default)]
pub(super) struct Half {
    /// Until when those answered so far have used up the pace.
    spent: Nanos,
}

impl Half {
    /// Whether one may be answered, which counts as done.
    pub(super) fn take(&mut self, now: Nanos) -> bool {
        let spent = self.spent.max(now) + HANDSHAKE_EVERY;
        let room = HANDSHAKE_EVERY * HANDSHAKES_AT_ONCE;
        if spent.since(now) > room {
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
        let (mut half, now) = (Half::default(), Nanos(1_000_000_000));
        let at_once = (0..1000).filter(|_| half.take(now)).count();
        assert_eq!(at_once, HANDSHAKES_AT_ONCE as usize);
        let later = now + HANDSHAKE_EVERY * 10;
        assert_eq!((0..1000).filter(|_| half.take(later)).count(), 10);
    }
}
