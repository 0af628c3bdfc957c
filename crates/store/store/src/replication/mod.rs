//! Keeps a master's log on the disks, or in the memory, of other servers: see
//! [decision 15](../../../../../docs/decisions/0015-replicas-and-leases.md).
//!
//! The master turns it: [`Replicator::call`] sends what the log has and a backup has not; each call
//! that ends comes to [`Replicator::completed`], which tells the log what is durable. One call a
//! replica is under way at a time: what is appended meanwhile makes up the next.

mod heal;
mod outlook;
mod peers;
mod segment;

pub use heal::{HEAL_BYTES_A_SECOND, MAX_HEALING};
pub use outlook::{FEW_FOR, Outlook, STUCK_FOR};
pub use peers::Member;

use crate::node::Caller;
use heal::{Closed, Healer};
use outlook::Lookout;
use peers::Peers;
use segment::{Open, Replica, Sendable, sendable};
use sprat_chance::xorshift;
use sprat_log::{Log, OpenSegment, Role};
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, SessionId};
use sprat_wire::op::{Answer, BackupRequest, REPLICA_BYTES, ReplicaId, Request, Status};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;
use zerocopy::IntoBytes;

/// Most replicas of a segment.
pub const MAX_COPIES: usize = 7;

/// How long a backup may take for a write before another takes its place.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Replicas that wait to be freed; what is beyond, backups find out by themselves.
pub const MAX_FREES: usize = 4096;

/// Requests to free replicas that are under way.
const FREES_UNDER_WAY: usize = 8;

/// What a call was for.
enum Purpose {
    Write {
        segment: u64,
        server: u32,
        up_to: usize,
        sealed: bool,
    },
    /// A piece of a copy: of which segment, for whom, which edition.
    Heal {
        job: (u64, u32, u8),
        sealed: bool,
    },
    Free,
}

/// Keeps a log's replicas.
pub struct Replicator {
    /// Server id of the master.
    master: u32,
    copies: usize,
    /// Bytes that a fresh replica can take.
    fresh_room: usize,
    peers: Peers,
    open: BTreeMap<u64, Open>,
    closed: BTreeMap<u64, Closed>,
    healer: Healer,
    calls: HashMap<CallId, Purpose>,
    frees: VecDeque<(u32, ReplicaId)>,
    freeing: usize,
    /// Open heads below this id are to be void, and known to be. That of the first head says that
    /// there is a log.
    min_open: u64,
    confirmed: u64,
    /// A backup has said that this master is being recovered.
    fenced: bool,
    lookout: Lookout,
    chance: u64,
    counts: Counts,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Writes sent to backups.
    pub writes: u64,
    /// Replicas that were given up and made elsewhere.
    pub replaced: u64,
    /// Replicas of sealed segments that were lost with their servers and made anew.
    pub healed: u64,
    /// Bytes sent for that.
    pub healed_bytes: u64,
}

impl Replicator {
    /// Replicas of the log of server `master`, `copies` of each segment. `fresh_room`: bytes of log
    /// that a fresh replica can take.
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
            closed: BTreeMap::new(),
            healer: Healer::default(),
            calls: HashMap::new(),
            frees: VecDeque::new(),
            freeing: 0,
            min_open: 0,
            confirmed: 0,
            fenced: false,
            lookout: Lookout::default(),
            chance: seed | 1,
            counts: Counts::default(),
        }
    }

    /// These are the servers from now on; the master's own gets no replicas, and others are chosen
    /// by where it is.
    pub fn set_members(&mut self, members: &[Member]) {
        let before = self.peers.racks();
        self.peers.set(members, self.master);
        let (racks, copies) = (self.peers.racks(), self.copies);
        if racks != before && (2..=copies).contains(&racks) {
            tracing::warn!(
                "{racks} racks for a log and its {copies} replicas: some of them are in one"
            );
        }
        self.miss();
    }

    /// Segments whose replicas, with the log itself, are in fewer racks than they could be. None
    /// where all is one rack.
    #[must_use]
    pub fn in_few_racks(&self) -> usize {
        let racks = self.peers.racks();
        if racks < 2 {
            return 0;
        }
        let open = self.open.values().filter(|open| {
            self.peers.are_in_few_racks(open.replicas.iter().map(|replica| replica.server), racks)
        });
        let few =
            |closed: &&Closed| self.peers.are_in_few_racks(closed.servers.iter().copied(), racks);
        open.count() + self.closed.values().filter(few).count()
    }

    /// The least id of a head whose open replicas count, if the coordinator is to be told: nothing
    /// that waits for it is durable before [`confirm`](Self::confirm).
    #[must_use]
    pub fn min_open(&self) -> Option<u64> {
        (self.min_open > self.confirmed).then_some(self.min_open)
    }

    /// The coordinator has noted that open heads below `segment` are void.
    pub fn confirm(&mut self, segment: u64, log: &mut Log) {
        self.confirmed = self.confirmed.max(segment);
        self.tell(log);
    }

    /// Whether a backup has said that this master is being recovered: it must take no more writes.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Segments with fewer replicas than there should be.
    #[must_use]
    pub fn short(&self) -> usize {
        let is_short = |open: &&Open| open.tainted || open.acked(self.copies) < open.told.1;
        self.open.values().filter(is_short).count() + self.healer.short()
    }

    /// When there is something to do although nothing arrives.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let next = [self.healer.next_deadline(), self.lookout.next_deadline()];
        next.into_iter().flatten().min().filter(|_| !self.fenced)
    }

    /// Bytes that the head can still take.
    #[must_use]
    pub fn room(&self, log: &Log) -> usize {
        let Some(head) = log.open_segments().filter(|open| open.role == Role::Head).last() else {
            return 0;
        };
        let room = self.open.get(&head.segment).and_then(|open| open.room(head.appended));
        room.unwrap_or_else(|| self.fresh_room.saturating_sub(head.appended))
    }

    /// Sends what there is to send, and sees to it that each open segment has its replicas.
    pub fn call(&mut self, now: Nanos, log: &mut Log, caller: &mut dyn Caller) {
        if self.fenced {
            return;
        }
        self.place(now, log);
        self.send(now, log, caller);
        self.free(now, log, caller);
        self.heal(now, log, caller);
    }

    /// Gives every open segment as many replicas as it is to have, if there are as many backups.
    fn place(&mut self, now: Nanos, log: &mut Log) {
        if self.open.get(&log.head_pending().0).is_some_and(|open| open.tainted) {
            // Tried again until there is room for another head.
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
                let Some(server) =
                    self.peers.choose(now, &servers, |choices| draw(chance, choices))
                else {
                    break;
                };
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
        let (handed, durable, _) = open.told;
        let (mut most, mut seals) = (handed, false);
        for at in 0..open.replicas.len() {
            let Some((range, seal)) = open.next(at, may) else { continue };
            let server = open.replicas[at].server;
            let Some(session) = self.peers.session(server, caller) else { continue };
            let bytes = log.bytes_of(segment, range, REPLICA_BYTES);
            let up_to = bytes.offset + bytes.len;
            let sealed = seal && up_to == may.up_to;
            let replica = ReplicaId { master: self.master, segment };
            let offset = u32::try_from(bytes.offset).expect("within a segment");
            // Made in place of another, and still without something that was told to be durable.
            let anew = up_to < open.told.1;
            let request = BackupRequest::Write {
                replica,
                offset,
                sealed,
                replacement: anew,
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
        if most > handed || seals {
            open.told.0 = most;
            log.mark_submitted(segment, most, seals);
        }
        debug_assert!(durable <= most);
    }

    /// Has backups free what the log does without.
    fn free(&mut self, now: Nanos, log: &mut Log, caller: &mut dyn Caller) {
        for segment in log.take_reclaimable() {
            self.healer.forget(segment);
            let mut servers = Vec::new();
            if let Some(open) = self.open.remove(&segment) {
                servers.extend(
                    open.replicas.iter().map(|replica| replica.server).chain(open.given_up),
                );
            }
            if let Some(closed) = self.closed.remove(&segment) {
                servers.extend(closed.servers.into_iter().chain(closed.given_up));
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

    /// A call has ended; returns whether it was one of ours. The log is told what has become
    /// durable.
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
            Purpose::Heal { job, sealed } => {
                let answer = taken(result);
                self.fenced |= matches!(answer, Ok(Answer { status: Status::Fenced, .. }));
                // It may have a whole one, of a life before.
                let whole =
                    sealed || matches!(answer, Ok(Answer { status: Status::Ok, more: true, .. }));
                let answer = answer.and_then(|answer| refusal(&answer));
                self.copied(now, job, whole, answer.as_ref().copied().map_err(String::as_str), log);
            }
            Purpose::Write { segment, server, up_to, sealed } => match taken(result) {
                Ok(Answer { status: Status::Ok, number, .. }) => {
                    self.peers.trust(server);
                    self.written(
                        segment,
                        server,
                        (up_to, sealed),
                        usize::try_from(number).unwrap_or(0),
                    );
                    self.tell(log);
                }
                Ok(Answer { status: Status::Fenced, .. }) => self.fenced = true,
                Ok(other) => self.give_up(
                    now,
                    segment,
                    server,
                    &refusal(&other).err().unwrap_or_default(),
                    log,
                ),
                Err(why) => self.give_up(now, segment, server, &why, log),
            },
        }
        true
    }

    /// A backup has what it was sent.
    fn written(&mut self, segment: u64, server: u32, (up_to, sealed): (usize, bool), room: usize) {
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

    /// A backup has failed to take a write: its replica is given up, and another takes its place.
    fn give_up(&mut self, now: Nanos, segment: u64, server: u32, why: &str, log: &Log) {
        self.peers.shun(server, now, why);
        let Some(open) = self.open.get_mut(&segment) else { return };
        let before = open.replicas.len();
        open.replicas.retain(|replica| replica.server != server);
        if open.replicas.len() == before {
            return;
        }
        self.peers.release(server);
        self.counts.replaced += 1;
        open.given_up.push(server);
        // A survivor counts only when it is sealed, and so does what is left of it there.
        let role = log.open_segments().find(|open| open.segment == segment).map(|open| open.role);
        open.tainted |= role == Some(Role::Head);
    }

    /// Tells the log what is durable, and takes note of segments that are done.
    fn tell(&mut self, log: &mut Log) {
        let segments: Vec<OpenSegment> = log.open_segments().collect();
        for (at, segment) in segments.iter().enumerate() {
            let Some(open) = self.open.get_mut(&segment.segment) else { continue };
            let (acked, sealed) = (open.acked(self.copies), open.is_sealed(self.copies));
            if self.min_open == 0 && acked >= segment.header && acked > 0 {
                // The first head of all: before anything is acknowledged it is known that there is
                // a log.
                self.min_open = segment.segment;
            }
            if self.confirmed == 0 {
                return;
            }
            if open.tainted {
                if !sealed {
                    continue;
                }
                // The head behind it is open on its backups, or this one could not be sealed.
                let next = segments.get(at + 1).filter(|next| next.role == Role::Head);
                let next = next.expect("a head is sealed when there is another").segment;
                self.min_open = self.min_open.max(next);
                if self.confirmed < next {
                    continue;
                }
            }
            let (_, durable, told_sealed) = open.told;
            if acked <= durable && sealed == told_sealed {
                continue;
            }
            (open.told.1, open.told.2) = (acked.max(durable), sealed);
            log.mark_durable(segment.segment, acked.max(durable), sealed);
            if sealed {
                let open = self.open.remove(&segment.segment).expect("just seen");
                let mut servers: Vec<u32> =
                    open.replicas.iter().map(|replica| replica.server).collect();
                servers.iter().for_each(|&server| self.peers.release(server));
                servers.retain(|&server| self.peers.contains(server));
                if servers.len() < self.copies {
                    self.healer.is_short(segment.segment);
                }
                self.closed.insert(
                    segment.segment,
                    Closed { servers, given_up: open.given_up, edition: 0 },
                );
            }
        }
    }

    /// How it stands, in words.
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
        let (short, fenced, open) = (self.short(), self.fenced, open.join("; "));
        format!(
            "min open {min_open}, {confirmed} confirmed, {short} short, fenced {fenced}, {open}"
        )
    }
}

/// What a backup has answered; without an answer, why there is none.
fn taken(result: Result<&[u8], CallFailure>) -> Result<Answer<'_>, String> {
    let answer = result.map_err(|failure| failure.to_string())?;
    Answer::parse(answer).ok_or_else(|| "its answer makes no sense".to_owned())
}

/// Why a backup has not taken what it was sent, if it has not.
fn refusal(answer: &Answer<'_>) -> Result<(), String> {
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
fn draw(state: &mut u64, choices: usize) -> usize {
    usize::try_from(xorshift(state) % choices as u64).expect("64-bit")
}
