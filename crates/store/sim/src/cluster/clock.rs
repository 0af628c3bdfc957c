//! A clock that runs faster or slower than the world's.

use sprat_net::Nanos;

/// A server's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// How much faster it runs than the world's clock, in parts per million; negative if slower.
    drift: i64,
}

impl Clock {
    pub(super) fn new(drift: i64) -> Self {
        Self { drift }
    }

    /// Returns the time that this clock shows at time `now` of the world.
    pub(super) fn local(self, now: Nanos) -> Nanos {
        let ahead = i128::from(now.0) * i128::from(self.drift) / 1_000_000;
        Nanos(u64::try_from(i128::from(now.0) + ahead).expect("a clock that goes on"))
    }

    /// Returns the time of the world at which this clock shows `local`, or a little later.
    pub(super) fn global(self, local: Nanos) -> Nanos {
        if local == Nanos::NEVER {
            return local;
        }
        let behind = i128::from(local.0) * 1_000_000 / i128::from(1_000_000 + self.drift);
        Nanos(u64::try_from(behind).expect("a clock that goes on") + 1)
    }
}
