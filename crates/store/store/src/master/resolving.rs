//! Ends transactions whose clients are silent, in their place: asks all participants for their
//! votes, then sends them the decision. Every server does so for the operations that are prepared
//! at it; if several do it at once, they come to the same decision. See
//! [`sprat_wire::transaction`].

use super::{Master, ServedTablets};
use crate::node::Caller;
use sprat_disk::Disk;
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, SessionId};
use sprat_wire::once::OperationId;
use sprat_wire::op::{Answer, Request, Status};
use sprat_wire::transaction::{Decision, OperationState, Participant, Votes};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use zerocopy::IntoBytes as _;

/// How long an operation is prepared here before the server looks after its transaction.
pub const SILENCE: Duration = Duration::from_secs(1);

/// How often the server looks for such operations.
const SWEEP: Duration = Duration::from_millis(250);

/// The largest number of transactions that a server looks after at a time.
const MAX_RESOLUTIONS: usize = 1024;

/// Timeout of a request to another server.
const PATIENCE: Duration = Duration::from_millis(500);

/// Delay before a request is repeated that had no usable answer, or that cannot be sent because the
/// server does not know which server has the tablet.
const RETRY: Duration = Duration::from_millis(50);

/// Where the tablets of a table are: each tablet's first position, and its server's address if it
/// has a server. `None`: the table was dropped.
pub type TabletAddresses = Option<Vec<(u64, Option<SocketAddr>)>>;

/// A transaction that this server looks after.
struct Resolution {
    /// One of its operations that is prepared here.
    own: Participant,
    participants: Vec<Participant>,
    step: Decision,
    /// The operations for which the step still has to be done, by their indices.
    todo: Vec<usize>,
    calls: Vec<(CallId, usize)>,
    votes: Votes,
    /// The log position up to which the log must be durable before the next step.
    position: u64,
    retry_at: Nanos,
}

impl Resolution {
    fn new(own: Participant, participants: Vec<Participant>) -> Self {
        Self {
            own,
            todo: (0..participants.len()).collect(),
            participants,
            step: Decision::Vote,
            calls: Vec::new(),
            votes: Votes::default(),
            position: 0,
            retry_at: Nanos(0),
        }
    }

    /// Goes on to the next step; returns whether there is one.
    fn next_step(&mut self) -> bool {
        self.step = match self.step {
            Decision::Vote => self.votes.decision(),
            Decision::Commit | Decision::Abort => Decision::End,
            Decision::End => return false,
        };
        self.todo = (0..self.participants.len()).collect();
        true
    }

    /// Notes that an operation's server could not be asked. At the end there is no need to repeat a
    /// request, since every server looks after what is left at it.
    fn failed(&mut self, now: Nanos, at: usize) {
        if self.step != Decision::End {
            self.todo.push(at);
            self.retry_at = now + RETRY;
        }
    }
}

/// The transactions that this server looks after.
#[derive(Default)]
pub(super) struct Resolver {
    /// When each operation that is prepared here was first seen.
    seen: BTreeMap<(u32, OperationId), Nanos>,
    sweep_at: Nanos,
    resolutions: Vec<Resolution>,
    /// The tables whose location the coordinator has given since it was last doubted.
    places: BTreeMap<u32, TabletAddresses>,
    sessions: BTreeMap<SocketAddr, SessionId>,
    /// Sessions that are no longer needed, still to be closed.
    abandoned_sessions: Vec<SessionId>,
    /// Number of transactions that were ended.
    pub(super) resolved: u64,
}

impl Resolver {
    /// Notes where a table's tablets are.
    pub(super) fn located(&mut self, table: u32, addresses: TabletAddresses) {
        self.places.insert(table, addresses);
    }

    /// Handles the end of a call; returns whether it was a call of one of the transactions.
    pub(super) fn completed(
        &mut self,
        now: Nanos,
        call: CallId,
        result: Result<&[u8], CallFailure>,
    ) -> bool {
        let mine = |one: &Resolution| one.calls.iter().any(|(other, _)| *other == call);
        let Some(resolution) = self.resolutions.iter_mut().find(|one| mine(one)) else {
            return false;
        };
        let index = resolution.calls.iter().position(|(other, _)| *other == call);
        let (_, at) = resolution.calls.swap_remove(index.expect("found above"));
        let answer = result.ok().and_then(Answer::parse);
        let state = answer
            .filter(|answer| answer.status == Status::Ok)
            .and_then(|answer| OperationState::of(answer.number));
        match state {
            Some(state) => resolution.votes.add(state),
            None => {
                // The tablet may have moved, or its server may be gone.
                self.places.remove(&resolution.participants[at].table);
                resolution.failed(now, at);
            }
        }
        if result.is_err() {
            let lost = self.sessions.extract_if(.., |_, session| *session == call.session());
            self.abandoned_sessions.extend(lost.map(|(_, session)| session));
        }
        true
    }
}

impl<D: Disk> Master<D> {
    /// Looks after transactions whose clients are silent; returns whether there was anything to do.
    pub(super) fn poll_resolver(&mut self, now: Nanos) -> bool {
        if !self.log.has_prepared() && self.resolver.resolutions.is_empty() {
            return false;
        }
        let mut worked = false;
        if now >= self.resolver.sweep_at {
            self.resolver.sweep_at = now + SWEEP;
            self.find_silent(now);
        }
        let mut resolutions = std::mem::take(&mut self.resolver.resolutions);
        resolutions.retain_mut(|resolution| {
            let ends = self.resolve_here(now, resolution, &mut worked);
            self.resolver.resolved += u64::from(ends);
            !ends
        });
        if resolutions.is_empty() {
            let sessions = std::mem::take(&mut self.resolver.sessions);
            self.resolver.abandoned_sessions.extend(sessions.into_values());
        }
        self.resolver.resolutions = resolutions;
        worked
    }

    /// Begins to look after the transactions of operations that have long been prepared here.
    fn find_silent(&mut self, now: Nanos) {
        let Self { log, resolver, served, .. } = self;
        let mut seen = BTreeMap::new();
        let participants = resolver.resolutions.iter().flat_map(|one| &one.participants);
        let mut known: BTreeSet<(u32, OperationId)> =
            participants.map(|one| (one.table, one.id)).collect();
        for operation @ (table, id) in log.prepared() {
            let since = *resolver.seen.get(&operation).unwrap_or(&now);
            seen.insert(operation, since);
            if now >= since + SILENCE
                && resolver.resolutions.len() < MAX_RESOLUTIONS
                && !known.contains(&operation)
                && let Some(plan) = log.plan(table, &id)
                && let Some(own) = plan.participant(table, &id)
                && serves(served, &own)
            {
                known.extend(plan.participants().map(|one| (one.table, one.id)));
                resolver.resolutions.push(Resolution::new(own, plan.participants().collect()));
            }
        }
        resolver.seen = seen;
    }

    /// Does what a step needs at this server. Goes on to the next step when the present one is done
    /// everywhere, and durable here. Returns whether the transaction has ended.
    fn resolve_here(&mut self, now: Nanos, resolution: &mut Resolution, worked: &mut bool) -> bool {
        if resolution.step == Decision::Vote && self.log.locked_key(&resolution.own).is_none() {
            return true; // its client, or another server, has ended it
        }
        if now < resolution.retry_at {
            return false;
        }
        for at in std::mem::take(&mut resolution.todo) {
            let participant = resolution.participants[at];
            if !serves(&self.served, &participant) {
                resolution.todo.push(at);
                continue;
            }
            *worked = true;
            match self.decide_here(now, &participant, resolution.step) {
                Some(state) => {
                    resolution.votes.add(state);
                    resolution.position = self.log.position();
                }
                None => resolution.failed(now, at),
            }
        }
        let is_done = resolution.todo.is_empty() && resolution.calls.is_empty();
        if !is_done || !self.is_durable(resolution.position) {
            return false;
        }
        *worked = true;
        !resolution.next_step()
    }

    /// Decides an operation on an object of this server; `None` if that is not possible now.
    pub(super) fn decide_here(
        &mut self,
        now: Nanos,
        participant: &Participant,
        decision: Decision,
    ) -> Option<OperationState> {
        let Participant { table, position, id } = *participant;
        let tablets = self.served.tablets.as_deref()?;
        let (at, _) = ServedTablets::find(tablets, table, |_| position)?;
        let id = id.bytes();
        let request = Request::Decide { table, position, id: &id, decision };
        if self.migration_sources.holds_back(&request, tablets[at], position)
            || !self.is_leased(now)
        {
            return None;
        }
        self.carry_out(participant, decision).ok()
    }

    /// Sends the requests of the steps to other servers.
    pub(super) fn call_resolver(&mut self, now: Nanos, caller: &mut dyn Caller) {
        let Self { resolver, served, inbox, .. } = self;
        resolver.abandoned_sessions.drain(..).for_each(|session| caller.close(session));
        let Resolver { resolutions, places, sessions, .. } = resolver;
        for resolution in resolutions {
            if resolution.todo.is_empty() || now < resolution.retry_at {
                continue;
            }
            for at in std::mem::take(&mut resolution.todo) {
                let participant = resolution.participants[at];
                let Participant { table, position, id } = participant;
                if serves(served, &participant) {
                    resolution.todo.push(at);
                    continue;
                }
                let Some(place) = places.get(&table) else {
                    inbox.wants_table(table);
                    resolution.failed(now, at);
                    continue;
                };
                // The table was dropped, and what this operation would have changed with it.
                // Perhaps the operation was prepared and the transaction acknowledged, so it must
                // not be aborted for this.
                let Some(tablets) = place else { continue };
                let tablet = tablets.partition_point(|&(first, _)| first <= position);
                let address = tablet.checked_sub(1).and_then(|tablet| tablets[tablet].1);
                let Some(address) = address else {
                    places.remove(&table);
                    resolution.failed(now, at);
                    continue;
                };
                let session = sessions.get(&address).copied();
                let session = session.or_else(|| caller.connect(address).ok());
                let id = id.bytes();
                let decision = resolution.step;
                let request = Request::Decide { table, position, id: &id, decision };
                let (header, key, _) = request.parts();
                let parts = [header.as_bytes(), key];
                let call = session.and_then(|session| {
                    sessions.insert(address, session);
                    caller.call(session, &parts, now + PATIENCE).ok()
                });
                match call {
                    Some(call) => resolution.calls.push((call, at)),
                    None => resolution.failed(now, at),
                }
            }
        }
    }

    /// Returns when to look after transactions again although nothing arrives.
    pub(super) fn resolver_deadline(&self) -> Option<Nanos> {
        if !self.log.has_prepared() && self.resolver.resolutions.is_empty() {
            return None;
        }
        let waiting = self.resolver.resolutions.iter().filter(|one| !one.todo.is_empty());
        let retry = waiting.map(|one| one.retry_at).min();
        Some(self.resolver.sweep_at.min(retry.unwrap_or(Nanos::NEVER)))
    }
}

/// Returns whether this server serves the object of an operation.
fn serves(served: &ServedTablets, participant: &Participant) -> bool {
    let tablets = served.tablets.as_deref().unwrap_or_default();
    ServedTablets::find(tablets, participant.table, |_| participant.position).is_some()
}
