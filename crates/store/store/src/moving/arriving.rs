//! Tablets that move here: asked for, let into the log, and reported when all of it is durable.

use crate::master::{Inbox, Recovered};
use crate::node::Caller;
use crate::replication::Member;
use sprat_log::{Full, Log};
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, SessionId};
use sprat_wire::entry::{Entry, Kind};
use sprat_wire::once::{COMPLETIONS, Completion};
use sprat_wire::op::{Answer, MoveCursor, MoveOrder, MoveStage, Request, Status};
use sprat_wire::tablet::Tablet;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Entries let in between two turns of the node's loop.
const SLICE_ENTRIES: usize = 16;

/// So few changes are left that the tablet may stand still for them.
const FEW: u64 = 64;

/// Batches of changes after which it stands still however many are left.
const MAX_BATCHES: u64 = 4096;

/// Bytes that are asked for in a second at most: a tablet that moves is in no hurry, and those who
/// read from either server are.
const BYTES_A_SECOND: u64 = 24 << 20;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// When to ask again what was not answered.
const RETRY: Duration = Duration::from_millis(5);

/// What a move is at.
enum Step {
    /// What was here of the tablet before has to go.
    Clearing,
    /// Asking for it, and letting it in.
    Asking,
    /// All is in the log; then versions go on behind those of who had it.
    Raising,
    /// Until the log is durable up to this position.
    Settling(u64),
    /// The coordinator was told, or is to be told again.
    Ended { told: bool, failure: &'static str },
}

struct Arrival {
    order: MoveOrder,
    from: Option<Member>,
    session: Option<SessionId>,
    step: Step,
    /// The segment of the log here from which on entries of the tablet count.
    since: u64,
    /// What to ask for next.
    stage: MoveStage,
    after: u64,
    batch: u64,
    call: Option<CallId>,
    /// When it was asked for last, and when it may be asked again.
    asked_at: Nanos,
    retry_at: Nanos,
    /// What came last, and how much of it is let in.
    bytes: Vec<u8>,
    at: usize,
    /// That was the last of it.
    is_all: bool,
    /// New objects have this version at least where it came from.
    least_version: u64,
}

/// What came of those that have ended.
#[derive(Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) moves: u64,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

/// All tablets that move here.
#[derive(Default)]
pub(crate) struct Arrivals {
    arrivals: Vec<Arrival>,
    /// Sessions that nobody needs any more, to be closed.
    left: Vec<SessionId>,
    totals: Totals,
}

impl Arrivals {
    /// These are to move here now; who has them is among `members`. Returns those that have ended:
    /// of what is not served here now, what came has to go.
    pub(crate) fn assign(&mut self, orders: &[MoveOrder], members: &[Member]) -> Vec<Tablet> {
        let ended = self.arrivals.extract_if(.., |arrival| !orders.contains(&arrival.order));
        let ended = ended.map(|arrival| {
            self.left.extend(arrival.session);
            arrival.order.tablet
        });
        let ended = ended.collect();
        for &order in orders {
            match self.arrivals.iter_mut().find(|arrival| arrival.order == order) {
                // If it was told, that may not have reached this coordinator.
                Some(Arrival { step: Step::Ended { told, .. }, .. }) => *told = false,
                Some(_) => {}
                None => self.arrivals.push(Arrival::new(order, members)),
            }
        }
        ended
    }

    /// The tablets that move here.
    pub(crate) fn tablets(&self) -> impl Iterator<Item = Tablet> {
        self.arrivals.iter().map(|arrival| arrival.order.tablet)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// How they stand, in words.
    pub(crate) fn describe(&self) -> String {
        self.arrivals.iter().map(Arrival::describe).collect::<Vec<_>>().join("; ")
    }

    /// Goes on with what is under way; returns whether there was anything to do.
    pub(crate) fn poll(&mut self, log: &mut Log, inbox: &Inbox) -> bool {
        let mut worked = false;
        for arrival in &mut self.arrivals {
            worked |= arrival.go_on(log, &mut self.totals);
            if let Step::Ended { told: told @ false, failure } = &mut arrival.step {
                *told = true;
                worked = true;
                let failure = (*failure).to_owned();
                inbox.recovered(Recovered {
                    order: arrival.order.id,
                    since: arrival.since,
                    failure,
                });
            }
        }
        worked
    }

    pub(crate) fn call(&mut self, now: Nanos, caller: &mut dyn Caller) {
        self.left.drain(..).for_each(|session| caller.close(session));
        self.arrivals.iter_mut().for_each(|arrival| arrival.ask(now, caller));
    }

    /// A call has ended; returns whether it was one of these.
    pub(crate) fn completed(
        &mut self,
        now: Nanos,
        call: CallId,
        result: Result<&[u8], CallFailure>,
    ) -> bool {
        let Some(arrival) = self.arrivals.iter_mut().find(|arrival| arrival.call == Some(call))
        else {
            return false;
        };
        arrival.call = None;
        if result.is_err() {
            self.left.extend(arrival.session.take());
        }
        if !arrival.take(result.ok().and_then(Answer::parse)) {
            arrival.retry_at = now + RETRY;
        }
        true
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.arrivals.iter().filter(|arrival| arrival.asks()).map(|arrival| arrival.retry_at).min()
    }
}

impl Arrival {
    fn new(order: MoveOrder, members: &[Member]) -> Self {
        Self {
            order,
            from: members.iter().find(|member| member.server == order.from).copied(),
            session: None,
            step: Step::Clearing,
            since: 0,
            stage: MoveStage::Completions,
            after: MoveCursor::FROM_START,
            batch: 0,
            call: None,
            asked_at: Nanos(0),
            retry_at: Nanos(0),
            bytes: Vec::new(),
            at: 0,
            is_all: false,
            least_version: 0,
        }
    }

    fn describe(&self) -> String {
        let step = match self.step {
            Step::Clearing => "clearing".to_owned(),
            Step::Asking => format!("asking for {:?}, batch {}", self.stage, self.batch),
            Step::Raising => "raising versions".to_owned(),
            Step::Settling(position) => format!("until position {position} is durable"),
            Step::Ended { told, failure } => format!("ended, told {told}, {failure}"),
        };
        format!("{} comes from server {}: {step}", self.order.tablet, self.order.from)
    }

    /// Whether it is to ask for something as soon as it may.
    fn asks(&self) -> bool {
        matches!(self.step, Step::Asking)
            && self.call.is_none()
            && self.at == self.bytes.len()
            && !self.is_all
    }

    fn go_on(&mut self, log: &mut Log, totals: &mut Totals) -> bool {
        match self.step {
            Step::Clearing => {
                // In a segment of its own, so that nothing that was here before counts.
                if log.is_dropping(self.order.tablet) || !log.roll_head() {
                    return false;
                }
                self.since = log.head_pending().0;
                self.step = Step::Asking;
                true
            }
            Step::Asking if self.at < self.bytes.len() => self.let_in(log, totals),
            Step::Asking if self.is_all => {
                self.step = Step::Raising;
                true
            }
            Step::Raising => {
                // Of what was removed nothing is written here: that versions go on behind it, only
                // a head can tell.
                if !log.raise_version(self.least_version) && !log.roll_head() {
                    return false;
                }
                self.step = Step::Settling(log.position());
                true
            }
            Step::Settling(position) if log.durable_position() >= position => {
                totals.moves += 1;
                self.step = Step::Ended { told: false, failure: "" };
                true
            }
            Step::Asking | Step::Settling(_) | Step::Ended { .. } => false,
        }
    }

    /// Lets some of what came into the log; returns whether it could.
    fn let_in(&mut self, log: &mut Log, totals: &mut Totals) -> bool {
        for _ in 0..SLICE_ENTRIES {
            let Some(rest) = self.bytes.get(self.at..).filter(|rest| !rest.is_empty()) else {
                break;
            };
            let entry = Entry::parse(rest).expect("checked when it came");
            match adopt(log, &entry) {
                Ok(()) => {}
                Err(Full::Replication) => return false,
                Err(Full::Memory | Full::Disk) => {
                    self.step = Step::Ended {
                        told: false,
                        failure: "it does not fit into that server's memory",
                    };
                    return true;
                }
            }
            let len = entry.encoded_len();
            self.at += len;
            (totals.objects, totals.bytes) = (totals.objects + 1, totals.bytes + len as u64);
        }
        true
    }

    fn ask(&mut self, now: Nanos, caller: &mut dyn Caller) {
        if !self.asks() || now < self.retry_at {
            return;
        }
        (self.asked_at, self.retry_at) = (now, now + RETRY);
        let Some(from) = self.from else { return };
        if self.session.is_none() {
            self.session = caller.connect(from.address).ok();
        }
        let collected = MoveCursor { after: self.after.into(), batch: self.batch.into() };
        let request =
            Request::Collect { order: self.order.id, stage: self.stage, from: &collected };
        let (header, key, _) = request.parts();
        let parts = [header.as_bytes(), key];
        self.call =
            self.session.and_then(|session| caller.call(session, &parts, now + PATIENCE).ok());
    }

    /// An answer has come; false when it is none to go on with, and the same has to be asked again.
    fn take(&mut self, answer: Option<Answer<'_>>) -> bool {
        let Some(answer) = answer.filter(|answer| answer.status == Status::Ok) else {
            return false;
        };
        let Some((least_version, entries)) = answer.body.split_first_chunk::<8>() else {
            return false;
        };
        if !is_of(self.order.tablet.table, entries) {
            return false;
        }
        self.least_version = self.least_version.max(u64::from_le_bytes(*least_version));
        self.bytes.clear();
        self.bytes.extend_from_slice(entries);
        let paid = Duration::from_nanos(entries.len() as u64 * 1_000_000_000 / BYTES_A_SECOND);
        (self.at, self.retry_at) = (0, self.asked_at + paid);
        match (self.stage, answer.more) {
            (MoveStage::Completions | MoveStage::Objects, true) => self.after = answer.number,
            (MoveStage::Completions, false) => {
                (self.stage, self.after) = (MoveStage::Objects, MoveCursor::FROM_START)
            }
            (MoveStage::Objects, false) => (self.stage, self.batch) = (MoveStage::Changes, 1),
            (MoveStage::Changes, _) => {
                if answer.number <= FEW || self.batch >= MAX_BATCHES {
                    self.stage = MoveStage::Rest;
                }
                self.batch += 1;
            }
            (MoveStage::Rest, true) => self.batch += 1,
            (MoveStage::Rest, false) => self.is_all = true,
        }
        true
    }
}

/// Whether these bytes are whole entries of a table, or of its completions.
fn is_of(table: u32, mut entries: &[u8]) -> bool {
    while !entries.is_empty() {
        match Entry::parse_checked(entries) {
            Ok(entry) if entry.table & !COMPLETIONS == table && entry.kind != Kind::Segment => {
                entries = &entries[entry.encoded_len()..];
            }
            _ => return false,
        }
    }
    true
}

/// Takes an entry into the log, unless it is there.
fn adopt(log: &mut Log, entry: &Entry<'_>) -> Result<(), Full> {
    let Entry { table, key, value, value_type, version, .. } = *entry;
    match (Completion::of(entry), entry.kind) {
        (Some(completion), _) => log.adopt_completion((table, key, version), &completion).map(drop),
        (None, _) if table & COMPLETIONS != 0 => Ok(()),
        (None, Kind::Object) => log.adopt(table, key, (value_type, value), version).map(drop),
        (None, _) => log.remove(table, key).map(drop),
    }
}
