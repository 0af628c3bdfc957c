//! Replicas of sealed segments that are lost with the server that kept them: made anew on others,
//! from the log's memory, while what is open goes first.
//!
//! What a replica made anew holds is a *copy* ([`sprat_log::SegmentCopy`]): what counted of the
//! segment when the copy began. It is another edition of the segment for the backup, which does not
//! take its bytes for those of the one before; it counts when it is sealed, and it is sealed when
//! the log is durable up to where it was when the copy began: see [decision 15](../../../../../
//! docs/decisions/0015-replicas-and-leases.md).

use super::{Purpose, Replicator, begin, draw};
use crate::node::Caller;
use sprat_log::{Log, SegmentCopy};
use sprat_net::Nanos;
use sprat_wire::op::{BackupRequest, MAX_EDITION, ReplicaId};
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

/// Bytes of copies that leave a master in a second at most.
pub const HEAL_BYTES_A_SECOND: u64 = 64 << 20;

/// Copies under way at once: each keeps a segment from the cleaner.
pub const MAX_HEALING: usize = 2;

/// Bytes of a copy in one request, at least: about a millisecond's worth. The last entry comes on
/// top.
const PIECE_BYTES: usize = 64 << 10;

/// When to look again after nothing could be begun.
const RETRY: Duration = Duration::from_millis(100);

/// When to look again after something else went first.
const PAUSE: Duration = Duration::from_millis(5);

/// Segments that are looked at to begin one.
const LOOKS: usize = 64;

/// Where the replicas of a segment are that is sealed and durable.
pub(super) struct Closed {
    /// Who has a whole one.
    pub(super) servers: Vec<u32>,
    /// Who may have a part of one, for nothing.
    pub(super) given_up: Vec<u32>,
    /// The latest edition of it that was begun.
    pub(super) edition: u8,
}

/// A copy on its way to a backup.
struct Job {
    segment: u64,
    server: u32,
    edition: u8,
    copy: SegmentCopy,
    /// What is to be sent next, and whether it is the last.
    piece: Vec<u8>,
    at_end: bool,
    sent: usize,
    under_way: bool,
}

/// What is to be made anew, and what is under way.
#[derive(Default)]
pub(super) struct Healer {
    /// Closed segments with fewer replicas than there should be.
    short: BTreeSet<u64>,
    jobs: Vec<Job>,
    /// When the next piece may leave, and when the next copy may begin.
    send_at: Nanos,
    begin_at: Nanos,
    /// The segment that was looked at last.
    looked: u64,
}

impl Healer {
    /// How many segments have fewer replicas than they should.
    pub(super) fn short(&self) -> usize {
        self.short.len()
    }

    /// A segment has fewer replicas than it should.
    pub(super) fn is_short(&mut self, segment: u64) {
        self.short.insert(segment);
    }

    /// A segment is gone.
    pub(super) fn forget(&mut self, segment: u64) {
        self.short.remove(&segment);
        debug_assert!(self.jobs.iter().all(|job| job.segment != segment), "what is copied stays");
    }

    fn may_begin(&self) -> bool {
        self.jobs.len() < MAX_HEALING && self.short.len() > self.jobs.len()
    }

    /// When there is something to do although nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let sends = self.jobs.iter().any(|job| !job.under_way).then_some(self.send_at);
        let begins = self.may_begin().then_some(self.begin_at);
        [sends, begins].into_iter().flatten().min()
    }

    fn take(&mut self, (segment, server, edition): (u64, u32, u8)) -> Option<Job> {
        let is = |job: &Job| (job.segment, job.server, job.edition) == (segment, server, edition);
        let at = self.jobs.iter().position(is)?;
        Some(self.jobs.swap_remove(at))
    }
}

impl Replicator {
    /// Closed segments and who has a whole replica of each.
    pub fn closed(&self) -> impl Iterator<Item = (u64, &[u32])> {
        self.closed.iter().map(|(&segment, closed)| (segment, &closed.servers[..]))
    }

    /// Takes note of the replicas that went with servers that are gone.
    pub(super) fn miss(&mut self) {
        let Self { closed, peers, healer, copies, .. } = self;
        for (&segment, closed) in closed {
            closed.given_up.retain(|&server| peers.contains(server));
            closed.servers.retain(|&server| peers.contains(server));
            if closed.servers.len() < *copies {
                healer.is_short(segment);
            }
        }
    }

    /// Goes on with copies, and begins some, unless something that is open lacks a replica.
    pub(super) fn heal(&mut self, now: Nanos, log: &mut Log, caller: &mut dyn Caller) {
        if self.healer.next_deadline().is_none_or(|at| at > now) {
            return;
        }
        if self.open.values().any(|open| open.tainted || open.replicas.len() < self.copies) {
            (self.healer.send_at, self.healer.begin_at) = (now + PAUSE, now + PAUSE);
            return;
        }
        let gone = self.healer.jobs.iter().filter(|job| !self.peers.contains(job.server));
        let gone: Vec<_> = gone.map(|job| (job.segment, job.server, job.edition)).collect();
        for job in gone.into_iter().filter_map(|job| self.healer.take(job)) {
            log.end_copy(job.copy);
        }
        if self.healer.may_begin() && self.healer.begin_at <= now && !self.begin_copy(now, log) {
            self.healer.begin_at = now + RETRY;
        }
        if self.healer.send_at <= now {
            self.send_copies(now, log, caller);
        }
    }

    /// Begins to copy a segment that is short of replicas, if one can be copied and there is
    /// somebody to take it.
    fn begin_copy(&mut self, now: Nanos, log: &mut Log) -> bool {
        let Self { healer, closed, peers, chance, .. } = self;
        let short = &healer.short;
        let row =
            short.range((Excluded(healer.looked), Unbounded)).chain(short.range(..=healer.looked));
        let row: Vec<u64> = row.take(LOOKS).copied().collect();
        let mut leaving = false;
        for segment in row {
            healer.looked = segment;
            if healer.jobs.iter().any(|job| job.segment == segment) {
                continue;
            }
            let closed = closed.get_mut(&segment).expect("what is short is closed");
            let mut not = closed.servers.clone();
            if closed.edition == MAX_EDITION {
                not.extend(&closed.given_up);
            }
            let Some(server) = peers.choose_willing(now, &not, |choices| draw(chance, choices))
            else {
                continue;
            };
            let Some(copy) = log.begin_copy(segment) else {
                peers.release(server);
                leaving = true;
                continue;
            };
            let again = closed.given_up.contains(&server);
            closed.edition = if again { closed.edition + 1 } else { closed.edition.max(1) };
            let edition = closed.edition;
            let (piece, at_end, sent, under_way) = (Vec::new(), false, 0, false);
            healer.jobs.push(Job {
                segment,
                server,
                edition,
                copy,
                piece,
                at_end,
                sent,
                under_way,
            });
            return true;
        }
        // What cannot be copied is about to go, if only the next head comes.
        leaving && log.release_combined()
    }

    /// Sends the next piece of a copy.
    fn send_copies(&mut self, now: Nanos, log: &mut Log, caller: &mut dyn Caller) {
        let Self { healer, peers, calls, counts, master, .. } = self;
        let Healer { jobs, send_at, .. } = healer;
        // In turns: whoever was sent goes to the end.
        let Some(at) = jobs.iter().position(|job| !job.under_way) else { return };
        let mut job = jobs.remove(at);
        if job.piece.is_empty() && !job.at_end {
            job.at_end = !log.continue_copy(&mut job.copy, PIECE_BYTES, &mut job.piece);
        }
        let sealed = job.piece.is_empty();
        let is_due = !sealed || log.durable_position() >= job.copy.position();
        let session = peers.session(job.server, caller).filter(|_| is_due);
        let request = BackupRequest::Write {
            replica: ReplicaId { master: *master, segment: job.segment },
            offset: u32::try_from(job.sent).expect("within a segment"),
            sealed,
            replacement: !sealed,
            edition: job.edition,
            bytes: &[],
        };
        let bytes = [&job.piece[..]];
        let slices = if sealed { &[][..] } else { &bytes };
        let call = session.and_then(|session| begin(caller, session, request, slices, now));
        match call {
            Some(call) => {
                let Job { segment, server, edition, .. } = job;
                calls.insert(call, Purpose::Heal { job: (segment, server, edition), sealed });
                let len = job.piece.len() as u64;
                counts.healed_bytes += len;
                *send_at = (*send_at).max(now)
                    + Duration::from_nanos(len * 1_000_000_000 / HEAL_BYTES_A_SECOND);
                job.sent += job.piece.len();
                job.piece.clear();
                job.under_way = true;
            }
            None => *send_at = now + PAUSE,
        }
        jobs.push(job);
    }

    /// A backup has taken a piece of a copy, or has not; with this one it is `whole`.
    pub(super) fn copied(
        &mut self,
        now: Nanos,
        job: (u64, u32, u8),
        whole: bool,
        taken: Result<(), &str>,
        log: &mut Log,
    ) {
        let (segment, server, _) = job;
        match taken {
            Ok(()) => self.peers.trust(server),
            Err(why) => self.peers.shun(server, now, why),
        }
        let taken = taken.is_ok();
        if taken && !whole {
            let jobs = &mut self.healer.jobs;
            if let Some(found) =
                jobs.iter_mut().find(|found| (found.segment, found.server, found.edition) == job)
            {
                found.under_way = false;
            }
            return;
        }
        // Of one that was given up meanwhile nobody waits for anything.
        let Some(ended) = self.healer.take(job) else { return };
        log.end_copy(ended.copy);
        self.peers.release(server);
        let closed = self.closed.get_mut(&segment).expect("what is copied stays");
        // Who answered may have been declared dead since, and what it has counts for nobody.
        let is_member = self.peers.contains(server);
        if taken && is_member {
            self.counts.healed += 1;
            closed.given_up.retain(|&other| other != server);
            closed.servers.push(server);
            if closed.servers.len() >= self.copies {
                self.healer.short.remove(&segment);
            }
        } else if is_member && !closed.given_up.contains(&server) {
            closed.given_up.push(server);
        }
        self.healer.begin_at = now;
    }
}
