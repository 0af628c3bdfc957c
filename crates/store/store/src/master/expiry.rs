//! Removes objects that have expired: before a request meets one, and all others over time.

use super::Master;
use super::body::MasterBody;
use super::operations::{BUSY_MICROS, MAX_ALONE};
use super::transactions::LOCKED_MICROS;
use sprat_disk::Disk;
use sprat_log::{EXPIRED_AT_ONCE, Full};
use sprat_net::Nanos;
use sprat_rpc::Outcome;
use sprat_wire::entry::entry_len;
use sprat_wire::expiry::{NEVER, Time, time_record};
use sprat_wire::once::COMPLETIONS;
use std::time::Duration;

/// Pause after an expired object could not be removed: a transaction locks it, or the log has no
/// room.
const PAUSE: Duration = Duration::from_millis(1);

/// The time of a master, by which objects expire, and the removal of those that have expired.
///
/// The time advances as the node's clock does. It begins with the system's clock, but never behind
/// the latest time record of the log; when the log takes over a record that is ahead, the time
/// jumps forward. So a system clock that is set while the server runs changes nothing.
#[derive(Debug, Default)]
pub(super) struct ExpiryClock {
    /// The time at the beginning of the node's clock.
    begin: Time,
    /// Until when nothing is removed, except before a request meets it.
    pause: Nanos,
}

impl ExpiryClock {
    pub(super) fn new(begin: Time) -> Self {
        Self { begin, ..Self::default() }
    }

    fn time(&self, now: Nanos) -> Time {
        self.begin + now.0 / 1_000_000
    }

    /// Returns when the node's clock shows a time.
    fn when(&self, time: Time) -> Nanos {
        Nanos(time.saturating_sub(self.begin).saturating_mul(1_000_000))
    }
}

impl<D: Disk> Master<D> {
    /// Removes an object if it has expired, so that the request at hand finds none. The error is
    /// the reply: a transaction depends on the object, or the log has no room.
    #[inline]
    pub(super) fn expire(&mut self, table: u32, key: &[u8]) -> Result<(), Outcome<MasterBody>> {
        match self.log.find(table, key) {
            Some(found) if self.log.is_expired(&self.log.entry(found)) => {
                self.expire_found(table, key)
            }
            _ => Ok(()),
        }
    }

    fn expire_found(&mut self, table: u32, key: &[u8]) -> Result<(), Outcome<MasterBody>> {
        if self.log.is_locked(table, key, true) {
            self.counts.locked += 1;
            return Err(Outcome::Retry(LOCKED_MICROS));
        }
        let before = self.log.position();
        let removed = self
            .seal_if_short(MAX_ALONE + entry_len(key.len(), size_of::<u64>(), NEVER), true)
            .and_then(|()| self.log.expire(table, key));
        self.note_expired(before, table);
        match removed {
            Ok(removed) => {
                self.counts.expired += u64::from(removed);
                Ok(())
            }
            Err(_) => {
                self.counts.turned_away += 1;
                Err(Outcome::Retry(BUSY_MICROS))
            }
        }
    }

    /// Ensures that objects of a table which have expired may be left out of a reply.
    ///
    /// # Errors
    /// [`Full`] when the log has no room for the time record.
    pub(super) fn leave_out_expired(&mut self, table: u32) -> Result<(), Full> {
        let before = self.log.position();
        self.seal_if_short(MAX_ALONE, true)?;
        let recorded = self.log.record_time(table);
        self.note_expired(before, table);
        recorded.map(drop)
    }

    /// Records that the log may have got a time record or a tombstone since the position `before`.
    /// Until it is durable, no reply may say that the object is missing.
    fn note_expired(&mut self, before: u64, table: u32) {
        if self.log.position() > before {
            self.removed_at = self.log.position();
            if !self.migration_sources.is_empty() {
                let key = time_record(NEVER).key();
                self.migration_sources.note_record(table, (table | COMPLETIONS, key[..].into()));
            }
        }
    }

    /// States the time, and removes some of the objects that have expired. Returns whether there
    /// were any.
    pub(super) fn poll_expiry(&mut self, now: Nanos) -> bool {
        let ahead = self.log.time().saturating_sub(self.expiry_clock.time(now));
        self.expiry_clock.begin += ahead;
        self.log.set_time(self.expiry_clock.time(now));
        if now < self.expiry_clock.pause || self.log.due().is_none() {
            return false;
        }
        self.log.prefetch_due();
        for _ in 0..EXPIRED_AT_ONCE {
            let Some(due) = self.log.due() else { break };
            let (table, len) = (due.table, due.key.len());
            let is_locked = self.log.has_prepared() && self.log.is_locked(table, due.key, true);
            let before = self.log.position();
            let removed = match is_locked {
                true => Ok(false),
                false => self
                    .seal_if_short(MAX_ALONE + entry_len(len, size_of::<u64>(), NEVER), true)
                    .and_then(|()| self.log.expire_due()),
            };
            self.note_expired(before, table);
            match removed {
                Ok(true) => self.counts.expired += 1,
                Ok(false) | Err(_) => {
                    self.expiry_clock.pause = now + PAUSE;
                    break;
                }
            }
        }
        true
    }

    /// Returns when the next object expires.
    pub(super) fn expiry_deadline(&self) -> Option<Nanos> {
        let next = self.log.next_expiry()?;
        Some(self.expiry_clock.when(next).max(self.expiry_clock.pause))
    }
}
