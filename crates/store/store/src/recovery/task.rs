//! Recovering what a server had, by one that lives: it fences the dead one's log at every backup,
//! finds its segments, reads them, and writes what counts into its own log.

use super::completions::{Completions, Named};
use super::plan::{Inventory, Lost, Source};
use super::segment::{BadReplica, Loading};
use crate::expected::PrefetchQueue;
use crate::node::Caller;
use crate::replication::Member;
use sprat_log::{Full, Log};
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, SessionId};
use sprat_wire::SEGMENT_BYTES;
use sprat_wire::entry::{Entry, Kind};
use sprat_wire::once::{COMPLETIONS, Completion};
use sprat_wire::op::{
    Answer, BackupRequest, Records, RecoveryOrder, ReplicaId, Request, Selection, Status,
};
use sprat_wire::tablet::Tablet;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;
use thiserror::Error;
use zerocopy::IntoBytes;

/// Segments being read or replayed at once.
const READ_AHEAD: usize = 4;

/// Entries replayed between two turns of the node's loop.
const SLICE_ENTRIES: usize = 1000;

/// Entries between the first look at one and its replay.
const AHEAD: usize = 16;

/// Entries between the look at a key's line in the hash table and the look at what that points to.
const NEARER: usize = 8;

/// How long a backup may take for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why it cannot be recovered, for now.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum Failure {
    /// Not all of the log is there.
    #[error("server {master}'s log is not all there: {lost}; {silent} backups do not answer")]
    Lost {
        /// Whose log.
        master: u32,
        /// What is missing.
        lost: Lost,
        /// Backups that did not answer.
        silent: usize,
    },
    /// It does not fit here.
    #[error("what server {0} had does not fit into this server's memory")]
    Full(u32),
}

/// What came of it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Segments read.
    pub segments: u64,
    /// Bytes of log read.
    pub bytes: u64,
    /// Entries replayed.
    pub entries: u64,
    /// Objects written into the log here.
    pub objects: u64,
    /// Replicas that were not what they should be, by backup, segment and what was wrong: others
    /// were read instead.
    pub bad: Vec<(u32, u64, BadReplica)>,
    /// Heads of which the last second may be missing: their backups lost their memory.
    pub unsure: Vec<u64>,
}

enum Purpose {
    Fence { server: u32 },
    Header { server: u32 },
    Read { segment: u64, server: u32 },
}

enum Stage {
    /// Backups are being told, and asked what they have.
    Fencing,
    /// The newest head's first bytes are being read.
    Header(Source),
    /// Segments are being read and replayed.
    Replaying,
    /// All objects are here: now what was told of them.
    Completing,
    /// Everything is written; it has to become durable, up to this position.
    Settling(u64),
    Ended,
}

/// A recovery under way.
pub struct Recovery {
    order: RecoveryOrder,
    /// What is wanted of each segment, encoded.
    selection: Vec<u8>,
    backups: BTreeMap<u32, (Member, Option<SessionId>)>,
    stage: Stage,
    unasked: VecDeque<u32>,
    silent: usize,
    inventory: Inventory,
    /// The newest head.
    head: u64,
    /// Objects written from now on are to have this version at least.
    safe_version: u64,
    waiting: VecDeque<Source>,
    loading: VecDeque<Loading>,
    /// Buffers of segments that are done, for those to come.
    spare: Vec<Vec<u8>>,
    calls: HashMap<CallId, Purpose>,
    /// Entries to come, looked at ahead of time.
    expected: PrefetchQueue<NEARER>,
    /// Versions up to which objects were removed, by table and key.
    graves: HashMap<(u32, Box<[u8]>), u64>,
    completions: Completions,
    /// Those that were written.
    completed: Vec<Named>,
    report: Report,
    failure: Option<Failure>,
}

impl Recovery {
    /// Begins; `members` are the backups that there are, this node's own among them. Keys are
    /// hashed with `seed`.
    #[must_use]
    pub fn new(order: RecoveryOrder, members: &[Member], seed: u64) -> Self {
        let selection =
            Selection::encode(seed, order.askers, order.tablets.iter().map(|&(tablet, _)| tablet));
        let backups: BTreeMap<_, _> =
            members.iter().map(|&member| (member.server, (member, None))).collect();
        Self {
            unasked: backups.keys().copied().collect(),
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
            graves: HashMap::new(),
            completions: Completions::default(),
            completed: Vec::new(),
            report: Report::default(),
            failure: None,
        }
    }

    /// What came of it; `None` while it goes on.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<&Report, &Failure>> {
        matches!(self.stage, Stage::Ended)
            .then(|| self.failure.as_ref().map_or(Ok(&self.report), Err))
    }

    /// The sessions that it has with backups, to be closed when it has ended or is about to be
    /// dropped.
    pub fn take_sessions(&mut self) -> impl Iterator<Item = SessionId> {
        self.backups.values_mut().filter_map(|(_, session)| session.take())
    }

    /// How far it is: a word for what it is at, the segments read and replayed, and those left as
    /// far as is known.
    #[must_use]
    pub fn progress(&self) -> (&'static str, u64, u64) {
        let stage = match self.stage {
            Stage::Fencing => "fencing",
            Stage::Header(_) => "searching",
            Stage::Replaying => "replaying",
            Stage::Completing => "completing",
            Stage::Settling(_) => "settling",
            Stage::Ended => "ended",
        };
        (stage, self.report.segments, (self.waiting.len() + self.loading.len()) as u64)
    }

    /// How it stands, in words.
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

    fn fail(&mut self, failure: Failure) {
        (self.stage, self.failure) = (Stage::Ended, Some(failure));
        self.loading.clear();
        self.spare.clear();
        self.graves.clear();
        self.completions = Completions::default();
    }

    /// The completions that it has written of which none may stay if it is given up.
    pub fn take_completed(&mut self) -> Vec<Named> {
        std::mem::take(&mut self.completed)
    }

    /// Whether it has left something in the log here.
    #[must_use]
    pub fn has_written(&self) -> bool {
        self.report.objects > 0 || !self.completed.is_empty()
    }

    fn lose(&mut self, lost: Lost) {
        self.fail(Failure::Lost { master: self.order.master, lost, silent: self.silent });
    }

    /// Does some of what can be done without anybody else; returns whether there was anything.
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

    /// Begins the calls that there are to make.
    pub fn call(&mut self, now: Nanos, caller: &mut dyn Caller) {
        let master = self.order.master;
        match &self.stage {
            Stage::Fencing => {
                while let Some(server) = self.unasked.pop_front() {
                    self.ask(
                        now,
                        server,
                        BackupRequest::Fence { master },
                        Purpose::Fence { server },
                        caller,
                    );
                }
                self.all_have_answered();
            }
            Stage::Header(source) if self.calls.is_empty() => {
                let (segment, server) = (source.segment, source.servers[0]);
                let request =
                    BackupRequest::Read { replica: ReplicaId { master, segment }, offset: 0 };
                self.ask(now, server, request, Purpose::Header { server }, caller);
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
                    if loading.asked || loading.is_whole() {
                        continue;
                    }
                    loading.asked = true;
                    let (segment, server) = (loading.source.segment, loading.source.servers[0]);
                    let offset = u32::try_from(loading.bytes.len()).expect("within a segment");
                    let selection = std::mem::take(&mut self.selection);
                    let parsed = Selection::parse(&selection).expect("made by encoding one");
                    let replica = ReplicaId { master, segment };
                    let request = BackupRequest::Select { replica, offset, selection: parsed };
                    self.ask(now, server, request, Purpose::Read { segment, server }, caller);
                    self.selection = selection;
                }
            }
            Stage::Header(_) | Stage::Completing | Stage::Settling(_) | Stage::Ended => {}
        }
    }

    fn ask(
        &mut self,
        now: Nanos,
        server: u32,
        request: BackupRequest<'_>,
        purpose: Purpose,
        caller: &mut dyn Caller,
    ) {
        let (member, session) =
            self.backups.get_mut(&server).expect("one of those that were given");
        if session.is_none() {
            *session = caller.connect(member.address).ok();
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

    /// A call has ended; returns whether it was one of these.
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

    /// A backup has answered, or has not.
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

    fn all_have_answered(&mut self) {
        if !matches!(self.stage, Stage::Fencing) || !self.calls.is_empty() {
            return;
        }
        if self.order.min_open == 0 {
            // It had never begun a log, and acknowledged nothing.
            self.stage = Stage::Settling(0);
            return;
        }
        match self.inventory.newest_head() {
            Some(source) => {
                self.head = source.segment;
                self.stage = Stage::Header(source);
            }
            None => self.lose(Lost::Everything),
        }
    }

    /// The newest head's header has come: it says what belongs to the log.
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
                    self.lose(Lost::Head(segment));
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
            Err(lost) => self.lose(lost),
        }
    }

    /// A piece of a segment has come, or has not.
    fn read(&mut self, segment: u64, server: u32, answer: Option<Answer<'_>>) {
        let Some(loading) =
            self.loading.iter_mut().find(|loading| loading.source.segment == segment)
        else {
            return;
        };
        loading.asked = false;
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
        if !loading.turn_to_another() {
            self.lose(Lost::Segment { segment, head: self.head });
        }
    }

    /// The tablets of a table that are brought back and of which entries in a segment count.
    fn ours(&self, table: u32, segment: u64) -> impl Iterator<Item = Tablet> + Clone {
        let from = self.order.tablets.partition_point(|(tablet, _)| tablet.table < table);
        let ours =
            self.order.tablets[from..].iter().take_while(move |(tablet, _)| tablet.table == table);
        ours.filter(move |(_, since)| *since <= segment).map(|&(tablet, _)| tablet)
    }

    /// Whether an object, or its removal, is of one of the tablets that are brought back.
    fn wants(&self, log: &Log, entry: &Entry<'_>, segment: u64) -> bool {
        let mut ours = self.ours(entry.table, segment);
        let Some(first) = ours.clone().next() else { return false };
        let position = || log.hash(entry.table, entry.key).reverse_bits();
        first.range.is_all() || ours.any(|tablet| tablet.range.contains(position()))
    }

    /// What counts here of a completion in a segment: if it is of another tablet, or from before
    /// this one was there, that it was begun.
    fn wanted<'a>(&self, entry: &Entry<'a>, segment: u64) -> Option<Completion<'a>> {
        let completion = Completion::of(entry)?;
        let mut ours = self.ours(entry.table & !COMPLETIONS, segment).peekable();
        ours.peek()?;
        let is_ours = completion
            .position
            .is_none_or(|position| ours.any(|tablet| tablet.range.contains(position)));
        Some(if is_ours { completion } else { Completion::BEGUN })
    }

    /// Replays some entries of a segment that is whole: newest segments first, so that most
    /// versions need not be written twice.
    fn replay(&mut self, log: &mut Log) -> bool {
        let Some(at) = self.loading.iter().position(|loading| loading.is_whole() && !loading.asked)
        else {
            if self.loading.is_empty() && self.waiting.is_empty() {
                (self.graves, self.spare) = (HashMap::new(), Vec::new());
                self.stage = Stage::Completing;
                return true;
            }
            return false;
        };
        for _ in 0..SLICE_ENTRIES {
            look_ahead(&mut self.expected, log, &mut self.loading[at]);
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
                match adopt(log, &mut self.graves, &entry) {
                    Ok(written) => self.report.objects += u64::from(written),
                    Err(Full::Replication) => return false,
                    Err(Full::Memory | Full::Disk) => {
                        self.fail(Failure::Full(self.order.master));
                        return true;
                    }
                }
                if entry.kind == Kind::Tombstone {
                    self.safe_version = self.safe_version.max(entry.version + 1);
                }
            }
            self.report.entries += 1;
            self.loading[at].at += len;
        }
        true
    }

    /// Writes some of the completions. They come last: were they here when an attempt fails, and
    /// the next one read the end of the log from another replica, which has less, they would
    /// tell of what is not here.
    fn complete(&mut self, log: &mut Log) -> bool {
        for _ in 0..SLICE_ENTRIES {
            match self.completions.write_one(log, &mut self.completed) {
                Ok(true) => {}
                Ok(false) => {
                    // Of what was removed nothing is written here: that versions go on behind it,
                    // only a head can tell.
                    if !log.raise_version(self.safe_version) && !log.roll_head() {
                        return false;
                    }
                    self.stage = Stage::Settling(log.position());
                    return true;
                }
                Err(Full::Replication) => return false,
                Err(Full::Memory | Full::Disk) => {
                    self.fail(Failure::Full(self.order.master));
                    return true;
                }
            }
        }
        true
    }
}

/// Looks at one entry more of a segment, [`AHEAD`] before it is replayed: at the beginning at that
/// many.
fn look_ahead(expected: &mut PrefetchQueue<NEARER>, log: &Log, loading: &mut Loading) {
    let entries = if loading.is_begun() { 1 } else { AHEAD };
    for _ in 0..entries {
        let Some(entry) = loading.look_ahead() else { return };
        expected.expect(log, entry.table, entry.key);
    }
}

/// Takes an entry into `log`, unless it is of the past; returns whether an object was written.
fn adopt(
    log: &mut Log,
    graves: &mut HashMap<(u32, Box<[u8]>), u64>,
    entry: &Entry<'_>,
) -> Result<bool, Full> {
    let Entry { table, key, value, value_type, version, .. } = *entry;
    if entry.kind == Kind::Object {
        // Most logs have few removals, and a key is copied to be looked for.
        let last = if graves.is_empty() { None } else { graves.get(&(table, Box::from(key))) };
        let buried = last.is_some_and(|&last| last >= version);
        return if buried {
            Ok(false)
        } else {
            log.adopt(table, key, (value_type, value), version)
        };
    }
    let known = log.find(table, key).map(|known| log.entry(known).version);
    if known.is_some_and(|known| known <= version) {
        log.remove(table, key)?;
    }
    let last = graves.entry((table, Box::from(key))).or_default();
    *last = version.max(*last);
    Ok(false)
}
