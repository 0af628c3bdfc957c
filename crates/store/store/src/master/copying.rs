//! Copies of the log for a client that makes a backup of the store ([`CopyStep`]).

use super::Master;
use super::body::MasterBody;
use super::operations::BUSY_MICROS;
use crate::answers::{answer, answer_text, denied};
use sprat_disk::Disk;
use sprat_log::{Log, SegmentCopy};
use sprat_net::Nanos;
use sprat_rpc::{Outcome, Repeat, RequestId};
use sprat_wire::op::{COPY_BYTES, COPY_IDLE, CopyCursor, CopySegment, CopyStep, MAX_HOLD, Status};
use std::collections::BTreeMap;
use zerocopy::IntoBytes as _;

/// A segment that a client reads.
struct CopiedSegment {
    copy: SegmentCopy,
    /// Bytes of the copy that the client has got.
    read: u32,
}

/// A cut of the log: the segments that hold what the log held then.
struct Cut {
    /// The log's position at the cut.
    position: u64,
    /// Until when answers that reveal anything behind the cut are held back; `None`: no longer.
    hold_until: Option<Nanos>,
    segments: BTreeMap<u64, CopiedSegment>,
}

/// The copies of the log that a client makes: one client at a time.
#[derive(Default)]
pub(super) struct LogCopies {
    /// The client's session, and until when no other client takes its place.
    client: Option<(u32, Nanos)>,
    /// The segment that the client reads before the cut.
    reading: Option<(u64, CopiedSegment)>,
    cut: Option<Cut>,
    /// Number of cuts so far; the number of the last one.
    cuts: u64,
}

impl LogCopies {
    /// Returns the position up to which the log may be revealed to clients.
    #[inline]
    pub(super) fn revealed(&self) -> u64 {
        match &self.cut {
            Some(Cut { position, hold_until: Some(_), .. }) => *position,
            _ => u64::MAX,
        }
    }

    /// Returns whether answers that reveal anything behind a cut are held back.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        self.revealed() != u64::MAX
    }

    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let hold = self.cut.as_ref().and_then(|cut| cut.hold_until);
        hold.or(self.client.map(|(_, until)| until))
    }

    /// Ends a hold that lasts too long, and the copies of a client that is gone. Returns whether
    /// it ended anything.
    pub(super) fn poll(&mut self, now: Nanos, log: &mut Log) -> bool {
        let Some((_, until)) = self.client else { return false };
        let held = self.cut.as_mut().filter(|cut| cut.hold_until.is_some_and(|until| until <= now));
        let is_over = held.is_some();
        if is_over {
            tracing::warn!("a backup held answers back for {MAX_HOLD:?} and did not go on");
            self.end_cut(log);
        }
        if until <= now {
            self.end(log);
        }
        is_over || until <= now
    }

    fn end(&mut self, log: &mut Log) {
        self.end_cut(log);
        self.end_reading(log);
        self.client = None;
    }

    fn end_cut(&mut self, log: &mut Log) {
        log.give_up_cut();
        for (_, segment) in self.cut.take().into_iter().flat_map(|cut| cut.segments) {
            log.end_copy(segment.copy);
        }
    }

    fn end_reading(&mut self, log: &mut Log) {
        if let Some((_, segment)) = self.reading.take() {
            log.end_copy(segment.copy);
        }
    }

    /// Ends the hold of this cut, and the copies of all its segments but those in `wanted`. Returns
    /// whether the hold lasted until now.
    fn release(&mut self, log: &mut Log, number: u64, wanted: impl Fn(u64) -> bool) -> bool {
        if number != self.cuts {
            return false;
        }
        let Some(cut) = self.cut.as_mut().filter(|cut| cut.hold_until.is_some()) else {
            return false;
        };
        cut.hold_until = None;
        let unwanted = cut.segments.extract_if(.., |&id, _| !wanted(id));
        unwanted.for_each(|(_, segment)| log.end_copy(segment.copy));
        true
    }

    /// Returns the segment to read, which may be read from where the cursor says.
    fn segment(&mut self, log: &mut Log, cursor: &CopyCursor) -> Option<&mut CopiedSegment> {
        let (id, from) = (cursor.segment.get(), cursor.from.get());
        let segment = match cursor.cut.get() {
            0 => {
                if self.reading.as_ref().is_none_or(|(reading, _)| *reading != id) {
                    self.end_reading(log);
                    let copy = log.begin_copy(id)?;
                    self.reading = Some((id, CopiedSegment { copy, read: 0 }));
                }
                self.reading.as_mut().map(|(_, segment)| segment)
            }
            number if number == self.cuts => self.cut.as_mut()?.segments.get_mut(&id),
            _ => None,
        }?;
        if from == 0 {
            segment.copy.rewind();
            segment.read = 0;
        }
        (segment.read == from).then_some(segment)
    }
}

impl<D: Disk> Master<D> {
    /// Takes a step of a copy of the log.
    pub(super) fn copy_log(
        &mut self,
        now: Nanos,
        id: RequestId,
        step: CopyStep<'_>,
    ) -> Outcome<MasterBody> {
        if !id.requester().administers() {
            return denied();
        }
        if self.durable.is_nothing() {
            // Such a log has no tombstones, so copies of it would have what was removed.
            let reason = "it keeps nothing on a disk (--durability none), so it cannot be backed \
                          up: `sprat export` can save its tables";
            return answer_text(&mut self.held.made, Status::Refused, reason);
        }
        if self.copies.client.is_some_and(|(session, _)| session != id.session()) {
            let reason = "another backup is being made, or ended less than 10 s ago without saying \
                          so";
            return answer_text(&mut self.held.made, Status::Refused, reason);
        }
        // Without a lease, other servers may have changed the objects of the log by now.
        if !self.is_leased(now) || !self.held.made.admits(id.session()) {
            self.counts.turned_away += 1;
            return Outcome::Retry(BUSY_MICROS);
        }
        self.copies.client = Some((id.session(), now + COPY_IDLE));
        let Self { copies, log, .. } = self;
        let done = |status| Outcome::Reply(answer(status, false, 0, 0, Repeat::Retain));
        match step {
            CopyStep::List => {
                let segments: Vec<_> = log.copyable().map(copy_segment).collect();
                self.reply_segments(id, &segments, 0)
            }
            CopyStep::Cut => self.cut_log(now, id),
            CopyStep::Release { cut, wanted } => {
                let is_wanted = |id: u64| wanted.binary_search_by_key(&id, |one| one.get()).is_ok();
                let was_held = copies.release(log, cut, is_wanted);
                done(if was_held { Status::Ok } else { Status::NotFound })
            }
            CopyStep::Read(cursor) => {
                let Some(segment) = copies.segment(log, cursor) else {
                    return done(Status::NotFound);
                };
                if !log.is_settled(&segment.copy) {
                    return Outcome::Retry(BUSY_MICROS);
                }
                let mut more = false;
                let body = self.held.made.make(id.session(), |out| {
                    more = log.continue_copy(&mut segment.copy, COPY_BYTES, out);
                    segment.read += u32::try_from(out.len()).expect("a piece of a segment");
                });
                let next = u64::from(segment.read);
                let body = MasterBody::Made(body.expect("admitted above"));
                let reply = answer(Status::Ok, more, 0, next, Repeat::Retain).with_body(body);
                Outcome::Reply(reply)
            }
            CopyStep::End => {
                copies.end(log);
                done(Status::Ok)
            }
        }
    }

    fn cut_log(&mut self, now: Nanos, id: RequestId) -> Outcome<MasterBody> {
        let Self { copies, log, .. } = self;
        copies.end_cut(log);
        copies.end_reading(log);
        let Some(segments) = log.cut() else {
            self.counts.turned_away += 1;
            return Outcome::Retry(BUSY_MICROS);
        };
        let list: Vec<_> = segments.iter().map(|&(id, live, _)| copy_segment((id, live))).collect();
        let copied = |(id, _, copy)| (id, CopiedSegment { copy, read: 0 });
        copies.cuts += 1;
        copies.cut = Some(Cut {
            position: log.position(),
            hold_until: Some(now + MAX_HOLD),
            segments: segments.into_iter().map(copied).collect(),
        });
        let number = copies.cuts;
        self.reply_segments(id, &list, number)
    }

    fn reply_segments(
        &mut self,
        id: RequestId,
        segments: &[CopySegment],
        number: u64,
    ) -> Outcome<MasterBody> {
        let fill = |out: &mut Vec<u8>| out.extend_from_slice(segments.as_bytes());
        let body = self.held.made.make(id.session(), fill).expect("admitted before");
        let reply = answer(Status::Ok, false, 0, number, Repeat::Retain);
        Outcome::Reply(reply.with_body(MasterBody::Made(body)))
    }
}

fn copy_segment((id, bytes): (u64, usize)) -> CopySegment {
    CopySegment { id: id.into(), bytes: (bytes as u64).into() }
}
