//! Keeps replicas of a master's log on other servers: see [decision
//! 15](../../../../../docs/decisions/0015-replicas-and-leases.md).
//!
//! The master drives it: [`Replicator::call`] sends backups the bytes of the log that they lack,
//! and [`Replicator::completed`] handles each reply and reports to the log what is durable. Each
//! replica has at most one write under way; bytes that are appended meanwhile make up the next
//! write.

mod heal;
mod leases;
mod outlook;
mod peers;
mod segment;

pub use heal::{MAX_RE_REPLICATIONS, RE_REPLICATION_BYTES_PER_SECOND};
pub use outlook::{FEW_FOR, Outlook, STUCK_FOR, ServerCounts};
pub use peers::BackupServer;

use crate::node::Caller;
use heal::{JobId, ReReplicator, SealedSegment};
use outlook::OutlookState;
use peers::Peers;
use segment::{OpenReplicas, Replica, Reported, Sendable, sendable};
use sprat_chance::xorshift;
use sprat_log::{Log, OpenSegment, Role};
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, SessionId};
use sprat_wire::op::{Answer, BackupRequest, REPLICA_BYTES, ReplicaId, Request, Status};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;
use zerocopy::IntoBytes;

/// The largest number of replicas of a segment.
pub const MAX_COPIES: usize = 7;

/// Timeout of a request to a backup. A backup that has not answered a write by then is replaced by
/// another.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// The largest number of replicas that wait to be freed. The master does not request to free
/// further replicas: backups find out by themselves that these are no longer needed.
pub const MAX_FREES: usize = 4096;

/// The largest number of requests to free replicas in flight at once.
const FREES_UNDER_WAY: usize = 8;

/// The purpose of a call under way.
enum Purpose {
    Write {
        segment: u64,
        server: u32,
        up_to: usize,
        sealed: bool,
    },
    /// Sends a piece of a copy of a sealed segment to its new backup; with `sealed`, seals the
    /// copy.
    ReReplicate {
        job: JobId,
        sealed: bool,
    },
    Free,
    Lease {
        server: u32,
        asked: Nanos,
    },
}

/// Keeps the replicas of a master's log.
///
/// The master owns the replicator together with the log, and calls it from the loop of its node:
/// the replicator has no thread or clock of its own, and never blocks. At each iteration the master
/// calls [`call`](Self::call), which places and sends replicas of open segments and re-replicates
/// sealed ones, and [`completed`](Self::completed) for each reply.
/// [`set_backups`](Self::set_backups) passes the list of servers, which may change at any time.
///
/// A byte of the log is reported durable once all replicas of its segment hold that byte. If a
/// replica of an open head is given up, the head is sealed, and the coordinator must
/// [confirm](Self::confirm) the next head before more bytes of heads are durable. So recovery never
/// takes the replica that was given up for the end of the log. [`min_open`](Self::min_open) returns
/// the head to confirm.
pub struct Replicator {
    /// Server id of the master.
    master: u32,
    copies: usize,
    /// Bytes of log that a new replica can take.
    fresh_room: usize,
    peers: Peers,
    open: BTreeMap<u64, OpenReplicas>,
    sealed_segments: BTreeMap<u64, SealedSegment>,
    re_replicator: ReReplicator,
    calls: HashMap<CallId, Purpose>,
    frees: VecDeque<(u32, ReplicaId)>,
    freeing: usize,
    /// Recovery must not use open heads below this segment. Zero until all backups of the first
    /// head have its header. Then it is that head's id, which shows that there is a log.
    min_open: u64,
    /// The value of `min_open` that the coordinator has confirmed.
    confirmed: u64,
    /// When the master asks for leases again, if its coordinator is silent.
    ask_at: Nanos,
    /// Whether a backup has replied that this master is being recovered.
    fenced: bool,
    outlook_state: OutlookState,
    chance: u64,
    counts: Counts,
}

/// Counters of events since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Writes of open segments sent to backups, one for each replica.
    pub writes: u64,
    /// Replicas of open segments that were given up, because a write failed or the server left.
    pub replaced: u64,
    /// Replicas of sealed segments that were made to replace lost ones.
    pub re_replicated: u64,
    /// Bytes sent to re-replicate, those of unfinished and failed copies included.
    pub re_replicated_bytes: u64,
}

impl Replicator {
    /// Makes the replicator of the log of server `master`, with `copies` replicas of each segment.
    /// `fresh_room` is the number of bytes of log that a new replica can take. `seed` determines
    /// the choice of backups.
    ///
    /// # Panics
    /// When `copies` is not within 1 and [`MAX_COPIES`].
    #[must_use]
    pub fn new(master: u32, copies: usize, fresh_room: usize, seed: u64) -> Self {
        assert!((1..=MAX_COPIES).contains(&copies), "{copies} copies");
        Self {
            master,
            copies,
            fresh_room,
            peers: Peers::default(),
            open: BTreeMap::new(),
            sealed_segments: BTreeMap::new(),
            re_replicator: ReReplicator::default(),
            calls: HashMap::new(),
            frees: VecDeque::new(),
            freeing: 0,
            min_open: 0,
            confirmed: 0,
            ask_at: Nanos(0),
            fenced: false,
            outlook_state: OutlookState::default(),
            chance: seed | 1,
            counts: Counts::default(),
        }
    }

    /// Replaces the list of servers. The master's own server may be in the list: it gets no
    /// replicas, and its rack and host guide the choice of other servers.
    pub fn set_backups(&mut self, servers: &[BackupServer]) {
        let before = self.peers.racks();
        self.peers.set(servers, self.master);
        let (racks, copies) = (self.peers.racks(), self.copies);
        if racks != before && (2..=copies).contains(&racks) {
            tracing::warn!(
                "{racks} racks for a log and its {copies} replicas: some of them share a rack"
            );
        }
        self.note_lost_replicas();
    }

    /// Returns the number of segments whose replicas, together with the master, are in fewer racks
    /// than they could be. Returns zero if there is only one rack.
    #[must_use]
    pub fn in_too_few_racks(&self) -> usize {
        let racks = self.peers.racks();
        if racks < 2 {
            return 0;
        }
        let open = self.open.values().filter(|open| {
            self.peers
                .are_in_too_few_racks(open.replicas.iter().map(|replica| replica.server), racks)
        });
        let few = |sealed: &&SealedSegment| {
            self.peers.are_in_too_few_racks(sealed.servers.iter().copied(), racks)
        };
        open.count() + self.sealed_segments.values().filter(few).count()
    }

    /// Returns the lowest head whose open replicas count, if the coordinator has yet to record it.
    /// Bytes that depend on this head are not durable before [`confirm`](Self::confirm).
    #[must_use]
    pub fn min_open(&self) -> Option<u64> {
        (self.min_open > self.confirmed).then_some(self.min_open)
    }

    /// Notes that the coordinator has durably recorded that recovery must not use open heads below
    /// `segment`. Reports to the log what has become durable through this record.
    pub fn confirm(&mut self, segment: u64, log: &mut Log) {
        self.confirmed = self.confirmed.max(segment);
        self.report_durable(log);
    }

    /// Returns whether a backup has refused a write because this master is being recovered. After
    /// that the master must accept no more writes.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Returns the counters of events since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the number of segments that have lost a replica and not replaced it yet. A head that
    /// has lost one counts until it is sealed and the coordinator has confirmed the next head.
    #[must_use]
    pub fn under_replicated(&self) -> usize {
        let lacks_some =
            |open: &&OpenReplicas| open.tainted || open.acked(self.copies) < open.reported.durable;
        self.open.values().filter(lacks_some).count() + self.re_replicator.under_replicated()
    }

    /// Returns the time at which [`call`](Self::call) has something to do even if nothing arrives.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let next = [self.re_replicator.next_deadline(), self.outlook_state.next_deadline()];
        next.into_iter().flatten().min().filter(|_| !self.fenced)
    }

    /// Returns the number of bytes that the head can still take on all its backups.
    #[must_use]
    pub fn room(&self, log: &Log) -> usize {
        let Some(head) = log.open_segments().filter(|open| open.role == Role::Head).last() else {
            return 0;
        };
        let limit = self.open.get(&head.segment).and_then(OpenReplicas::limit);
        limit.unwrap_or(self.fresh_room).saturating_sub(head.appended)
    }

    /// Limits the log's head to what all its replicas have room for, also for recoveries and moves,
    /// which append many entries without asking for the [`room`](Self::room). If the head outgrew a
    /// replica, its backup would refuse the rest of the segment for ever, and with few servers
    /// there is no other backup.
    fn limit_head(&self, log: &mut Log) {
        let open = self.open.get(&log.head_pending().0);
        if let Some(limit) = open.and_then(OpenReplicas::limit) {
            log.limit_head(limit);
        }
    }

    /// Places the replicas of open segments, sends them the bytes that they lack, frees replicas
    /// that are no longer needed, and re-replicates sealed segments.
    pub fn call(&mut self, now: Nanos, log: &mut Log, caller: &mut dyn Caller) {
        if self.fenced {
            return;
        }
        self.place(now, log);
        self.limit_head(log);
        self.send(now, log, caller);
        self.free(now, log, caller);
        self.re_replicate(now, log, caller);
    }

    /// Gives up the replicas of open segments on servers that have left, and chooses backups for
    /// the replicas that open segments lack. Seals a head that has lost a replica.
    fn place(&mut self, now: Nanos, log: &mut Log) {
        if self.open.get(&log.head_pending().0).is_some_and(|open| open.tainted) {
            // This is repeated until there is memory for another head.
            log.roll_head();
        }
        for segment in log.open_segments() {
            let open = self.open.entry(segment.segment).or_default();
            let before = open.replicas.len();
            open.replicas.retain(|replica| self.peers.contains(replica.server));
            let gone = before - open.replicas.len();
            self.counts.replaced += gone as u64;
            open.tainted |= gone > 0 && segment.role == Role::Head;
            while open.replicas.len() < self.copies {
                let servers: Vec<u32> =
                    open.replicas.iter().map(|replica| replica.server).collect();
                let chance = &mut self.chance;
                let chosen =
                    self.peers.choose(now, &servers, |choices| draw_index(chance, choices));
                let Some(server) = chosen else { break };
                open.given_up.retain(|&other| other != server);
                open.replicas.push(Replica::new(server, self.fresh_room));
            }
        }
    }

    fn send(&mut self, now: Nanos, log: &mut Log, caller: &mut dyn Caller) {
        let segments: Vec<OpenSegment> = log.open_segments().collect();
        let heads = segments.iter().take_while(|open| open.role == Role::Head);
        let header_everywhere = heads.clone().nth(1).is_some_and(|second| {
            let open = self.open.get(&second.segment);
            open.is_some_and(|open| open.acked(self.copies) >= second.header)
        });
        for (at, segment) in segments.iter().enumerate() {
            let head = (segment.role == Role::Head).then_some(at);
            let may = sendable(segment, head, header_everywhere);
            self.send_segment(now, segment.segment, may, log, caller);
        }
    }

    fn send_segment(
        &mut self,
        now: Nanos,
        segment: u64,
        may: Sendable,
        log: &mut Log,
        caller: &mut dyn Caller,
    ) {
        let Some(open) = self.open.get_mut(&segment) else { return };
        let Reported { submitted, durable, .. } = open.reported;
        let (mut most, mut seals) = (submitted, false);
        for at in 0..open.replicas.len() {
            let Some((range, seal)) = open.next(at, may) else { continue };
            let server = open.replicas[at].server;
            let Some(session) = self.peers.session(server, caller) else { continue };
            let bytes = log.bytes_of(segment, range, REPLICA_BYTES);
            let up_to = bytes.offset + bytes.len;
            let sealed = seal && up_to == may.up_to;
            let replica = ReplicaId { master: self.master, segment };
            let offset = u32::try_from(bytes.offset).expect("within a segment");
            // The replica replaces another, and still lacks bytes that were reported durable.
            let replacement = up_to < open.reported.durable;
            let request = BackupRequest::Write {
                replica,
                offset,
                sealed,
                replacement,
                edition: 0,
                bytes: &[],
            };
            if let Some(call) = begin(caller, session, request, bytes.slices(), now) {
                open.replicas[at].under_way = Some((up_to, sealed));
                self.calls.insert(call, Purpose::Write { segment, server, up_to, sealed });
                self.counts.writes += 1;
                most = most.max(up_to);
                seals |= sealed;
            }
        }
        if most > submitted || seals {
            open.reported.submitted = most;
            open.reported.seal_submitted |= seals;
            log.mark_submitted(segment, most, seals);
        }
        debug_assert!(durable <= most);
    }

    /// Requests backups to free the replicas of segments that the log no longer needs.
    fn free(&mut self, now: Nanos, log: &mut Log, caller: &mut dyn Caller) {
        for segment in log.take_reclaimable() {
            self.re_replicator.forget(segment);
            let mut servers = Vec::new();
            if let Some(open) = self.open.remove(&segment) {
                servers.extend(
                    open.replicas.iter().map(|replica| replica.server).chain(open.given_up),
                );
            }
            if let Some(sealed) = self.sealed_segments.remove(&segment) {
                servers.extend(sealed.servers.into_iter().chain(sealed.given_up));
            }
            servers.into_iter().for_each(|server| self.discard(server, segment));
        }
        while self.freeing < FREES_UNDER_WAY
            && let Some((server, replica)) = self.frees.pop_front()
        {
            let Some(session) = self.peers.session(server, caller) else { continue };
            if let Some(call) = begin(caller, session, BackupRequest::Free { replica }, &[], now) {
                self.calls.insert(call, Purpose::Free);
                self.freeing += 1;
            }
        }
    }

    fn discard(&mut self, server: u32, segment: u64) {
        if self.frees.len() < MAX_FREES {
            self.frees.push_back((server, ReplicaId { master: self.master, segment }));
        }
    }

    /// Handles the end of a call, and reports to the log what has become durable. Returns whether
    /// the call was one of this replicator.
    pub fn completed(
        &mut self,
        now: Nanos,
        call: CallId,
        result: Result<&[u8], CallFailure>,
        log: &mut Log,
    ) -> bool {
        let Some(purpose) = self.calls.remove(&call) else { return false };
        match purpose {
            Purpose::Free => self.freeing -= 1,
            Purpose::Lease { server, asked } => self.lease_answered(server, asked, result),
            Purpose::ReReplicate { job, sealed } => {
                let answer = parse_reply(result);
                self.fenced |= matches!(answer, Ok(Answer { status: Status::Fenced, .. }));
                // The backup may have a whole replica from before it restarted.
                let whole =
                    sealed || matches!(answer, Ok(Answer { status: Status::Ok, more: true, .. }));
                let answer = answer.and_then(|answer| check_accepted(&answer));
                self.copy_progressed(
                    now,
                    job,
                    whole,
                    answer.as_ref().copied().map_err(String::as_str),
                    log,
                );
            }
            Purpose::Write { segment, server, up_to, sealed } => match parse_reply(result) {
                Ok(Answer { status: Status::Ok, more: true, .. }) => {
                    self.peers.mark_healthy(server);
                    self.found_whole(now, segment, server, log);
                    self.report_durable(log);
                }
                Ok(Answer { status: Status::Ok, number, .. }) => {
                    self.peers.mark_healthy(server);
                    let room = usize::try_from(number).unwrap_or(0);
                    self.acknowledged(segment, server, (up_to, sealed), room);
                    self.limit_head(log);
                    self.report_durable(log);
                }
                Ok(Answer { status: Status::Fenced, .. }) => self.fenced = true,
                Ok(other) => self.give_up(
                    now,
                    segment,
                    server,
                    &check_accepted(&other).err().unwrap_or_default(),
                    log,
                ),
                Err(why) => self.give_up(now, segment, server, &why, log),
            },
        }
        true
    }

    /// Notes that a backup has acknowledged a write.
    fn acknowledged(
        &mut self,
        segment: u64,
        server: u32,
        (up_to, sealed): (usize, bool),
        room: usize,
    ) {
        let Some(open) = self.open.get_mut(&segment) else { return };
        let Some(replica) = open.replicas.iter_mut().find(|replica| replica.server == server)
        else {
            return;
        };
        if replica.under_way == Some((up_to, sealed)) {
            (replica.acked, replica.under_way, replica.room) = (up_to, None, room);
            replica.sealed |= sealed;
        }
    }

    /// Notes that a backup has a whole replica of an open segment: it received the segment's end,
    /// was then declared dead, and was chosen again under its new id. A backup that says so before
    /// the seal was sent to any is faulty, and is given up.
    fn found_whole(&mut self, now: Nanos, segment: u64, server: u32, log: &Log) {
        let ended = log.open_segments().find(|open| open.segment == segment);
        let open = self.open.get_mut(&segment).filter(|open| open.reported.seal_submitted);
        let (Some(ended), Some(open)) = (ended, open) else {
            return self.give_up(now, segment, server, "it has more than was sent", log);
        };
        if let Some(replica) = open.replicas.iter_mut().find(|replica| replica.server == server) {
            (replica.acked, replica.sealed) = (ended.appended, true);
            (replica.under_way, replica.room) = (None, 0);
        }
    }

    /// Gives up a replica whose backup has failed to take a write. [`place`](Self::place) chooses
    /// another.
    fn give_up(&mut self, now: Nanos, segment: u64, server: u32, why: &str, log: &Log) {
        self.peers.back_off(server, now, why);
        let Some(open) = self.open.get_mut(&segment) else { return };
        let before = open.replicas.len();
        open.replicas.retain(|replica| replica.server != server);
        if open.replicas.len() == before {
            return;
        }
        self.peers.release(server);
        self.counts.replaced += 1;
        open.given_up.push(server);
        // The part of a survivor that is left on the backup never counts, because it is not sealed.
        let role = log.open_segments().find(|open| open.segment == segment).map(|open| open.role);
        open.tainted |= role == Some(Role::Head);
    }

    /// Reports to the log what has become durable, and moves segments that are complete to the
    /// sealed ones.
    fn report_durable(&mut self, log: &mut Log) {
        let segments: Vec<OpenSegment> = log.open_segments().collect();
        for (at, segment) in segments.iter().enumerate() {
            let Some(open) = self.open.get_mut(&segment.segment) else { continue };
            let (acked, sealed) = (open.acked(self.copies), open.is_sealed(self.copies));
            if self.min_open == 0 && acked >= segment.header && acked > 0 {
                // This is the first head. Before anything is acknowledged, the coordinator must
                // know that there is a log.
                self.min_open = segment.segment;
            }
            if self.confirmed == 0 {
                return;
            }
            if open.tainted {
                if !sealed {
                    continue;
                }
                // The next head is open on its backups, because otherwise this head would not have
                // been sealed.
                let next = segments.get(at + 1).filter(|next| next.role == Role::Head);
                let next = next.expect("a head is sealed when there is another").segment;
                self.min_open = self.min_open.max(next);
                if self.confirmed < next {
                    continue;
                }
            }
            let Reported { durable, sealed: was_sealed, .. } = open.reported;
            if acked <= durable && sealed == was_sealed {
                continue;
            }
            (open.reported.durable, open.reported.sealed) = (acked.max(durable), sealed);
            log.mark_durable(segment.segment, acked.max(durable), sealed);
            if sealed {
                let open = self.open.remove(&segment.segment).expect("just seen");
                let mut servers: Vec<u32> =
                    open.replicas.iter().map(|replica| replica.server).collect();
                servers.iter().for_each(|&server| self.peers.release(server));
                servers.retain(|&server| self.peers.contains(server));
                if servers.len() < self.copies {
                    self.re_replicator.add(segment.segment);
                }
                self.sealed_segments.insert(
                    segment.segment,
                    SealedSegment { servers, given_up: open.given_up, edition: 0 },
                );
            }
        }
    }

    /// Describes the replicator's state, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        let open = self.open.iter().map(|(segment, open)| {
            let replicas = open.replicas.iter();
            let replicas: Vec<_> = replicas
                .map(|replica| {
                    format!(
                        "{}: {}, under way {:?}",
                        replica.server, replica.acked, replica.under_way
                    )
                })
                .collect();
            format!("segment {segment} tainted {}: [{}]", open.tainted, replicas.join(", "))
        });
        let open: Vec<_> = open.collect();
        let (min_open, confirmed) = (self.min_open, self.confirmed);
        let (short, fenced, open) = (self.under_replicated(), self.fenced, open.join("; "));
        format!(
            "min open {min_open}, {confirmed} confirmed, {short} short, fenced {fenced}, {open}"
        )
    }
}

/// Parses the reply of a backup; the error says why there is no valid reply.
fn parse_reply(result: Result<&[u8], CallFailure>) -> Result<Answer<'_>, String> {
    let answer = result.map_err(|failure| failure.to_string())?;
    Answer::parse(answer).ok_or_else(|| "it sent an invalid answer".to_owned())
}

/// Fails with the reason if a backup has refused a request.
fn check_accepted(answer: &Answer<'_>) -> Result<(), String> {
    match answer.status {
        Status::Ok => Ok(()),
        status if answer.body.is_empty() => Err(status.to_string()),
        _ => Err(String::from_utf8_lossy(answer.body).into_owned()),
    }
}

/// Begins a call to a backup.
fn begin(
    caller: &mut dyn Caller,
    session: SessionId,
    request: BackupRequest<'_>,
    slices: &[&[u8]],
    now: Nanos,
) -> Option<CallId> {
    let (header, ..) = Request::Backup(request).parts();
    let mut parts = [&[][..]; sprat_log::PENDING_SLICES + 1];
    parts[0] = header.as_bytes();
    parts[1..=slices.len()].copy_from_slice(slices);
    caller.call(session, &parts[..=slices.len()], now + PATIENCE).ok()
}

/// Draws a number below `choices`.
fn draw_index(state: &mut u64, choices: usize) -> usize {
    usize::try_from(xorshift(state) % choices as u64).expect("64-bit")
}
