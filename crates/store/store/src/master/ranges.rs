//! Scans of ranges of keys, in ordered tables and in indexes.

use super::Master;
use super::body::MasterBody;
use super::operations::{BUSY_MICROS, SCAN_BYTES, SCAN_OBJECTS, push_objects};
use super::transactions::LOCKED_MICROS;
use crate::answers::answer;
use sprat_disk::Disk;
use sprat_log::Ref;
use sprat_rpc::{Outcome, Repeat, RequestId};
use sprat_wire::index::OWN_KEYS;
use sprat_wire::op::Status;
use sprat_wire::order::{RangePage, RangeQuery};
use sprat_wire::tablet::Range;
use std::borrow::Cow;

/// Retry delay, in microseconds, while the objects of a table are put in order after the server
/// began to serve it, or the index was made.
const ORDERING_MICROS: u32 = 20_000;

impl<D: Disk> Master<D> {
    /// Replies to a scan of a range of keys with a page of all tablets of the table that are served
    /// here.
    pub(super) fn scan_range(
        &mut self,
        id: RequestId,
        table: u32,
        query: &RangeQuery<'_>,
    ) -> Outcome<MasterBody> {
        self.counts.scans += 1;
        if !self.log.has_order(table, query.index()) {
            let status = match query.index() {
                OWN_KEYS => Status::NotOrdered,
                _ => Status::NoSuchIndex,
            };
            return Outcome::Reply(answer(status, false, 0, 0, Repeat::Retain));
        }
        self.reply_page(|master, found| master.scan_range_into(id, table, query, found))
    }

    /// Replies to a scan of a range of keys; the error is after how many microseconds to retry.
    fn scan_range_into(
        &mut self,
        id: RequestId,
        table: u32,
        query: &RangeQuery<'_>,
        found: &mut Vec<Ref>,
    ) -> Result<Outcome<MasterBody>, u32> {
        let index = query.index();
        if !self.log.is_ordered(table, index) {
            return Err(ORDERING_MICROS);
        }
        // The record may move objects, so it is written before any is found.
        let leaves_out = self.log.due().is_some();
        if leaves_out {
            self.leave_out_expired(table).map_err(|_| BUSY_MICROS)?;
        }
        let tablets = self.served.tablets.iter().flatten();
        let covered: Vec<Range> = tablets
            .filter(|tablet| tablet.table == table && !self.migration_sources.is_frozen(**tablet))
            .map(|tablet| tablet.range)
            .collect();
        let (log, range) = (&self.log, query.range());
        let is_covered = |position| covered.iter().any(|range| range.contains(position));
        let limit = usize::try_from(query.limit()).unwrap_or(usize::MAX).min(SCAN_OBJECTS);
        let limits = (SCAN_BYTES, limit);
        let mut last = log.scan_order((table, index), &range, is_covered, limits, found);
        let key = |at: &Ref| log.key_in_order(index, *at).expect("the scan has found it there");
        // The page ends before the first key at which a transaction may have added or removed an
        // object.
        let Some(locked) = log.locked_in_order(table, index) else {
            self.counts.locked += 1;
            return Err(LOCKED_MICROS);
        };
        let is_in_page = |(position, locked): &(u64, Cow<'_, [u8]>)| {
            range.contains(locked)
                && is_covered(*position)
                && last.is_none_or(|last| !range.comes_before(&key(&last), locked))
        };
        let locked = locked.into_iter().filter(is_in_page).map(|(_, locked)| locked);
        let first =
            locked.reduce(|one, other| if range.comes_before(&other, &one) { other } else { one });
        if let Some(first) = first {
            found.retain(|at| range.comes_before(&key(at), &first));
            last = found.last().copied();
            if last.is_none() {
                self.counts.locked += 1;
                return Err(LOCKED_MICROS);
            }
        }
        if leaves_out {
            let is_expired = |at: &Ref| log.is_expired(&log.entry(*at));
            let is_locked = |at: &Ref| log.is_locked(table, log.entry(*at).key, true);
            if found.iter().any(|at| is_expired(at) && is_locked(at)) {
                self.counts.locked += 1;
                return Err(LOCKED_MICROS);
            }
            found.retain(|at| !is_expired(at));
        }
        let Self { log, held, .. } = self;
        let mut objects = 0;
        let body = held.made.make(id.session(), |out| {
            push_objects(out, log, found);
            objects = out.len();
            let key = |at: &Ref| log.key_in_order(index, *at).expect("in the order");
            let fields: Vec<_> = match index {
                OWN_KEYS => Vec::new(),
                _ => found.iter().map(|at| (key(at), log.entry(*at).key.len())).collect(),
            };
            let fields = fields.iter().map(|(key, own)| &key[..key.len() - own]);
            RangePage::write_end(out, last.map(|last| key(&last)).as_deref(), fields, &covered);
        });
        let body = body.ok_or(BUSY_MICROS)?;
        let count = u32::try_from(found.len()).expect("a page of objects");
        let reply = answer(Status::Ok, last.is_some(), count, objects as u64, Repeat::Retain);
        Ok(self.wait_for_found(found, id, reply.with_body(MasterBody::Made(body))))
    }
}
