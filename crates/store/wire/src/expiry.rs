//! Times to live: after how long an object expires, that is, ceases to exist by itself.
//!
//! A client gives an object a [`Ttl`] when it writes the object, or later. The master adds it to
//! its [time](Time) and stores the sum in the object's log entry. From that time on the object does
//! not exist: a request finds none, and a write begins a new object.
//!
//! Masters write down how late it is, because an object that a client found missing must not come
//! back: neither after a restart with a clock that was set back, nor at another server whose clock
//! is slow. Before a master answers that an object has expired, the object's table has a durable
//! *time record* with that time or a later one. A time record is a
//! [completion](crate::once) of a client that does not exist, with the time as its sequence number.
//! So it is restored, recovered and moved with its table like every completion, and the latest one
//! counts.

use crate::once::OperationId;
use std::time::Duration;
use thiserror::Error;

/// A time of a master's clock, in milliseconds since 1970.
pub type Time = u64;

/// The time at which an object expires that never does.
pub const NEVER: Time = 0;

/// The latest time at which an object can expire; in the year 10889. 48 bits store it.
pub const MAX_TIME: Time = (1 << 48) - 1;

/// Bytes of the time in the log entry of an object that expires.
pub const EXPIRY_BYTES: usize = 6;

/// Bytes of a time to live in a request.
pub const TTL_BYTES: usize = 8;

/// Bits of a time to live, in milliseconds.
const TTL_BITS: u32 = 40;

/// The client whose completions are time records. A real client is refused with this id.
pub const TIME_CLIENT: u64 = u64::MAX;

/// A time to live: 1 ms to 34.8 years.
///
/// ```
/// # use sprat_wire::expiry::Ttl;
/// # use std::time::Duration;
/// let ttl = Ttl::of(Duration::from_secs(600)).expect("within the limits");
/// assert_eq!(ttl.millis(), 600_000);
/// assert!(Ttl::of(Duration::ZERO).is_err());
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ttl(u64);

/// A time to live that is zero, or over [`Ttl::MAX`].
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("a time to live must be at least 1 ms, and at most 12,725 days (34.8 years)")]
pub struct TtlError;

impl Ttl {
    /// The longest time to live.
    pub const MAX: Self = Self((1 << TTL_BITS) - 1);

    /// Returns the time to live of this duration, rounded up to a millisecond.
    ///
    /// # Errors
    /// [`TtlError`] when the duration is zero or over [`Self::MAX`].
    pub fn of(duration: Duration) -> Result<Self, TtlError> {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Self::of_millis(u64::try_from(millis).map_err(|_| TtlError)?)
    }

    /// Returns the time to live of this number of milliseconds.
    ///
    /// # Errors
    /// [`TtlError`] when it is zero or over [`Self::MAX`].
    pub fn of_millis(millis: u64) -> Result<Self, TtlError> {
        if (1..=Self::MAX.0).contains(&millis) { Ok(Self(millis)) } else { Err(TtlError) }
    }

    /// Returns the number of milliseconds.
    #[must_use]
    pub fn millis(self) -> u64 {
        self.0
    }

    /// Returns the time to live as a duration.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// Returns the time at which an object expires that gets this time to live at `now`.
    #[must_use]
    pub fn after(self, now: Time) -> Time {
        (now + self.0).min(MAX_TIME)
    }

    /// Returns what is left at `now` to an object that expires at `expires`; `None` if it never
    /// does. At least 1 ms.
    #[must_use]
    pub fn left(now: Time, expires: Time) -> Option<Self> {
        (expires != NEVER).then(|| Self(expires.saturating_sub(now).clamp(1, Self::MAX.0)))
    }

    pub(crate) fn of_bytes(bytes: &[u8; TTL_BYTES]) -> Result<Self, TtlError> {
        Self::of_millis(u64::from_le_bytes(*bytes))
    }

    pub(crate) fn bytes(self) -> [u8; TTL_BYTES] {
        self.0.to_le_bytes()
    }
}

/// Returns the operation whose completion records a time in a table's log.
#[must_use]
pub fn time_record(time: Time) -> OperationId {
    OperationId { client: TIME_CLIENT, slot: 0, sequence: time, resent: false }
}
