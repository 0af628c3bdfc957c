//! The coordinator holds a server's poll until there are newer assignments, and a client's change
//! until the servers concerned have applied it. It holds neither beyond a time limit. It holds a
//! client's request for the catalog until it knows that it still leads.

use super::{BUSY_MICROS, Coordinator};
use crate::answers::{answer, answer_text};
use crate::coordinator::members::RENEWAL;
use crate::coordinator::metadata::Metadata;
use sprat_net::Nanos;
use sprat_rpc::{Outcome, Repeat, RequestId};
use sprat_wire::op::{Status, TableRecord};
use std::time::Duration;

/// How long the poll of a server without a lease stays unanswered while there are no newer
/// assignments. It is less than the time after which the server's client considers a request lost.
pub const POLL: Duration = Duration::from_millis(250);

const _: () = assert!(
    POLL.as_millis() < sprat_client::ATTEMPT_TIMEOUT.as_millis(),
    "else no question is ever answered"
);

/// How long the poll of a server that recovers or moves tablets stays unanswered. The server can
/// report its result only after it got the reply.
const BUSY_POLL: Duration = Duration::from_millis(5);

/// How long a client's change waits for the servers concerned to apply it. After that the client
/// gets the reply anyway, because the change is durable.
pub const APPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest number of polls that wait at once; further polls are answered with `Retry`. The
/// number also limits pending changes: a session may always have one pending change, and more only
/// while it has fewer than could still be added.
pub const MAX_WAITING: usize = 4096;

/// The poll of a server, waiting for newer assignments.
pub(super) struct PendingPoll {
    id: RequestId,
    server: u32,
    pub(super) known: u64,
    arrived: Nanos,
    pub(super) until: Nanos,
}

/// A client's change, waiting for the servers concerned to apply it.
pub(super) struct PendingChange {
    id: RequestId,
    servers: Vec<u32>,
    version: u64,
    pub(super) until: Nanos,
    table: Option<TableRecord>,
}

/// A client's request for the catalog, waiting until the coordinator is known to lead still.
pub(super) struct PendingCopy {
    id: RequestId,
    arrived: Nanos,
}

impl<M: Metadata> Coordinator<M> {
    /// Replies with a copy of the catalog that is not older than the request. A coordinator that
    /// was deposed learns so up to [`LEADER_LEASE`](super::super::election::LEADER_LEASE) later;
    /// the tablets in its catalog may have moved by then, and a backup of the servers that it names
    /// would lack their objects.
    pub(super) fn copy_confirmed(&mut self, now: Nanos, id: RequestId) -> Outcome<u32> {
        let Some(candidacy) = &self.candidacy else { return self.copy_catalog() };
        if !self.may_wait(id, self.copies.len(), self.copies.iter().map(|copy| copy.id)) {
            return Outcome::Retry(BUSY_MICROS);
        }
        candidacy.mailbox.confirm();
        self.copies.push(PendingCopy { id, arrived: now });
        Outcome::Pending
    }

    /// Returns whether a session may have another request that waits, when `all` requests of that
    /// kind wait, with these ids: as long as it has fewer than could still be added, so that no
    /// client keeps others from making such requests.
    fn may_wait(&self, id: RequestId, all: usize, ids: impl Iterator<Item = RequestId>) -> bool {
        let own = ids.filter(|other| other.session() == id.session()).count();
        own == 0 || own < MAX_WAITING.saturating_sub(all)
    }

    /// Replies to a change once `servers` have applied the catalog's present version, or after
    /// [`APPLY_TIMEOUT`]. If the session has too many pending changes, asks it to retry.
    pub(super) fn await_applied(
        &mut self,
        now: Nanos,
        id: RequestId,
        mut servers: Vec<u32>,
        table: Option<TableRecord>,
    ) -> Outcome<u32> {
        servers.sort_unstable();
        servers.dedup();
        if !self.may_wait(id, self.changes.len(), self.changes.iter().map(|change| change.id)) {
            return Outcome::Retry(BUSY_MICROS);
        }
        let (version, until) = (self.catalog.version(), now + APPLY_TIMEOUT);
        self.changes.push(PendingChange { id, servers, version, until, table });
        Outcome::Pending
    }

    /// Holds the poll of a server that has version `known` until there are newer assignments.
    pub(super) fn poll_assignments(
        &mut self,
        now: Nanos,
        id: RequestId,
        server: u32,
        known: u64,
    ) -> Outcome<u32> {
        if !self.members.polled(now, server, known, &self.catalog) {
            // The server enlisted before a restart of the coordinator, or it never enlisted, or it
            // was declared dead.
            let version = self.catalog.version();
            return Outcome::Reply(answer(Status::NotFound, false, 0, version, Repeat::Retain));
        }
        if self.polls.len() >= MAX_WAITING {
            return Outcome::Retry(BUSY_MICROS);
        }
        let leased = self.catalog.server(server).is_some_and(|known| known.copies > 0);
        // Only one poll per server waits: a newer poll shows that the server does not await the
        // reply to the older one. The older poll gets a reply nevertheless, because otherwise the
        // server could never use its request slot in the session again.
        if let Some(at) = self.polls.iter().position(|poll| poll.server == server) {
            let PendingPoll { id, known, .. } = self.polls.swap_remove(at);
            self.session = id.session();
            let outcome = self.assignments(now, server, known);
            self.ready.push_back((id, outcome));
        }
        let hold = match (leased, self.members.is_busy(server, &self.catalog)) {
            (true, true) => BUSY_POLL,
            (true, false) => RENEWAL,
            (false, _) => POLL,
        };
        let until = now + hold;
        self.polls.push(PendingPoll { id, server, known, arrived: now, until });
        Outcome::Pending
    }

    fn assignments(&mut self, now: Nanos, server: u32, known: u64) -> Outcome<u32> {
        if let Some(reason) = &self.behind {
            return answer_text(&mut self.bodies, Status::WrongCluster, reason);
        }
        let assignment = self.members.assignment(now, (server, known), &self.catalog);
        let version = self.catalog.version();
        self.reply(Status::Ok, version, |out| assignment.encode(out))
    }

    /// Replies to the polls, changes and copies that are due.
    pub(super) fn answer_due(&mut self, now: Nanos) {
        let version = self.catalog.version();
        let mut due = Vec::new();
        self.polls.retain(|poll| {
            // A poll that arrived in this iteration of the loop is answered in the next. If the
            // process was suspended in between, this iteration's `now` may be older than the poll.
            // A lease that is counted from `now` would then end before the lease that the server
            // itself counts.
            let keep = poll.arrived >= now || (poll.known == version && now < poll.until);
            if !keep {
                due.push((poll.id, poll.server, poll.known));
            }
            keep
        });
        for (id, server, known) in due {
            self.session = id.session();
            let outcome = self.assignments(now, server, known);
            self.ready.push_back((id, outcome));
        }
        let valid = self.candidacy.as_ref().map(|candidacy| candidacy.valid.clone());
        let is_confirmed = |copy: &PendingCopy| {
            valid.as_ref().is_none_or(|valid| valid.is_confirmed_since(copy.arrived))
        };
        let (copies, waiting) =
            std::mem::take(&mut self.copies).into_iter().partition(is_confirmed);
        self.copies = waiting;
        self.reply_copies(copies, Self::copy_catalog);
        let members = &self.members;
        let mut done = Vec::new();
        self.changes.retain_mut(|change| {
            let applied =
                change.servers.iter().all(|&server| members.has_applied(server, change.version));
            let keep = !applied && now < change.until;
            if !keep {
                done.push((change.id, change.table.take()));
            }
            keep
        });
        for (id, table) in done {
            self.session = id.session();
            let outcome = self.reply_changed(table, version);
            self.ready.push_back((id, outcome));
        }
    }

    fn reply_copies(
        &mut self,
        copies: Vec<PendingCopy>,
        reply: impl Fn(&mut Self) -> Outcome<u32>,
    ) {
        for PendingCopy { id, .. } in copies {
            self.session = id.session();
            let outcome = reply(self);
            self.ready.push_back((id, outcome));
        }
    }

    /// Completes all pending requests when leadership is lost: polls and copies fail with
    /// `NotLeading`; changes, which are durable, succeed.
    pub(super) fn complete_all(&mut self) {
        for poll in std::mem::take(&mut self.polls) {
            self.session = poll.id.session();
            let outcome = self.not_leading();
            self.ready.push_back((poll.id, outcome));
        }
        let copies = std::mem::take(&mut self.copies);
        self.reply_copies(copies, Self::not_leading);
        for change in std::mem::take(&mut self.changes) {
            self.session = change.id.session();
            let outcome = self.reply_changed(change.table, change.version);
            self.ready.push_back((change.id, outcome));
        }
    }

    /// Replies with a copy of the catalog.
    pub(super) fn copy_catalog(&mut self) -> Outcome<u32> {
        let copy = self.catalog.copy();
        self.reply(Status::Ok, self.catalog.version(), |out| out.extend_from_slice(&copy))
    }

    /// Replies that a change was made.
    fn reply_changed(&mut self, table: Option<TableRecord>, version: u64) -> Outcome<u32> {
        match table {
            Some(table) => self.reply_table(&table),
            None => Outcome::Reply(answer(Status::Ok, false, 0, version, Repeat::Retain)),
        }
    }
}
