//! Giving replicas to those who recover their master.
//!
//! Who recovers a segment asks for it in pieces of [`REPLICA_BYTES`]. The first to ask has it read
//! from disk as a whole; it stays in memory until all of it was asked for, or nobody has asked for
//! a while.

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

/// Most replicas in memory at a time, each up to 9 MB.
pub const MAX_CACHED: usize = 8;
const _: () = assert!(MAX_CACHED <= crate::backup::MAX_READS);

/// Most reads that wait. Beyond, they are turned away.
pub const MAX_READERS: usize = 256;

/// Most answers to reads, each up to [`REPLICA_BYTES`], that are on their way.
pub const MAX_ANSWERS: usize = 32;

/// How long a replica stays in memory that is not read on, when others want its place.
pub const HOLD: Duration = Duration::from_millis(200);

/// Answers made in one turn of the node: about a millisecond of its time each.
const ANSWERS_A_TURN: usize = 1;

/// A read that waits.
struct Reader {
    id: RequestId,
    replica: ReplicaId,
    offset: u32,
    /// Bytes of the [`Selection`], if not everything is wanted.
    selection: Option<Box<[u8]>>,
}

/// A replica in memory, or on its way there.
struct Cached {
    word: u64,
    incarnation: u32,
    /// `None` while the disk is at it.
    contents: Option<Contents>,
    /// The same sorted, since somebody wanted a part.
    sorted: Option<Box<Sorted>>,
    used: Nanos,
    /// Its last byte was asked for, by all who were to ask.
    finished: bool,
}

/// Reads that wait, and what they are answered from.
pub(super) struct Reads {
    waiting: VecDeque<Reader>,
    cached: Vec<Cached>,
    /// Bodies of answers on their way, and whose they are.
    answers: BTreeMap<u32, u32>,
    /// What each session has of them.
    shares: Shares,
    /// Somebody waits for a place in memory.
    crowded: bool,
    /// Memory for what will be sorted next, at most [`MAX_CACHED`].
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
    /// An answer is on its way.
    fn answered(&mut self, body: u32, session: u32) {
        self.shares.take(session);
        self.answers.insert(body, session);
    }

    /// The body of an answer is needed no longer.
    pub(super) fn released(&mut self, body: u32) {
        if let Some(session) = self.answers.remove(&body) {
            self.shares.give(session);
        }
    }

    /// Whether a read by this session may wait: it may have as many as are free, so that one server
    /// that reads much keeps none from reading.
    fn admits(&self, session: u32) -> bool {
        let own = self.waiting.iter().filter(|reader| reader.id.session() == session).count();
        own == 0 || own < MAX_READERS.saturating_sub(self.waiting.len())
    }

    /// Forgets a replica that is in memory. One that is being read is forgotten when it comes.
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

    /// When a place in memory may be taken from the replica that has it.
    pub(super) fn next_deadline(&self) -> Nanos {
        let ends = self
            .cached
            .iter()
            .filter(|cached| cached.contents.is_some())
            .map(|cached| cached.used + HOLD);
        if self.crowded { ends.min().unwrap_or(Nanos::NEVER) } else { Nanos::NEVER }
    }

    /// The place of a replica in memory.
    fn find(&self, word: u64, incarnation: u32) -> Option<usize> {
        self.cached
            .iter()
            .position(|cached| cached.word == word && cached.incarnation == incarnation)
    }

    /// Makes a place in memory, if there is one: what has been read to its end goes first, then
    /// what was not asked for longest, if that is long enough ago.
    fn make_place(&mut self, now: Nanos) -> Result<Option<Contents>, ()> {
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

/// What becomes of a read that waits.
enum Fate {
    /// It is answered.
    Answer(Outcome<u32>),
    /// Some of the work for it was done.
    GoOn,
    /// It waits on.
    Wait,
}

impl<D: Disk> Replicas<D> {
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
                "{replica} is still written: fence its master before reading it"
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

    /// Answers reads as far as that can be, in bounded work; returns whether there was any.
    pub(super) fn serve(&mut self, now: Nanos) -> bool {
        let mut worked = self.take_reads(now);
        self.reads.crowded = false;
        let mut answered = 0;
        for _ in 0..self.reads.waiting.len() {
            let Some(reader) = self.reads.waiting.pop_front() else { break };
            let fate =
                if answered == ANSWERS_A_TURN { Fate::Wait } else { self.decide(now, &reader) };
            match fate {
                Fate::Answer(outcome) => {
                    answered += 1;
                    self.ready.push_back((reader.id, outcome));
                }
                Fate::GoOn => {
                    answered += 1;
                    self.reads.waiting.push_front(reader);
                }
                Fate::Wait => self.reads.waiting.push_back(reader),
            }
        }
        worked |= answered > 0;
        if self.reads.is_idle() {
            self.reads.spare = Vec::new();
            self.backup.forget_buffers();
        }
        worked
    }

    /// Takes what the disk has read.
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
                // Freed meanwhile.
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

    /// Refuses all who wait for a replica.
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

    /// What is to become of a read now.
    fn decide(&mut self, now: Nanos, reader: &Reader) -> Fate {
        let Reader { replica, offset, .. } = *reader;
        let selection = reader
            .selection
            .as_deref()
            .map(|bytes| Selection::parse(bytes).expect("checked when it came"));
        let word = replica.word();
        let Some(kept) = self.kept.get(&word) else {
            return Fate::Answer(Outcome::Reply(answer(
                Status::NotFound,
                false,
                0,
                0,
                Repeat::Reexecute,
            )));
        };
        if let Some(why) = kept.damage() {
            let why = why.to_owned();
            return Fate::Answer(self.refuse(&why));
        }
        let piece = u32::try_from(REPLICA_BYTES).expect("less than a segment");
        let end =
            if selection.is_some() { kept.len } else { kept.len.min(offset.saturating_add(piece)) };
        if offset >= kept.len {
            return Fate::Answer(Outcome::Reply(answer(
                Status::Ok,
                false,
                0,
                0,
                Repeat::Reexecute,
            )));
        }
        let (len, written, settled) = (kept.len, kept.written, kept.is_written());
        let stored = kept.stored(replica);
        if !settled {
            // While it is being written it is not read; and when it cannot be, what the disk has of
            // it is.
            let Some(failed) = self.failure() else { return Fate::Wait };
            if end > written {
                let why = format!("{written} B of {len} are on disk: {failed}");
                return Fate::Answer(self.refuse(&why));
            }
        }
        if !self.reads.shares.admits(reader.id.session()) {
            return Fate::Wait;
        }
        let Some(at) = self.reads.find(word, stored.incarnation) else {
            let Ok(evicted) = self.reads.make_place(now) else {
                self.reads.crowded = true;
                return Fate::Wait;
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
            return Fate::Wait;
        };
        if self.reads.cached[at].contents.is_none() {
            return Fate::Wait;
        }
        match selection {
            None => Fate::Answer(self.give(
                now,
                at,
                (reader.id.session(), replica),
                offset as usize,
                len,
            )),
            Some(selection) => self.give_selected(
                now,
                at,
                (reader.id.session(), replica),
                offset as usize,
                selection,
            ),
        }
    }

    /// Answers with a part, when all is sorted; sorts some of it before.
    fn give_selected(
        &mut self,
        now: Nanos,
        at: usize,
        (session, replica): (u32, ReplicaId),
        offset: usize,
        selection: Selection<'_>,
    ) -> Fate {
        let cached = &mut self.reads.cached[at];
        cached.used = now;
        let contents = cached.contents.as_mut().expect("it is in memory");
        if cached.sorted.as_ref().is_none_or(|sorted| sorted.seed() != selection.seed()) {
            let buffer = self.reads.spare.pop().unwrap_or_default();
            cached.sorted = Some(Box::new(Sorted::new(selection.seed(), contents, buffer)));
        }
        let sorted = cached.sorted.as_mut().expect("just made");
        if !sorted.is_done() {
            return match sorted.go_on(contents) {
                Ok(()) => Fate::GoOn,
                Err(unsorted) => Fate::Answer(self.found_damaged(replica, &unsorted.to_string())),
            };
        }
        let mut total = 0;
        let body = self
            .bodies
            .make_long(session, |out| total = sorted.copy(selection, offset, REPLICA_BYTES, out));
        let Some(body) = body else { return Fate::Answer(Outcome::Retry(BUSY_MICROS)) };
        let len = self.bodies.bytes(body).len();
        let more = offset + len < total;
        if !more {
            sorted.ended += 1;
            // Whoever asks again, as it was cut off, has it read and sorted again.
            if sorted.ended >= selection.askers()
                && let Some(contents) = self.reads.remove(at)
            {
                self.backup.give_back(contents);
            }
        }
        self.reads.answered(body, session);
        self.counts.read_bytes += len as u64;
        let told = answer(Status::Ok, more, 0, total as u64, Repeat::Reexecute);
        Fate::Answer(Outcome::Reply(told.with_body(body)))
    }

    /// A replica is not what was written. Returns the answer to whoever asked.
    fn found_damaged(&mut self, replica: ReplicaId, damage: &str) -> Outcome<u32> {
        tracing::error!("{replica}: {damage}");
        self.counts.damaged += 1;
        if let Some(kept) = self.kept.get_mut(&replica.word()) {
            kept.spoil(damage);
        }
        if let Some(contents) = self.reads.forget(replica.word()) {
            self.backup.give_back(contents);
        }
        self.refuse(damage)
    }

    /// Answers from memory.
    fn give(
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
                self.found_damaged(replica, &damage.to_string())
            }
        }
    }
}
