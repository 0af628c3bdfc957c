//! A recovery, as a live server runs it: it fences the dead master at every backup, finds the
//! segments of its log, reads them, and writes the live entries into its own log.

use super::completions::{Completions, WrittenCompletion};
use super::plan::{Inventory, Lost, SegmentSource};
use super::segment::{BadReplica, Loading};
use crate::expected::PrefetchQueue;
use crate::node::Caller;
use crate::replication::BackupServer;
use sprat_log::{Full, Log};
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, SessionId};
use sprat_wire::SEGMENT_BYTES;
use sprat_wire::entry::{Entry, Kind};
use sprat_wire::once::{COMPLETIONS, Completion};
use sprat_wire::op::{
    Answer, BackupRequest, Records, RecoveryOrder, ReplicaId, Request, Selection, Status,
};
use sprat_wire::tablet::{Tablet, table_of};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;
use thiserror::Error;
use zerocopy::IntoBytes;

/// The largest number of segments being read or replayed at once.
const READ_AHEAD: usize = 4;

/// The largest number of entries replayed, or of completions written, in one call of
/// [`Recovery::work`].
const SLICE_ENTRIES: usize = 1000;

/// The number of entries by which a prefetch is ahead of the replay.
const AHEAD: usize = 16;

/// Number of entries from the prefetch of a key's line in the hash table to the prefetch of the
/// entry that the line points to.
const NEARER: usize = 8;

/// Timeout of a request to a backup.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a recovery has failed. The server begins it again.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum RecoveryFailure {
    /// A part of the log was not found.
    #[error("server {master}'s log is incomplete: {lost}; {silent} backups do not answer")]
    Lost {
        /// The master that wrote the log.
        master: u32,
        /// The part that is missing.
        lost: Lost,
        /// The number of backups that did not answer the fence, or refused it.
        silent: usize,
    },
    /// This server has no memory left for the tablets of the master.
    #[error("the tables of server {0} do not fit into this server's memory")]
    Full(u32),
}

/// The result of a recovery.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RecoveryReport {
    /// Segments read.
    pub segments: u64,
    /// Bytes of log read.
    pub bytes: u64,
    /// Entries replayed.
    pub entries: u64,
    /// Objects written into the log here.
    pub objects: u64,
    /// Invalid replicas: backup, segment and fault of each. If the recovery succeeded, other
    /// replicas were read instead.
    pub bad: Vec<(u32, u64, BadReplica)>,
    /// Heads of which the last second may be missing, because the backups with their replicas lost
    /// their memory.
    pub unsure: Vec<u64>,
}

/// How far a recovery has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RecoveryProgress {
    /// The name of the recovery's stage, a single word.
    pub stage: &'static str,
    /// Segments that were read.
    pub done: u64,
    /// Segments to read or replay, as far as is known.
    pub left: u64,
}

enum Purpose {
    Fence { server: u32 },
    Header { server: u32 },
    Read { segment: u64, server: u32 },
}

enum Stage {
    /// Fences are sent to backups, which reply with their replicas.
    Fencing,
    /// The header of the newest head is being read.
    Header(SegmentSource),
    /// Segments are being read and replayed.
    Replaying,
    /// All objects are written; the completions are being written.
    Completing,
    /// Everything is written, and must become durable up to this position.
    Settling(u64),
    Ended,
}

/// A recovery of some tablets of a dead master, which the coordinator has ordered.
///
/// The master of the live server drives it from the loop of its node. At each iteration it calls
/// [`call`](Self::call), which begins calls to backups, [`completed`](Self::completed) for each
/// reply, and [`work`](Self::work), which replays about a millisecond's worth of entries into the
/// server's own log. The recovery has ended when [`outcome`](Self::outcome) returns a result: on
/// success, everything is durable. Up to four segments are in memory at a time.
///
/// A recovery that has failed may have left objects in the log
/// ([`has_written`](Self::has_written)). The caller must drop these objects, and the completions
/// that [`take_completed`](Self::take_completed) returns. It should close the sessions that
/// [`take_sessions`](Self::take_sessions) returns.
pub struct Recovery {
    order: RecoveryOrder,
    /// The encoded [`Selection`] of the tablets to recover.
    selection: Vec<u8>,
    backups: BTreeMap<u32, (BackupServer, Option<SessionId>)>,
    stage: Stage,
    /// Backups to which no fence was sent yet.
    unfenced: VecDeque<u32>,
    /// The number of backups that did not answer the fence, or refused it.
    silent: usize,
    inventory: Inventory,
    /// The newest head.
    head: u64,
    /// The lowest version for objects that are written after the recovery.
    safe_version: u64,
    waiting: VecDeque<SegmentSource>,
    loading: VecDeque<Loading>,
    /// Buffers of segments that are done, to be reused.
    spare: Vec<Vec<u8>>,
    calls: HashMap<CallId, Purpose>,
    /// Prefetches the entries that will be replayed next.
    expected: PrefetchQueue<NEARER>,
    /// The version up to which an object was removed, by table and key.
    tombstones: HashMap<(u32, Box<[u8]>), u64>,
    /// Whether objects were left out that have expired, and their tables have no time record yet.
    expired: bool,
    completions: Completions,
    /// Completions written so far.
    completed: Vec<WrittenCompletion>,
    report: RecoveryReport,
    failure: Option<RecoveryFailure>,
}

impl Recovery {
    /// Begins a recovery. `servers` are all servers with a backup, including this one. Keys are
    /// hashed with `seed`.
    #[must_use]
    pub fn new(order: RecoveryOrder, servers: &[BackupServer], seed: u64) -> Self {
        let selection =
            Selection::encode(seed, order.askers, order.tablets.iter().map(|&(tablet, _)| tablet));
        let backups: BTreeMap<_, _> =
            servers.iter().map(|&server| (server.server, (server, None))).collect();
        Self {
            unfenced: backups.keys().copied().collect(),
            order,
            selection,
            backups,
            stage: Stage::Fencing,
            silent: 0,
            inventory: Inventory::default(),
            head: 0,
            safe_version: 0,
            waiting: VecDeque::new(),
            loading: VecDeque::new(),
            spare: Vec::new(),
            calls: HashMap::new(),
            expected: PrefetchQueue::default(),
            tombstones: HashMap::new(),
            expired: false,
            completions: Completions::default(),
            completed: Vec::new(),
            report: RecoveryReport::default(),
            failure: None,
        }
    }

    /// Returns the recovery's result; `None` until the recovery has ended.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<&RecoveryReport, &RecoveryFailure>> {
        matches!(self.stage, Stage::Ended)
            .then(|| self.failure.as_ref().map_or(Ok(&self.report), Err))
    }

    /// Takes the recovery's sessions with backups. The caller closes them when the recovery has
    /// ended, or before it drops the recovery.
    pub fn take_sessions(&mut self) -> impl Iterator<Item = SessionId> {
        self.backups.values_mut().filter_map(|(_, session)| session.take())
    }

    /// Returns how far the recovery has come.
    #[must_use]
    pub fn progress(&self) -> RecoveryProgress {
        let stage = match self.stage {
            Stage::Fencing => "fencing",
            Stage::Header(_) => "searching",
            Stage::Replaying => "replaying",
            Stage::Completing => "completing",
            Stage::Settling(_) => "settling",
            Stage::Ended => "ended",
        };
        let left = (self.waiting.len() + self.loading.len()) as u64;
        RecoveryProgress { stage, done: self.report.segments, left }
    }

    /// Describes the recovery's state, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        let stage = match &self.stage {
            Stage::Fencing => "fencing".to_owned(),
            Stage::Header(source) => format!("reading the header of {source:?}"),
            Stage::Replaying => {
                format!("replaying, {} to be read", self.waiting.len() + self.loading.len())
            }
            Stage::Completing => format!("{} completions to be written", self.completions.len()),
            Stage::Settling(position) => format!("until position {position} is durable"),
            Stage::Ended => format!("ended, {:?}", self.failure),
        };
        format!(
            "{stage}, {} calls under way, {} silent, {:?}",
            self.calls.len(),
            self.silent,
            self.report
        )
    }

    fn fail(&mut self, failure: RecoveryFailure) {
        (self.stage, self.failure) = (Stage::Ended, Some(failure));
        self.loading.clear();
        self.spare.clear();
        self.tombstones.clear();
        self.completions = Completions::default();
    }

    /// Takes the completions that the recovery has written and that must be removed if it is given
    /// up.
    pub fn take_completed(&mut self) -> Vec<WrittenCompletion> {
        std::mem::take(&mut self.completed)
    }

    /// Returns whether the recovery has written objects into this server's log, or completions that
    /// must be removed if it is given up.
    #[must_use]
    pub fn has_written(&self) -> bool {
        self.report.objects > 0 || !self.completed.is_empty()
    }

    fn fail_lost(&mut self, lost: Lost) {
        self.fail(RecoveryFailure::Lost { master: self.order.master, lost, silent: self.silent });
    }

    /// Replays some entries, writes some completions, or notices that everything is durable.
    /// Returns whether another call at once may do more.
    pub fn work(&mut self, log: &mut Log) -> bool {
        match self.stage {
            Stage::Replaying => self.replay(log),
            Stage::Completing => self.complete(log),
            Stage::Settling(position) if log.durable_position() >= position => {
                self.stage = Stage::Ended;
                true
            }
            Stage::Fencing | Stage::Header(_) | Stage::Settling(_) | Stage::Ended => false,
        }
    }

    /// Begins the calls to backups that are due.
    pub fn call(&mut self, now: Nanos, caller: &mut dyn Caller) {
        let master = self.order.master;
        match &self.stage {
            Stage::Fencing => {
                while let Some(server) = self.unfenced.pop_front() {
                    let request = BackupRequest::Fence { master };
                    self.send(now, server, request, Purpose::Fence { server }, caller);
                }
                self.find_head();
            }
            Stage::Header(source) if self.calls.is_empty() => {
                let (segment, server) = (source.segment, source.servers[0]);
                let request =
                    BackupRequest::Read { replica: ReplicaId { master, segment }, offset: 0 };
                self.send(now, server, request, Purpose::Header { server }, caller);
            }
            Stage::Replaying => {
                while self.loading.len() < READ_AHEAD
                    && let Some(source) = self.waiting.pop_front()
                {
                    let buffer = self.spare.pop().unwrap_or_default();
                    self.loading.push_back(Loading::new(source, buffer));
                }
                for at in 0..self.loading.len() {
                    let loading = &mut self.loading[at];
                    if loading.under_way || loading.is_whole() {
                        continue;
                    }
                    loading.under_way = true;
                    let (segment, server) = (loading.source.segment, loading.source.servers[0]);
                    let offset = u32::try_from(loading.bytes.len()).expect("within a segment");
                    let selection = std::mem::take(&mut self.selection);
                    let parsed = Selection::parse(&selection).expect("made by encoding one");
                    let replica = ReplicaId { master, segment };
                    let request = BackupRequest::Select { replica, offset, selection: parsed };
                    self.send(now, server, request, Purpose::Read { segment, server }, caller);
                    self.selection = selection;
                }
            }
            Stage::Header(_) | Stage::Completing | Stage::Settling(_) | Stage::Ended => {}
        }
    }

    fn send(
        &mut self,
        now: Nanos,
        server: u32,
        request: BackupRequest<'_>,
        purpose: Purpose,
        caller: &mut dyn Caller,
    ) {
        let (backup, session) =
            self.backups.get_mut(&server).expect("one of those that were given");
        if session.is_none() {
            *session = caller.connect(backup.address).ok();
        }
        let (header, _, bytes) = Request::Backup(request).parts();
        let parts = [header.as_bytes(), bytes];
        let call = session.and_then(|session| caller.call(session, &parts, now + PATIENCE).ok());
        match call {
            Some(call) => {
                self.calls.insert(call, purpose);
            }
            None => self.answered(purpose, None),
        }
    }

    /// Handles the end of a call. Returns whether the call was one of this recovery.
    pub fn completed(&mut self, call: CallId, result: Result<&[u8], CallFailure>) -> bool {
        let Some(purpose) = self.calls.remove(&call) else { return false };
        if !matches!(self.stage, Stage::Ended) {
            self.answered(
                purpose,
                result.ok().and_then(Answer::parse).filter(|answer| answer.status == Status::Ok),
            );
        }
        true
    }

    /// Handles the reply of a backup; `None` if there is none.
    fn answered(&mut self, purpose: Purpose, answer: Option<Answer<'_>>) {
        match purpose {
            Purpose::Fence { server } => {
                let Some(answer) = answer else {
                    self.silent += 1;
                    return;
                };
                let mut records = Records::new(answer.body);
                let list = std::iter::from_fn(|| records.replica());
                self.inventory.add(server, list);
            }
            Purpose::Header { server } => self.header(server, answer),
            Purpose::Read { segment, server } => self.read(segment, server, answer),
        }
    }

    /// Finds the newest head, once each backup has answered the fence or failed to answer. If the
    /// master never began a log, the recovery needs no head, and ends.
    fn find_head(&mut self) {
        if !matches!(self.stage, Stage::Fencing) || !self.calls.is_empty() {
            return;
        }
        if self.order.min_open == 0 {
            // The master never began a log, so it acknowledged nothing.
            self.stage = Stage::Settling(0);
            return;
        }
        match self.inventory.newest_head() {
            Some(source) => {
                self.head = source.segment;
                self.stage = Stage::Header(source);
            }
            None => self.fail_lost(Lost::Everything),
        }
    }

    /// Reads the digest from the newest head's header, and plans which segments to read.
    fn header(&mut self, server: u32, answer: Option<Answer<'_>>) {
        let Stage::Header(source) = &mut self.stage else { return };
        let segment = source.segment;
        let mut loading = Loading::new(source.clone(), Vec::new());
        loading.bytes.extend(answer.iter().flat_map(|answer| answer.body));
        let header = loading.check_header();
        let (digest, len) = match header {
            Ok(header) => (header.digest, loading.at),
            Err(bad) => {
                if answer.is_some() {
                    self.report.bad.push((server, segment, bad));
                }
                source.servers.retain(|&other| other != server);
                if source.servers.is_empty() {
                    self.fail_lost(Lost::Head(segment));
                }
                return;
            }
        };
        match self.inventory.plan(&digest, len, self.order.min_open) {
            Ok(plan) => {
                self.report.unsure = plan.unsure;
                self.waiting = plan.sources.into();
                self.stage = Stage::Replaying;
            }
            Err(lost) => self.fail_lost(lost),
        }
    }

    /// Adds a piece of a segment, and checks the segment once it is whole. If there is no reply, or
    /// the segment is invalid, reads the segment from the next backup.
    fn read(&mut self, segment: u64, server: u32, answer: Option<Answer<'_>>) {
        let Some(loading) =
            self.loading.iter_mut().find(|loading| loading.source.segment == segment)
        else {
            return;
        };
        loading.under_way = false;
        let piece = answer.map_or(&[][..], |answer| answer.body);
        let room = SEGMENT_BYTES - loading.bytes.len();
        loading.bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        let bad = if piece.is_empty() {
            None
        } else if answer.is_some_and(|answer| answer.more) && piece.len() < room {
            return;
        } else {
            match loading.check(answer.map_or(0, |answer| answer.number)) {
                Ok(header) => {
                    self.report.segments += 1;
                    self.report.bytes += loading.bytes.len() as u64;
                    self.safe_version = self.safe_version.max(header.safe_version);
                    return;
                }
                Err(bad) => Some(bad),
            }
        };
        self.report.bad.extend(bad.map(|bad| (server, segment, bad)));
        if !loading.try_next_backup() {
            self.fail_lost(Lost::Segment { segment, head: self.head });
        }
    }

    /// Returns the tablets of a table that are recovered and for which entries in `segment` count.
    fn ours(&self, table: u32, segment: u64) -> impl Iterator<Item = Tablet> + Clone {
        let from = self.order.tablets.partition_point(|(tablet, _)| tablet.table < table);
        let ours =
            self.order.tablets[from..].iter().take_while(move |(tablet, _)| tablet.table == table);
        ours.filter(move |(_, since)| *since <= segment).map(|&(tablet, _)| tablet)
    }

    /// Returns whether an object, prepared entry or tombstone in `segment` belongs to one of the
    /// tablets that are recovered, and counts for that tablet.
    fn wants(&self, log: &Log, entry: &Entry<'_>, segment: u64) -> bool {
        let mut ours = self.ours(table_of(entry.table), segment);
        let Some(first) = ours.clone().next() else { return false };
        let position = || log.position_of(entry.table, entry.key);
        first.range.is_all() || ours.any(|tablet| tablet.range.contains(position()))
    }

    /// Returns what this recovery keeps of a completion: nothing if `segment` counts for no tablet
    /// of its table that is recovered here; the completion if it has no position, or one in such a
    /// tablet; otherwise [`Completion::BEGUN`], which says only that the operation was begun.
    fn wanted<'a>(&self, entry: &Entry<'a>, segment: u64) -> Option<Completion<'a>> {
        let completion = Completion::of(entry)?;
        let mut ours = self.ours(table_of(entry.table), segment).peekable();
        ours.peek()?;
        let is_ours = completion
            .position
            .is_none_or(|position| ours.any(|tablet| tablet.range.contains(position)));
        Some(if is_ours { completion } else { Completion::BEGUN })
    }

    /// Replays some entries of a segment that has arrived completely. Of several such segments the
    /// newest comes first, so that few objects are written more than once.
    fn replay(&mut self, log: &mut Log) -> bool {
        let Some(at) =
            self.loading.iter().position(|loading| loading.is_whole() && !loading.under_way)
        else {
            if self.loading.is_empty() && self.waiting.is_empty() {
                (self.tombstones, self.spare) = (HashMap::new(), Vec::new());
                self.stage = Stage::Completing;
                return true;
            }
            return false;
        };
        for _ in 0..SLICE_ENTRIES {
            prefetch(&mut self.expected, log, &mut self.loading[at]);
            let loading = &self.loading[at];
            let Some(entry) = loading.next() else {
                self.spare.extend(self.loading.remove(at).map(|loading| loading.bytes));
                return true;
            };
            let len = entry.encoded_len();
            let segment = loading.source.segment;
            if entry.table & COMPLETIONS != 0 {
                if let Some(completion) = self.wanted(&entry, segment) {
                    self.completions.hold((entry.table, entry.key, entry.version), &completion);
                }
            } else if self.wants(log, &entry, segment) {
                match adopt(log, &mut self.tombstones, &entry) {
                    Ok(written) => self.report.objects += u64::from(written),
                    Err(Full::Replication) => return false,
                    Err(Full::Memory | Full::Disk) => {
                        self.fail(RecoveryFailure::Full(self.order.master));
                        return true;
                    }
                }
                self.expired |= log.is_expired(&entry);
                if entry.kind == Kind::Tombstone || log.is_expired(&entry) {
                    self.safe_version = self.safe_version.max(entry.version + 1);
                }
            }
            self.report.entries += 1;
            self.loading[at].at += len;
        }
        true
    }

    /// Records the time in the tables that are recovered, because objects were left out that have
    /// expired.
    fn record_time(&self, log: &mut Log) -> Result<(), Full> {
        self.order
            .tablets
            .iter()
            .try_for_each(|(tablet, _)| log.record_time(tablet.table).map(drop))
    }

    /// Writes some of the completions. They are written last, for this reason: if an attempt failed
    /// after it had written a completion, the next attempt might read the end of the log from
    /// another replica, which is shorter. The completion would then be of an operation that the log
    /// does not have.
    fn complete(&mut self, log: &mut Log) -> bool {
        for _ in 0..SLICE_ENTRIES {
            match self.completions.write_one(log, &mut self.completed) {
                Ok(true) => {}
                Ok(false) => {
                    if self.expired {
                        match self.record_time(log) {
                            Ok(()) => self.expired = false,
                            Err(Full::Replication) => return false,
                            Err(Full::Memory | Full::Disk) => {
                                self.fail(RecoveryFailure::Full(self.order.master));
                                return true;
                            }
                        }
                    }
                    // Tombstones are not written here. Only a head's header keeps the versions of
                    // removed objects from being used again.
                    if !log.raise_version(self.safe_version) && !log.roll_head() {
                        return false;
                    }
                    self.stage = Stage::Settling(log.position());
                    return true;
                }
                Err(Full::Replication) => return false,
                Err(Full::Memory | Full::Disk) => {
                    self.fail(RecoveryFailure::Full(self.order.master));
                    return true;
                }
            }
        }
        true
    }
}

/// Prefetches the entry of a segment that is replayed [`AHEAD`] entries later; at the beginning of
/// a segment, its first `AHEAD` entries.
fn prefetch(expected: &mut PrefetchQueue<NEARER>, log: &Log, loading: &mut Loading) {
    let entries = if loading.has_prefetched() { 1 } else { AHEAD };
    for _ in 0..entries {
        let Some(entry) = loading.next_ahead() else { return };
        expected.expect(log, entry.table, entry.key);
    }
}

/// Writes an object into `log`, unless the log has it, or a later version or tombstone is known.
/// For a tombstone, or an object that has expired, removes the object from `log`; remembers it
/// unless all older versions are in the same segment, and so have been replayed. Returns whether an
/// object was written.
fn adopt(
    log: &mut Log,
    tombstones: &mut HashMap<(u32, Box<[u8]>), u64>,
    entry: &Entry<'_>,
) -> Result<bool, Full> {
    let Entry { table, key, version, .. } = *entry;
    let is_expired = log.is_expired(entry);
    if entry.kind == Kind::Object && !is_expired {
        // Most logs have few removals, and the lookup copies the key.
        let last =
            if tombstones.is_empty() { None } else { tombstones.get(&(table, Box::from(key))) };
        let is_removed = last.is_some_and(|&last| last >= version);
        return if is_removed { Ok(false) } else { log.adopt(entry) };
    }
    let known = log.find(table, key).map(|known| log.entry(known).version);
    if known.is_some_and(|known| known <= version) {
        log.remove(table, key)?;
    }
    if !is_expired || entry.successor {
        let last = tombstones.entry((table, Box::from(key))).or_default();
        *last = version.max(*last);
    }
    Ok(false)
}
