//! Serves replicas to servers that recover the master that wrote them.
//!
//! A recovering server requests a segment in pieces of [`REPLICA_BYTES`]. At the first request the
//! whole segment is read from disk. The segment stays in memory until all servers that recover it
//! have its last byte, or until another segment needs its place and it was not requested for
//! [`HOLD`].

use super::sorted::Sorted;
use super::{BUSY_MICROS, Replicas};
use crate::answers::answer;
use crate::backup::Contents;
use crate::shares::Shares;
use sprat_disk::Disk;
use sprat_net::Nanos;
use sprat_rpc::{Outcome, Repeat, RequestId};
use sprat_wire::op::{REPLICA_BYTES, ReplicaId, Selection, Status};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The largest number of replicas in memory at a time, each of up to 9 MB. Sorting one takes up to
/// 8 MB more, and 24 B for each entry. While no replica can be evicted, further reads wait.
pub const MAX_CACHED: usize = 8;
const _: () = assert!(MAX_CACHED <= crate::backup::MAX_READS);

/// Limit on the reads that wait. A session may always have one read waiting, and more only while it
/// has fewer reads waiting than there are places left. Further reads are answered with `Retry`.
pub const MAX_READERS: usize = 256;

/// Limit on the replies to reads in flight that sessions share, each of up to [`REPLICA_BYTES`]. In
/// addition each session may always have one reply in flight.
pub const MAX_ANSWERS: usize = 32;

/// How long a replica that is no longer requested stays in memory when another replica needs its
/// place.
pub const HOLD: Duration = Duration::from_millis(200);

/// The largest number of replies made, or of slices sorted, in one iteration of the node's loop:
/// each takes about a millisecond.
const REPLIES_PER_ITERATION: usize = 1;

/// A read that waits.
struct Reader {
    id: RequestId,
    replica: ReplicaId,
    offset: u32,
    /// The encoded [`Selection`], unless all of the segment is wanted.
    selection: Option<Box<[u8]>>,
}

/// A replica in memory, or being read from disk.
struct Cached {
    word: u64,
    incarnation: u32,
    /// The replica's contents; `None` while they are being read from disk.
    contents: Option<Contents>,
    /// The replica's entries, sorted, once a selection was requested.
    sorted: Option<Box<Sorted>>,
    used: Nanos,
    /// Whether a reply with the replica's last byte was made. Replies to selections do not count.
    finished: bool,
}

/// Reads that wait, and the replicas in memory.
pub(super) struct Reads {
    waiting: VecDeque<Reader>,
    cached: Vec<Cached>,
    /// Bodies of replies that are being sent, with the session of each.
    answers: BTreeMap<u32, u32>,
    /// The number of these bodies that each session has.
    shares: Shares,
    /// Whether a read waits for a place in memory.
    crowded: bool,
    /// Buffers to sort further replicas in, at most [`MAX_CACHED`].
    spare: Vec<Vec<u8>>,
}

impl Default for Reads {
    fn default() -> Self {
        let (waiting, cached, answers, spare) =
            (VecDeque::new(), Vec::new(), BTreeMap::new(), Vec::new());
        Self { waiting, cached, answers, shares: Shares::new(MAX_ANSWERS), crowded: false, spare }
    }
}

impl Reads {
    /// Notes that a reply is on its way.
    fn answered(&mut self, body: u32, session: u32) {
        self.shares.take(session);
        self.answers.insert(body, session);
    }

    /// Notes that the body of a reply is released.
    pub(super) fn released(&mut self, body: u32) {
        if let Some(session) = self.answers.remove(&body) {
            self.shares.give(session);
        }
    }

    /// Returns whether another read of a session may wait. It may while the session has fewer reads
    /// waiting than there are places left, so that a server that reads much does not keep others
    /// from reading.
    fn admits(&self, session: u32) -> bool {
        let own = self.waiting.iter().filter(|reader| reader.id.session() == session).count();
        own == 0 || own < MAX_READERS.saturating_sub(self.waiting.len())
    }

    /// Removes a replica from memory. If it is still being read from disk, it is dropped when it
    /// arrives.
    pub(super) fn forget(&mut self, word: u64) -> Option<Contents> {
        let at = self.cached.iter().position(|cached| cached.word == word)?;
        self.remove(at)
    }

    fn remove(&mut self, at: usize) -> Option<Contents> {
        let Cached { contents, sorted, .. } = self.cached.swap_remove(at);
        let room = MAX_CACHED - self.spare.len();
        self.spare.extend(sorted.map(|sorted| sorted.into_buffer()).into_iter().take(room));
        contents
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.cached.is_empty()
    }

    /// Returns the time at which a replica may be evicted for a read that waits for its place;
    /// [`Nanos::NEVER`] if no read waits for one.
    pub(super) fn next_deadline(&self) -> Nanos {
        let ends = self
            .cached
            .iter()
            .filter(|cached| cached.contents.is_some())
            .map(|cached| cached.used + HOLD);
        if self.crowded { ends.min().unwrap_or(Nanos::NEVER) } else { Nanos::NEVER }
    }

    /// Returns the index of a replica in memory.
    fn find(&self, word: u64, incarnation: u32) -> Option<usize> {
        self.cached
            .iter()
            .position(|cached| cached.word == word && cached.incarnation == incarnation)
    }

    /// Makes room for another replica in memory, and returns the contents that it evicts, if any.
    /// It evicts first a replica that was read to its end, otherwise the one that was not requested
    /// for the longest time, if that time is at least [`HOLD`]. Fails if there is no such replica.
    fn make_room(&mut self, now: Nanos) -> Result<Option<Contents>, ()> {
        if self.cached.len() < MAX_CACHED {
            return Ok(None);
        }
        let idle = self.cached.iter().enumerate().filter(|(_, cached)| cached.contents.is_some());
        let Some((at, oldest)) = idle.min_by_key(|(_, cached)| (!cached.finished, cached.used))
        else {
            return Err(());
        };
        if !oldest.finished && now < oldest.used + HOLD {
            return Err(());
        }
        Ok(self.remove(at))
    }
}

/// The result of working on a read that waits.
enum Step {
    /// The read is complete.
    Complete(Outcome<u32>),
    /// Some of the read's work was done, and more can be done at once.
    Continue,
    /// The read waits for the disk, memory or room for a reply.
    Wait,
}

impl<D: Disk> Replicas<D> {
    /// Checks a read of a replica, or of a selection of its entries, and queues it.
    pub(super) fn read(
        &mut self,
        now: Nanos,
        id: RequestId,
        replica: ReplicaId,
        offset: u32,
        selection: Option<Selection<'_>>,
    ) -> Outcome<u32> {
        let Some(kept) = self.kept.get(&replica.word()) else {
            return Outcome::Reply(answer(Status::NotFound, false, 0, 0, Repeat::Reexecute));
        };
        if let Some(why) = kept.damage() {
            let why = why.to_owned();
            return self.refuse(&why);
        }
        if kept.is_present() && !kept.sealed && !self.fences.contains(replica.master) {
            return self.refuse(&format!(
                "{replica} is still being written: fence its master before reading it"
            ));
        }
        if offset > kept.len {
            let len = kept.len;
            return self.refuse(&format!("{replica} has {len} B here, none at byte {offset}"));
        }
        if !self.reads.admits(id.session()) {
            self.counts.turned_away += 1;
            return Outcome::Retry(BUSY_MICROS);
        }
        if !kept.is_written() {
            self.flush_by(now);
        }
        let selection = selection.map(|selection| selection.bytes().into());
        self.reads.waiting.push_back(Reader { id, replica, offset, selection });
        Outcome::Pending
    }

    /// Works on the reads that wait, for a bounded time. Returns whether anything was done.
    pub(super) fn serve(&mut self, now: Nanos) -> bool {
        let mut worked = self.take_reads(now);
        self.reads.crowded = false;
        let mut answered = 0;
        for _ in 0..self.reads.waiting.len() {
            let Some(reader) = self.reads.waiting.pop_front() else { break };
            let step = if answered == REPLIES_PER_ITERATION {
                Step::Wait
            } else {
                self.step(now, &reader)
            };
            match step {
                Step::Complete(outcome) => {
                    answered += 1;
                    self.ready.push_back((reader.id, outcome));
                }
                Step::Continue => {
                    answered += 1;
                    self.reads.waiting.push_front(reader);
                }
                Step::Wait => self.reads.waiting.push_back(reader),
            }
        }
        worked |= answered > 0;
        if self.reads.is_idle() {
            self.reads.spare = Vec::new();
            self.backup.forget_buffers();
        }
        worked
    }

    /// Takes the replicas that the disk has read.
    fn take_reads(&mut self, now: Nanos) -> bool {
        let mut worked = false;
        while let Some(read) = self.backup.take_read() {
            worked = true;
            let at = self.reads.find(read.segment, read.incarnation);
            match (at, read.result) {
                (Some(at), Ok(contents)) => {
                    let cached = &mut self.reads.cached[at];
                    (cached.contents, cached.used) = (Some(contents), now);
                }
                // The replica was freed meanwhile.
                (None, Ok(contents)) => self.backup.give_back(contents),
                (at, Err(error)) => {
                    if let Some(at) = at {
                        self.reads.remove(at);
                    }
                    let replica = ReplicaId::of_word(read.segment);
                    let why = format!("cannot read {replica} from {}: {error}", self.backup.name());
                    tracing::error!("{why}");
                    self.counts.failed_reads += 1;
                    self.refuse_readers(replica, &why);
                }
            }
        }
        worked
    }

    /// Refuses all reads that wait for a replica.
    fn refuse_readers(&mut self, replica: ReplicaId, why: &str) {
        for reader in std::mem::take(&mut self.reads.waiting) {
            if reader.replica == replica {
                let refused = self.refuse(why);
                self.ready.push_back((reader.id, refused));
            } else {
                self.reads.waiting.push_back(reader);
            }
        }
    }

    /// Works on a read.
    fn step(&mut self, now: Nanos, reader: &Reader) -> Step {
        let Reader { replica, offset, .. } = *reader;
        let selection = reader
            .selection
            .as_deref()
            .map(|bytes| Selection::parse(bytes).expect("checked when it came"));
        let word = replica.word();
        let Some(kept) = self.kept.get(&word) else {
            return Step::Complete(Outcome::Reply(answer(
                Status::NotFound,
                false,
                0,
                0,
                Repeat::Reexecute,
            )));
        };
        if let Some(why) = kept.damage() {
            let why = why.to_owned();
            return Step::Complete(self.refuse(&why));
        }
        let piece = u32::try_from(REPLICA_BYTES).expect("less than a segment");
        let end =
            if selection.is_some() { kept.len } else { kept.len.min(offset.saturating_add(piece)) };
        if offset >= kept.len {
            return Step::Complete(Outcome::Reply(answer(
                Status::Ok,
                false,
                0,
                0,
                Repeat::Reexecute,
            )));
        }
        let (len, written, is_written) = (kept.len, kept.written, kept.is_written());
        let stored = kept.stored(replica);
        if !is_written {
            // The read waits until everything received is on disk. If writing has failed, only the
            // bytes that are on disk can be read.
            let Some(failed) = self.failure() else { return Step::Wait };
            if end > written {
                let why = format!("{written} B of {len} are on disk: {failed}");
                return Step::Complete(self.refuse(&why));
            }
        }
        if !self.reads.shares.admits(reader.id.session()) {
            return Step::Wait;
        }
        let Some(at) = self.reads.find(word, stored.incarnation) else {
            let Ok(evicted) = self.reads.make_room(now) else {
                self.reads.crowded = true;
                return Step::Wait;
            };
            if let Some(contents) = evicted {
                self.backup.give_back(contents);
            }
            if self.backup.read(&stored) {
                let incarnation = stored.incarnation;
                let cached = Cached {
                    word,
                    incarnation,
                    contents: None,
                    sorted: None,
                    used: now,
                    finished: false,
                };
                self.reads.cached.push(cached);
            }
            return Step::Wait;
        };
        if self.reads.cached[at].contents.is_none() {
            return Step::Wait;
        }
        match selection {
            None => Step::Complete(self.reply_piece(
                now,
                at,
                (reader.id.session(), replica),
                offset as usize,
                len,
            )),
            Some(selection) => self.reply_selected(
                now,
                at,
                (reader.id.session(), replica),
                offset as usize,
                selection,
            ),
        }
    }

    /// Replies with a piece of a selection. Before the first piece, it sorts the segment, one slice
    /// in each call.
    fn reply_selected(
        &mut self,
        now: Nanos,
        at: usize,
        (session, replica): (u32, ReplicaId),
        offset: usize,
        selection: Selection<'_>,
    ) -> Step {
        let cached = &mut self.reads.cached[at];
        cached.used = now;
        let contents = cached.contents.as_mut().expect("it is in memory");
        if cached.sorted.as_ref().is_none_or(|sorted| sorted.seed() != selection.seed()) {
            let buffer = self.reads.spare.pop().unwrap_or_default();
            cached.sorted = Some(Box::new(Sorted::new(selection.seed(), contents, buffer)));
        }
        let sorted = cached.sorted.as_mut().expect("just made");
        if !sorted.is_done() {
            return match sorted.sort_slice(contents) {
                Ok(()) => Step::Continue,
                Err(unsorted) => {
                    Step::Complete(self.refuse_damaged(replica, &unsorted.to_string()))
                }
            };
        }
        let mut total = 0;
        let body = self
            .bodies
            .make_long(session, |out| total = sorted.copy(selection, offset, REPLICA_BYTES, out));
        let Some(body) = body else { return Step::Complete(Outcome::Retry(BUSY_MICROS)) };
        let len = self.bodies.bytes(body).len();
        let more = offset + len < total;
        if !more {
            sorted.ended += 1;
            // All servers that recover from the replica have the whole selection. If one of them
            // lost its connection and requests the replica again, the replica is read and sorted
            // again.
            if sorted.ended >= selection.askers()
                && let Some(contents) = self.reads.remove(at)
            {
                self.backup.give_back(contents);
            }
        }
        self.reads.answered(body, session);
        self.counts.read_bytes += len as u64;
        let reply = answer(Status::Ok, more, 0, total as u64, Repeat::Reexecute);
        Step::Complete(Outcome::Reply(reply.with_body(body)))
    }

    /// Marks a replica as damaged, and refuses the read that has found the damage.
    fn refuse_damaged(&mut self, replica: ReplicaId, damage: &str) -> Outcome<u32> {
        tracing::error!("{replica}: {damage}");
        self.counts.damaged += 1;
        if let Some(kept) = self.kept.get_mut(&replica.word()) {
            kept.mark_damaged(damage);
        }
        if let Some(contents) = self.reads.forget(replica.word()) {
            self.backup.give_back(contents);
        }
        self.refuse(damage)
    }

    /// Replies with a piece of a replica in memory.
    fn reply_piece(
        &mut self,
        now: Nanos,
        at: usize,
        (session, replica): (u32, ReplicaId),
        offset: usize,
        len: u32,
    ) -> Outcome<u32> {
        let Self { reads, bodies, .. } = self;
        let cached = &mut reads.cached[at];
        let contents = cached.contents.as_mut().expect("it is in memory");
        let mut copied = Ok(false);
        let body =
            bodies.make_long(session, |out| copied = contents.copy(offset, REPLICA_BYTES, out));
        let Some(body) = body else { return Outcome::Retry(BUSY_MICROS) };
        cached.used = now;
        match copied {
            Ok(_) => {
                let end = offset + bodies.bytes(body).len();
                let more = end < len as usize;
                cached.finished |= !more;
                reads.answered(body, session);
                self.counts.read_bytes += (end - offset) as u64;
                Outcome::Reply(answer(Status::Ok, more, 0, 0, Repeat::Reexecute).with_body(body))
            }
            Err(damage) => {
                bodies.release(body);
                self.refuse_damaged(replica, &damage.to_string())
            }
        }
    }
}
