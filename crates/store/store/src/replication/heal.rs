//! Re-replicates sealed segments whose replicas were lost with the servers that kept them. The new
//! replicas are on other servers, and their bytes come from the log in memory. Replicas of open
//! segments are sent first.
//!
//! The new replica holds a *copy* ([`sprat_log::SegmentCopy`]): the entries of the segment that
//! were live when the copy began. It has another edition than earlier replicas of the segment, so
//! that a backup does not mix their bytes. The copy counts once it is sealed. It is sealed once the
//! log is durable up to the position that the log had when the copy began: see
//! [decision 15](../../../../../docs/decisions/0015-replicas-and-leases.md).

use super::{Purpose, Replicator, begin, draw_index};
use crate::node::Caller;
use sprat_log::{Log, SegmentCopy};
use sprat_net::Nanos;
use sprat_wire::op::{BackupRequest, MAX_EDITION, ReplicaId};
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

/// Limit on the rate at which a master sends copies of segments, in bytes per second.
pub const RE_REPLICATION_BYTES_PER_SECOND: u64 = 64 << 20;

/// The largest number of copies in progress at once. Each copy keeps the cleaner from its segment.
pub const MAX_RE_REPLICATIONS: usize = 2;

/// Bytes of a copy in one request: about a millisecond's worth. The entry that reaches this limit
/// is sent whole.
const PIECE_BYTES: usize = 64 << 10;

/// Delay before the next search for a copy to begin, after a search found none.
const RETRY: Duration = Duration::from_millis(100);

/// Delay before the next attempt when an open segment lacks a replica, or a piece could not be
/// sent.
const PAUSE: Duration = Duration::from_millis(5);

/// The largest number of segments tried in one search for a copy to begin.
const LOOKS: usize = 64;

/// The replicas of a segment that is sealed and durable.
pub(super) struct SealedSegment {
    /// The servers with a whole replica.
    pub(super) servers: Vec<u32>,
    /// Servers that may have a part of a replica; such a part does not count.
    pub(super) given_up: Vec<u32>,
    /// The latest edition that was begun.
    pub(super) edition: u8,
}

/// Identifies a copy under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct JobId {
    segment: u64,
    /// The backup that receives the copy.
    server: u32,
    edition: u8,
}

/// A copy that is being sent to a backup.
struct Job {
    id: JobId,
    copy: SegmentCopy,
    /// The bytes to send next.
    piece: Vec<u8>,
    /// Whether `piece` ends the copy.
    at_end: bool,
    sent: usize,
    under_way: bool,
}

/// The segments to re-replicate, and the copies under way.
#[derive(Default)]
pub(super) struct ReReplicator {
    /// Sealed segments with fewer replicas than there should be.
    short: BTreeSet<u64>,
    jobs: Vec<Job>,
    /// When the next piece may be sent.
    send_at: Nanos,
    /// When the next copy may begin.
    begin_at: Nanos,
    /// The segment at which the last search ended.
    looked: u64,
}

impl ReReplicator {
    /// Returns the number of sealed segments with fewer replicas than they should have.
    pub(super) fn under_replicated(&self) -> usize {
        self.short.len()
    }

    /// Adds a sealed segment with fewer replicas than it should have.
    pub(super) fn add(&mut self, segment: u64) {
        self.short.insert(segment);
    }

    /// Removes a segment whose replicas the log no longer needs.
    pub(super) fn forget(&mut self, segment: u64) {
        self.short.remove(&segment);
        debug_assert!(
            self.jobs.iter().all(|job| job.id.segment != segment),
            "what is copied stays"
        );
    }

    fn may_begin(&self) -> bool {
        self.jobs.len() < MAX_RE_REPLICATIONS && self.short.len() > self.jobs.len()
    }

    /// Returns the time at which there is something to do even if nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let sends = self.jobs.iter().any(|job| !job.under_way).then_some(self.send_at);
        let begins = self.may_begin().then_some(self.begin_at);
        [sends, begins].into_iter().flatten().min()
    }

    fn take(&mut self, id: JobId) -> Option<Job> {
        let at = self.jobs.iter().position(|job| job.id == id)?;
        Some(self.jobs.swap_remove(at))
    }
}

impl Replicator {
    /// Returns the sealed segments, each with the servers that have a whole replica of it.
    pub fn sealed_segments(&self) -> impl Iterator<Item = (u64, &[u32])> {
        self.sealed_segments.iter().map(|(&segment, sealed)| (segment, &sealed.servers[..]))
    }

    /// Drops the replicas on servers that have left, and has their segments re-replicated.
    pub(super) fn note_lost_replicas(&mut self) {
        let Self { sealed_segments, peers, re_replicator, copies, .. } = self;
        for (&segment, sealed) in sealed_segments {
            sealed.given_up.retain(|&server| peers.contains(server));
            sealed.servers.retain(|&server| peers.contains(server));
            if sealed.servers.len() < *copies {
                re_replicator.add(segment);
            }
        }
    }

    /// Continues copies, and begins one if it may, unless an open segment lacks a replica.
    pub(super) fn re_replicate(&mut self, now: Nanos, log: &mut Log, caller: &mut dyn Caller) {
        if self.re_replicator.next_deadline().is_none_or(|at| at > now) {
            return;
        }
        if self.open.values().any(|open| open.tainted || open.replicas.len() < self.copies) {
            (self.re_replicator.send_at, self.re_replicator.begin_at) = (now + PAUSE, now + PAUSE);
            return;
        }
        let jobs = self.re_replicator.jobs.iter().map(|job| job.id);
        let gone: Vec<JobId> = jobs.filter(|id| !self.peers.contains(id.server)).collect();
        for job in gone.into_iter().filter_map(|id| self.re_replicator.take(id)) {
            log.end_copy(job.copy);
        }
        if self.re_replicator.may_begin()
            && self.re_replicator.begin_at <= now
            && !self.begin_copy(now, log)
        {
            self.re_replicator.begin_at = now + RETRY;
        }
        if self.re_replicator.send_at <= now {
            self.send_copies(now, log, caller);
        }
    }

    /// Begins a copy of a segment with too few replicas, if one of these segments can be copied and
    /// a backup can take the copy. Returns whether another search is worthwhile at once.
    fn begin_copy(&mut self, now: Nanos, log: &mut Log) -> bool {
        let Self { re_replicator, sealed_segments, peers, chance, .. } = self;
        let short = &re_replicator.short;
        let row = short
            .range((Excluded(re_replicator.looked), Unbounded))
            .chain(short.range(..=re_replicator.looked));
        let row: Vec<u64> = row.take(LOOKS).copied().collect();
        let mut leaving = false;
        for segment in row {
            re_replicator.looked = segment;
            if re_replicator.jobs.iter().any(|job| job.id.segment == segment) {
                continue;
            }
            let sealed = sealed_segments.get_mut(&segment).expect("what is short is closed");
            let mut exclude = sealed.servers.clone();
            if sealed.edition == MAX_EDITION {
                exclude.extend(&sealed.given_up);
            }
            let Some(server) =
                peers.choose_healthy(now, &exclude, |choices| draw_index(chance, choices))
            else {
                continue;
            };
            let Some(copy) = log.begin_copy(segment) else {
                peers.release(server);
                leaving = true;
                continue;
            };
            let again = sealed.given_up.contains(&server);
            sealed.edition = if again { sealed.edition + 1 } else { sealed.edition.max(1) };
            let id = JobId { segment, server, edition: sealed.edition };
            let (piece, at_end, sent, under_way) = (Vec::new(), false, 0, false);
            re_replicator.jobs.push(Job { id, copy, piece, at_end, sent, under_way });
            return true;
        }
        // A segment that cannot be copied is about to be freed; it can be freed only after another
        // head.
        leaving && log.release_combined()
    }

    /// Sends the next piece of one copy, or its seal.
    fn send_copies(&mut self, now: Nanos, log: &mut Log, caller: &mut dyn Caller) {
        let Self { re_replicator, peers, calls, counts, master, .. } = self;
        let ReReplicator { jobs, send_at, .. } = re_replicator;
        // Round robin: the job goes to the end of the list below.
        let Some(at) = jobs.iter().position(|job| !job.under_way) else { return };
        let mut job = jobs.remove(at);
        if job.piece.is_empty() && !job.at_end {
            job.at_end = !log.continue_copy(&mut job.copy, PIECE_BYTES, &mut job.piece);
        }
        let sealed = job.piece.is_empty();
        let is_due = !sealed || log.durable_position() >= job.copy.position();
        let session = peers.session(job.id.server, caller).filter(|_| is_due);
        let request = BackupRequest::Write {
            replica: ReplicaId { master: *master, segment: job.id.segment },
            offset: u32::try_from(job.sent).expect("within a segment"),
            sealed,
            replacement: !sealed,
            edition: job.id.edition,
            bytes: &[],
        };
        let bytes = [&job.piece[..]];
        let slices = if sealed { &[][..] } else { &bytes };
        let call = session.and_then(|session| begin(caller, session, request, slices, now));
        match call {
            Some(call) => {
                calls.insert(call, Purpose::ReReplicate { job: job.id, sealed });
                let len = job.piece.len() as u64;
                counts.re_replicated_bytes += len;
                *send_at = (*send_at).max(now)
                    + Duration::from_nanos(len * 1_000_000_000 / RE_REPLICATION_BYTES_PER_SECOND);
                job.sent += job.piece.len();
                job.piece.clear();
                job.under_way = true;
            }
            None => *send_at = now + PAUSE,
        }
        jobs.push(job);
    }

    /// Handles the reply to a piece of a copy. `whole` says whether the backup has a whole replica
    /// once it has accepted this piece.
    pub(super) fn copy_progressed(
        &mut self,
        now: Nanos,
        id: JobId,
        whole: bool,
        accepted: Result<(), &str>,
        log: &mut Log,
    ) {
        let JobId { segment, server, .. } = id;
        match accepted {
            Ok(()) => self.peers.mark_healthy(server),
            Err(why) => self.peers.back_off(server, now, why),
        }
        let accepted = accepted.is_ok();
        if accepted && !whole {
            if let Some(job) = self.re_replicator.jobs.iter_mut().find(|job| job.id == id) {
                job.under_way = false;
            }
            return;
        }
        // The job is gone if it was given up meanwhile.
        let Some(ended) = self.re_replicator.take(id) else { return };
        log.end_copy(ended.copy);
        self.peers.release(server);
        let sealed = self.sealed_segments.get_mut(&segment).expect("what is copied stays");
        // The backup may have been declared dead meanwhile. In this case its replica does not
        // count.
        let is_peer = self.peers.contains(server);
        if accepted && is_peer {
            self.counts.re_replicated += 1;
            sealed.given_up.retain(|&other| other != server);
            sealed.servers.push(server);
            if sealed.servers.len() >= self.copies {
                self.re_replicator.short.remove(&segment);
            }
        } else if is_peer && !sealed.given_up.contains(&server) {
            sealed.given_up.push(server);
        }
        self.re_replicator.begin_at = now;
    }
}
