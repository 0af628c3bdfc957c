//! A clock that runs ahead of the world's, or behind.

use sprat_net::Nanos;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Parts in a million that it is ahead.
    drift: i64,
}

impl Clock {
    pub(super) fn new(drift: i64) -> Self {
        Self { drift }
    }

    /// What it shows at a time of the world's.
    pub(super) fn local(self, now: Nanos) -> Nanos {
        let ahead = i128::from(now.0) * i128::from(self.drift) / 1_000_000;
        Nanos(u64::try_from(i128::from(now.0) + ahead).expect("a clock that goes on"))
    }

    /// When it shows so much, by the world's; a little later at most.
    pub(super) fn global(self, local: Nanos) -> Nanos {
        if local == Nanos::NEVER {
            return local;
        }
        let behind = i128::from(local.0) * 1_000_000 / i128::from(1_000_000 + self.drift);
        Nanos(u64::try_from(behind).expect("a clock that goes on") + 1)
    }
}
