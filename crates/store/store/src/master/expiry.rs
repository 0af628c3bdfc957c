//! Removes objects that have expired: before a request meets one, and all others over time. Takes
//! note of objects that the log has evicted.

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

/// Pause after an expired object could not be removed: a transaction locks it, its tablet is being
/// recovered, or the log has no room.
const PAUSE: Duration = Duration::from_millis(1);

/// The time of a master, by which objects expire.
///
/// It begins with the system's clock and advances as the node's clock does, so a system clock that
/// is set while the server runs changes nothing. When the log takes over a time record that is
/// ahead, the time jumps there and then advances at half speed, until it has lost what it was
/// ahead. If it kept that, the servers' times would drift ahead with every move. If it stood still,
/// a record of a server whose clock was an hour fast would stop all expiry for an hour.
#[derive(Debug, Default)]
pub(super) struct ExpiryClock {
    /// The time at the beginning of the node's clock.
    begin: Time,
    /// Since when, and since which time, the time advances at half speed.
    ahead: Option<(Nanos, Time)>,
    /// Until when nothing is removed, except before a request meets it.
    pause: Nanos,
}

impl ExpiryClock {
    pub(super) fn new(begin: Time) -> Self {
        Self { begin, ..Self::default() }
    }

    /// Returns the time. `recorded` is the latest that was returned or that the log has taken over.
    fn advance(&mut self, now: Nanos, recorded: Time) -> Time {
        let own = self.begin + now.0 / 1_000_000;
        let half = |(since, time): (Nanos, Time)| time + (now.0 - since.0) / 2_000_000;
        let time = self.ahead.map_or(own, half);
        if own >= time.max(recorded) {
            self.ahead = None;
            return own;
        }
        if recorded > time {
            self.ahead = Some((now, recorded));
        }
        time.max(recorded)
    }

    /// Returns when, on the node's clock, the time will be this, or a little earlier.
    fn when(&self, time: Time) -> Nanos {
        let nanos = |millis: u64| millis.saturating_mul(1_000_000);
        let own = Nanos(nanos(time.saturating_sub(self.begin)));
        match self.ahead {
            None => own,
            Some((since, from)) => {
                own.min(Nanos(since.0.saturating_add(nanos(2 * time.saturating_sub(from)))))
            }
        }
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
                if removed && !self.feeds.are_none() {
                    self.feeds.note(&self.log, table, key);
                }
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

    /// Takes note of the objects that earlier writes have evicted: until their tombstones are
    /// durable, no reply may say that they are missing.
    #[inline]
    pub(super) fn note_evicted(&mut self) {
        if !self.log.has_evicted() {
            return;
        }
        self.removed_at = self.log.position();
        for (table, key) in self.log.take_evicted() {
            self.counts.evicted += 1;
            self.migration_sources.note_evicted(&self.log, table, &key);
            self.feeds.note(&self.log, table, &key);
        }
    }

    /// States the time to the log.
    pub(super) fn state_time(&mut self, now: Nanos) {
        let time = self.expiry_clock.advance(now, self.log.time());
        self.log.set_time(time);
    }

    /// States the time, and removes some of the objects that have expired. Returns whether there
    /// were any.
    pub(super) fn poll_expiry(&mut self, now: Nanos) -> bool {
        self.state_time(now);
        if now < self.expiry_clock.pause || self.log.due().is_none() {
            return false;
        }
        self.log.prefetch_due();
        for _ in 0..EXPIRED_AT_ONCE {
            let Some(due) = self.log.due() else { break };
            let (table, len) = (due.table, due.key.len());
            let stays = self.log.has_prepared() && self.log.is_locked(table, due.key, true)
                || self.is_recovered(table, due.key);
            let before = self.log.position();
            let key = (!self.feeds.are_none()).then(|| due.key.to_vec());
            let removed = match stays {
                true => Ok(false),
                false => self
                    .seal_if_short(MAX_ALONE + entry_len(len, size_of::<u64>(), NEVER), true)
                    .and_then(|()| self.log.expire_due()),
            };
            self.note_expired(before, table);
            match removed {
                Ok(true) => {
                    self.counts.expired += 1;
                    if let Some(key) = key {
                        self.feeds.note(&self.log, table, &key);
                    }
                }
                Ok(false) | Err(_) => {
                    self.expiry_clock.pause = now + PAUSE;
                    break;
                }
            }
        }
        true
    }

    /// Returns whether an object is of a tablet that is being recovered. Such an object must not be
    /// removed before the tablet is whole: an older version of it, which may not expire, would be
    /// replayed later.
    fn is_recovered(&self, table: u32, key: &[u8]) -> bool {
        let mut tablets = self.recoveries.tablets().filter(|tablet| tablet.table == table);
        tablets.any(|tablet| tablet.range.contains(self.log.position_of(table, key)))
    }

    /// Returns when the next object expires.
    pub(super) fn expiry_deadline(&self) -> Option<Nanos> {
        let next = self.log.next_expiry()?;
        Some(self.expiry_clock.when(next).max(self.expiry_clock.pause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    #[test]
    fn the_time_catches_up_with_a_record_that_is_ahead() {
        let mut clock = ExpiryClock::new(1000);
        assert_eq!(clock.advance(at(500), 0), 1500);
        assert_eq!(clock.when(2000), at(1000));
        assert_eq!(clock.advance(at(600), 2600), 2600, "a record is a second ahead");
        assert_eq!(clock.advance(at(1600), 2600), 3100);
        assert_eq!(clock.when(3200), at(1800));
        assert_eq!(clock.advance(at(2500), 3100), 3550);
        assert_eq!(clock.advance(at(2600), 3550), 3600, "it is no longer ahead");
        assert_eq!(clock.advance(at(3600), 3600), 4600);
        assert_eq!(clock.when(5600), at(4600));
    }

    #[test]
    fn polls_that_follow_closely_do_not_stop_the_time() {
        let mut clock = ExpiryClock::new(0);
        let mut time = clock.advance(at(0), 1_000_000);
        for micros in 1..=1_000_000 {
            time = clock.advance(Nanos(micros * 1000), time);
        }
        assert_eq!(time, 1_000_500);
    }
}
