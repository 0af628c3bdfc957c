//! The target of a migration: requests a tablet's entries, adopts them into the log, and reports
//! when all of them are durable.

use crate::master::{Inbox, RecoveryResult};
use crate::node::Caller;
use crate::replication::BackupServer;
use sprat_log::{Full, Log};
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, SessionId};
use sprat_wire::entry::{Entry, Kind};
use sprat_wire::once::{COMPLETIONS, Completion};
use sprat_wire::op::{Answer, MoveCursor, MoveOrder, MoveStage, Request, Status};
use sprat_wire::tablet::{Tablet, table_of};
use std::time::Duration;
use zerocopy::IntoBytes;

/// The largest number of entries that one migration adopts in one loop iteration.
const SLICE_ENTRIES: usize = 16;

/// The target has the source freeze the tablet when at most this number of changes is left.
const FREEZE_BELOW: u64 = 64;

/// After this number of batches of changes the source freezes the tablet, however many changes are
/// left.
const MAX_BATCHES: u64 = 4096;

/// Limit on the rate at which a migration's target requests entries, in bytes per second. A
/// migration may take long, but clients that read from either server must not wait for it.
const BYTES_A_SECOND: u64 = 24 << 20;

/// Timeout of a request.
const PATIENCE: Duration = Duration::from_millis(500);

/// Delay before a request is repeated that could not be sent, or whose reply is missing or useless.
const RETRY: Duration = Duration::from_millis(5);

/// The step of a migration.
enum Step {
    /// Objects that an earlier owner or attempt left of the tablet in this log must be dropped
    /// first.
    Clearing,
    /// Entries are requested and adopted.
    Collecting,
    /// Everything is in the log; versions of new objects must now follow the source's versions.
    Raising,
    /// The log must become durable up to this position.
    Settling(u64),
    /// Done or failed; `failure` is empty after success. `reported` says whether the result was
    /// passed on for the coordinator.
    Ended { reported: bool, failure: &'static str },
}

struct MigrationTarget {
    order: MoveOrder,
    source: Option<BackupServer>,
    session: Option<SessionId>,
    step: Step,
    /// First segment of this log whose entries of the tablet count.
    since: u64,
    /// The next request: its stage, and the position after which it continues.
    stage: MoveStage,
    after: u64,
    batch: u64,
    call: Option<CallId>,
    /// When the last request was made, and when the next may be made.
    requested_at: Nanos,
    retry_at: Nanos,
    /// The entries received last, and the number of their bytes that are adopted.
    bytes: Vec<u8>,
    at: usize,
    /// Whether the entries received last are the last of the tablet.
    is_all: bool,
    /// Lowest version that the source would give to a new object.
    least_version: u64,
}

/// Totals since the start: the migrations that succeeded, and the entries that were adopted, also
/// by migrations that are under way or have failed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) moves: u64,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

/// All tablets that move here.
#[derive(Default)]
pub(crate) struct MigrationTargets {
    targets: Vec<MigrationTarget>,
    /// Sessions that are no longer needed, still to be closed.
    abandoned_sessions: Vec<SessionId>,
    totals: Totals,
}

impl MigrationTargets {
    /// Begins the migrations in `orders` that are new, and ends those that are no longer in
    /// `orders`. `members` has the sources' addresses. Returns the tablets of the ended ones: for
    /// each of these tablets that is not served here now, the caller drops the entries that were
    /// adopted.
    pub(crate) fn assign(&mut self, orders: &[MoveOrder], members: &[BackupServer]) -> Vec<Tablet> {
        let ended = self.targets.extract_if(.., |target| !orders.contains(&target.order));
        let ended = ended.map(|target| {
            self.abandoned_sessions.extend(target.session);
            target.order.tablet
        });
        let ended = ended.collect();
        for &order in orders {
            match self.targets.iter_mut().find(|target| target.order == order) {
                Some(target) => target.assigned_again(members),
                None => self.targets.push(MigrationTarget::new(order, members)),
            }
        }
        ended
    }

    /// Returns the tablets that move here.
    pub(crate) fn tablets(&self) -> impl Iterator<Item = Tablet> {
        self.targets.iter().map(|target| target.order.tablet)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Renders the state of all migrations for people.
    pub(crate) fn describe(&self) -> String {
        self.targets.iter().map(MigrationTarget::describe).collect::<Vec<_>>().join("; ")
    }

    /// Does what is due; returns whether there was anything to do.
    pub(crate) fn poll(&mut self, log: &mut Log, inbox: &Inbox) -> bool {
        let mut worked = false;
        for target in &mut self.targets {
            worked |= target.advance(log, &mut self.totals);
            if let Step::Ended { reported: reported @ false, failure } = &mut target.step {
                *reported = true;
                worked = true;
                let failure = (*failure).to_owned();
                inbox.report_recovery(RecoveryResult {
                    order: target.order.id,
                    since: target.since,
                    failure,
                    no_room: false,
                });
            }
        }
        worked
    }

    pub(crate) fn call(&mut self, now: Nanos, caller: &mut dyn Caller) {
        self.abandoned_sessions.drain(..).for_each(|session| caller.close(session));
        self.targets.iter_mut().for_each(|target| target.request_next(now, caller));
    }

    /// Handles the end of a call; returns whether it was a call of one of the migrations.
    pub(crate) fn completed(
        &mut self,
        now: Nanos,
        call: CallId,
        result: Result<&[u8], CallFailure>,
    ) -> bool {
        let Some(target) = self.targets.iter_mut().find(|target| target.call == Some(call)) else {
            return false;
        };
        target.call = None;
        if result.is_err() {
            self.abandoned_sessions.extend(target.session.take());
        }
        if !target.take(result.ok().and_then(Answer::parse)) {
            target.retry_at = now + RETRY;
        }
        true
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.targets
            .iter()
            .filter(|target| target.wants_request())
            .map(|target| target.retry_at)
            .min()
    }
}

impl MigrationTarget {
    fn new(order: MoveOrder, members: &[BackupServer]) -> Self {
        Self {
            order,
            source: source_of(&order, members),
            session: None,
            step: Step::Clearing,
            since: 0,
            stage: MoveStage::Completions,
            after: MoveCursor::FROM_START,
            batch: 0,
            call: None,
            requested_at: Nanos(0),
            retry_at: Nanos(0),
            bytes: Vec::new(),
            at: 0,
            is_all: false,
            least_version: 0,
        }
    }

    fn assigned_again(&mut self, members: &[BackupServer]) {
        // The source is not among the members while its locator does not resolve.
        self.source = self.source.or_else(|| source_of(&self.order, members));
        // If the result was reported, the report may not have reached this coordinator.
        if let Step::Ended { reported, .. } = &mut self.step {
            *reported = false;
        }
    }

    fn describe(&self) -> String {
        let step = match self.step {
            Step::Clearing => "clearing".to_owned(),
            Step::Collecting => format!("requesting {:?}, batch {}", self.stage, self.batch),
            Step::Raising => "raising versions".to_owned(),
            Step::Settling(position) => format!("until position {position} is durable"),
            Step::Ended { reported, failure } => format!("ended, reported {reported}, {failure}"),
        };
        format!("{} arrives from server {}: {step}", self.order.tablet, self.order.from)
    }

    /// Returns whether the migration has a request to send as soon as `retry_at` allows.
    fn wants_request(&self) -> bool {
        matches!(self.step, Step::Collecting)
            && self.call.is_none()
            && self.at == self.bytes.len()
            && !self.is_all
    }

    fn advance(&mut self, log: &mut Log, totals: &mut Totals) -> bool {
        match self.step {
            Step::Clearing => {
                // The migration begins in a new segment, so that no entry that was in this log
                // before counts.
                if log.is_dropping(self.order.tablet) || !log.roll_head() {
                    return false;
                }
                self.since = log.head_pending().0;
                self.step = Step::Collecting;
                true
            }
            Step::Collecting if self.at < self.bytes.len() => self.adopt_slice(log, totals),
            Step::Collecting if self.is_all => {
                self.step = Step::Raising;
                true
            }
            Step::Raising => {
                // The removal of an object that this log does not have is not written to it, so
                // only a segment header can carry a version above that of the last removal.
                if !log.raise_version(self.least_version) && !log.roll_head() {
                    return false;
                }
                self.step = Step::Settling(log.position());
                true
            }
            Step::Settling(position) if log.durable_position() >= position => {
                totals.moves += 1;
                self.step = Step::Ended { reported: false, failure: "" };
                true
            }
            Step::Collecting | Step::Settling(_) | Step::Ended { .. } => false,
        }
    }

    /// Adopts the next received entries into the log. Returns false if the log cannot take one of
    /// them before backups have caught up. If memory or disk is full, ends the migration.
    fn adopt_slice(&mut self, log: &mut Log, totals: &mut Totals) -> bool {
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
                        reported: false,
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

    fn request_next(&mut self, now: Nanos, caller: &mut dyn Caller) {
        if !self.wants_request() || now < self.retry_at {
            return;
        }
        (self.requested_at, self.retry_at) = (now, now + RETRY);
        let Some(source) = self.source else { return };
        if self.session.is_none() {
            self.session = caller.connect(source.address).ok();
        }
        let collected = MoveCursor { after: self.after.into(), batch: self.batch.into() };
        let request =
            Request::Collect { order: self.order.id, stage: self.stage, from: &collected };
        let (header, key, _) = request.parts();
        let parts = [header.as_bytes(), key];
        self.call =
            self.session.and_then(|session| caller.call(session, &parts, now + PATIENCE).ok());
    }

    /// Handles a reply; returns false when it cannot be used, so that the request must be repeated.
    fn take(&mut self, answer: Option<Answer<'_>>) -> bool {
        let Some(answer) = answer else { return false };
        if answer.status == Status::Malformed && self.stage == MoveStage::Elements {
            // The source is older than collections, so it has none.
            (self.stage, self.batch) = (MoveStage::Changes, 1);
            return true;
        }
        if answer.status != Status::Ok {
            return false;
        }
        let Some((least_version, entries)) = answer.body.split_first_chunk::<8>() else {
            return false;
        };
        if !belongs_to_table(self.order.tablet.table, entries) {
            return false;
        }
        self.least_version = self.least_version.max(u64::from_le_bytes(*least_version));
        self.bytes.clear();
        self.bytes.extend_from_slice(entries);
        let pause = Duration::from_nanos(entries.len() as u64 * 1_000_000_000 / BYTES_A_SECOND);
        (self.at, self.retry_at) = (0, self.requested_at + pause);
        match (self.stage, answer.more) {
            (MoveStage::Completions | MoveStage::Objects | MoveStage::Elements, true) => {
                self.after = answer.number
            }
            (MoveStage::Completions, false) => {
                (self.stage, self.after) = (MoveStage::Objects, MoveCursor::FROM_START)
            }
            (MoveStage::Objects, false) => {
                (self.stage, self.after) = (MoveStage::Elements, MoveCursor::FROM_START)
            }
            (MoveStage::Elements, false) => (self.stage, self.batch) = (MoveStage::Changes, 1),
            (MoveStage::Changes, _) => {
                if answer.number <= FREEZE_BELOW || self.batch >= MAX_BATCHES {
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

/// Returns whether these bytes are whole entries of a table, of its completions, of its prepared
/// entries or of its collections' elements.
fn belongs_to_table(table: u32, mut entries: &[u8]) -> bool {
    while !entries.is_empty() {
        match Entry::parse_checked(entries) {
            Ok(entry) if table_of(entry.table) == table && entry.kind != Kind::Segment => {
                entries = &entries[entry.encoded_len()..];
            }
            _ => return false,
        }
    }
    true
}

/// Applies an entry to the log: appends an object or a completion unless the log has it, or a newer
/// one; removes the object of a tombstone.
fn adopt(log: &mut Log, entry: &Entry<'_>) -> Result<(), Full> {
    let Entry { table, key, version, .. } = *entry;
    match (Completion::of(entry), entry.kind) {
        (Some(completion), _) => log.adopt_completion((table, key, version), &completion).map(drop),
        (None, _) if table & COMPLETIONS != 0 => Ok(()),
        (None, Kind::Object) => log.adopt(entry).map(drop),
        (None, _) => log.remove(table, key).map(drop),
    }
}

fn source_of(order: &MoveOrder, members: &[BackupServer]) -> Option<BackupServer> {
    members.iter().find(|member| member.server == order.from).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sprat_wire::tablet::Range;

    #[test]
    fn a_source_whose_address_is_known_only_later_is_found() {
        let tablet = Tablet { table: 1, range: Range::ALL };
        let order = MoveOrder { id: 7, tablet, from: 2, to: 3 };
        let source =
            BackupServer { server: 2, address: "10.0.0.2:9".parse().expect("an address"), rack: 0 };
        let mut targets = MigrationTargets::default();
        targets.assign(&[order], &[]);
        assert_eq!(targets.targets[0].source, None);
        targets.assign(&[order], &[source]);
        assert_eq!(targets.targets[0].source, Some(source));
    }
}
