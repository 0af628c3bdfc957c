//! The calls on one object, prepared for the search: first the calls with a response, in the order
//! of their responses, then those without one, in the order of their invocations.

use super::model::State;
use crate::history::{Action, OPEN, Operation, Response, SETTLED, Value};
use sprat_net::Nanos;
use sprat_wire::op::Condition;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Stands for every text that was never read and does not expire: which of these texts an object
/// holds makes no difference.
const UNREAD: Value = Value::Text { id: 0, len: 0 };

/// The calls on one object. Other fields and methods name a call by its index in `calls`.
pub(super) struct Calls {
    calls: Vec<Operation>,
    /// How many calls have a response.
    answered: u32,
    /// For each answered call, the calls with a later response that were invoked before its
    /// response.
    overlaps: Vec<Vec<u32>>,
    /// For each answered call, the lowest version in the responses of calls that were invoked after
    /// its response.
    least_version_behind: Vec<Option<u64>>,
    /// For each answered call, the latest invocation of a call with an earlier response.
    latest_invocation: Vec<Nanos>,
    /// For each answered call, the unanswered calls that may take place before it: those invoked
    /// before its response that had not settled.
    may_precede: Vec<Range<u32>>,
    /// For each unanswered call, the last earlier unanswered call with the same effect on an
    /// object. The search may assume that the earlier one took place instead.
    equivalents: Vec<Option<u32>>,
    /// The values in responses, by version.
    values: HashMap<u64, Value>,
    /// Versions that answered calls have created, so that no other call created them.
    created: HashSet<u64>,
}

fn count(len: usize) -> u32 {
    u32::try_from(len).expect("a history fits in memory")
}

fn index(call: u32) -> usize {
    call as usize
}

impl Calls {
    /// Prepares the calls on one object, given in any order.
    pub(super) fn new(operations: &[Operation]) -> Self {
        let mut calls = seen_by_readers(operations);
        // A read without a response shows nothing.
        calls.retain(|call| call.action != Action::Read || call.returned != OPEN);
        calls.sort_by_key(|call| (call.returned, call.invoked));
        let answered = calls.partition_point(|call| call.returned != OPEN);
        let (certain, open) = calls.split_at(answered);
        let latest_invocation: Vec<Nanos> = maxima(certain.iter().map(|call| call.began));
        let settled: Vec<Nanos> = maxima(open.iter().map(settled)).split_off(1);
        let may_precede =
            certain.iter().zip(&latest_invocation).map(|(call, &latest_invocation)| {
                let from = settled.partition_point(|&settled| settled < latest_invocation);
                let until = open.partition_point(|other| other.invoked < call.returned);
                count(answered + from)..count(answered + until.max(from))
            });
        let may_precede = may_precede.collect();
        let same = |one: &Operation, other: &Operation| {
            one.action == other.action
                && one.of_transaction == other.of_transaction
                && one.ended <= other.ended
        };
        let equivalent =
            |index: usize| (0..index).rev().find(|&other| same(&open[other], &open[index]));
        let equivalents = (0..open.len())
            .map(|index| equivalent(index).map(|equivalent| count(answered + equivalent)))
            .collect();
        let makes = |call: &&Operation| {
            matches!(call.action, Action::Write { .. } | Action::Increment { .. })
        };
        let mut values = HashMap::new();
        for call in certain {
            match (call.action, call.response) {
                (_, Response::Found { version, value })
                | (Action::Write { value, .. }, Response::Done { version }) => {
                    values.insert(version, value);
                }
                (_, Response::Sum { sum, version }) => {
                    values.insert(version, Value::Sum(sum));
                }
                _ => {}
            }
        }
        let created = certain.iter().filter(makes).filter_map(|call| match call.response {
            Response::Done { version } | Response::Sum { version, .. } => Some(version),
            _ => None,
        });
        let created = created.collect();
        let (overlaps, least_version_behind) = overlaps(certain);
        Self {
            answered: count(answered),
            overlaps,
            least_version_behind,
            latest_invocation,
            may_precede,
            equivalents,
            values,
            created,
            calls,
        }
    }

    /// Returns how many calls have a response.
    pub(super) fn answered(&self) -> u32 {
        self.answered
    }

    /// Returns whether this call has a response.
    pub(super) fn is_answered(&self, call: u32) -> bool {
        call < self.answered
    }

    /// Returns the [`number`](Operation::number) of the call.
    pub(super) fn number(&self, call: u32) -> usize {
        self.calls[index(call)].number
    }

    /// Returns the answered calls, `first` and later ones, that may come next when all before
    /// `first` are done.
    pub(super) fn beside(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::once(first).chain(self.overlaps[index(first)].iter().copied())
    }

    /// Returns the lowest version in the response of a call that must come after `first`.
    pub(super) fn least_version_behind(&self, first: u32) -> Option<u64> {
        self.least_version_behind[index(first)]
    }

    /// Returns the unanswered calls that may come next when all before `first` are done and the
    /// object is in this state.
    pub(super) fn unanswered(&self, first: u32, state: State) -> impl Iterator<Item = u32> + '_ {
        self.may_precede[index(first)]
            .clone()
            .filter(move |&call| !self.is_spent(call, first, state))
    }

    /// Returns the earlier unanswered call with the same effect as `call`, if that one may still
    /// take place.
    pub(super) fn equivalent(&self, call: u32, first: u32, state: State) -> Option<u32> {
        self.equivalents[index(call - self.answered)]
            .filter(|&equivalent| !self.is_spent(equivalent, first, state))
    }

    /// Returns the version in the call's response, if it has one.
    pub(super) fn version(&self, call: u32) -> Option<u64> {
        response_version(self.calls[index(call)].response)
    }

    /// Returns whether an answered call may have changed the object or not, depending on when it
    /// took place.
    pub(super) fn may_act_later(&self, call: u32) -> bool {
        let operation = &self.calls[index(call)];
        matches!(
            (operation.action, operation.response),
            (Action::Remove { .. }, Response::Committed)
        )
    }

    /// Returns whether an unanswered call can no longer take place.
    pub(super) fn is_spent(&self, call: u32, first: u32, state: State) -> bool {
        let operation = &self.calls[index(call)];
        let refused = match operation.action {
            Action::Write { condition: Condition::Version(version), .. }
            | Action::Remove { condition: Condition::Version(version) } => version < state.least(),
            _ => false,
        };
        refused || settled(operation) < self.latest_invocation[index(first)]
    }

    /// Returns whether an unanswered call can no longer take place when another call is made.
    pub(super) fn is_settled_before(&self, call: u32, other: u32) -> bool {
        settled(&self.calls[index(call)]) < self.calls[index(other)].began
    }

    /// Returns the state after the call; `None` if the call cannot take place now, or contradicts
    /// what was read later.
    pub(super) fn after(&self, call: u32, state: State) -> Option<State> {
        let operation = &self.calls[index(call)];
        let after = state.after(operation)?;
        if let Some((version, value)) = after.known() {
            let new = !self.is_answered(call) && after != state;
            let of_another = new && self.created.contains(&version);
            if of_another || self.values.get(&version).is_some_and(|&read| read != value) {
                return None;
            }
        }
        Some(after)
    }
}

/// Adds to each write what reads show about it: only one call writes a text, so a read of the text
/// shows the version of that write, and that the write took place before the read. Texts that were
/// never read and do not expire are replaced by one, unless a scan of an index shows which fields
/// the object did not have.
fn seen_by_readers(operations: &[Operation]) -> Vec<Operation> {
    let mut read: HashMap<Value, (u64, u64)> = HashMap::new();
    for call in operations {
        if let Response::Found { version, value: value @ Value::Text { .. } } = call.response {
            let (_, first) = read.entry(value).or_insert((version, call.returned));
            *first = call.returned.min(*first);
        }
    }
    let expiring: HashSet<Value> = operations
        .iter()
        .filter_map(|call| match call.action {
            Action::Expire { value } => Some(value),
            _ => None,
        })
        .collect();
    let fields_matter =
        operations.iter().any(|call| matches!(call.response, Response::Outside { .. }));
    let seen = |call: &Operation| {
        let mut call = *call;
        if let Action::Write { value: value @ Value::Text { .. }, .. } = &mut call.action {
            match read.get(value) {
                None if !expiring.contains(value) && !fields_matter => *value = UNREAD,
                None => {}
                Some(&(version, _)) if call.response == Response::Committed => {
                    call.response = Response::Done { version };
                }
                Some(&(version, returned)) if call.returned == OPEN && call.invoked < returned => {
                    (call.response, call.returned) = (Response::Done { version }, returned);
                }
                Some(_) => {}
            }
        }
        call
    };
    operations.iter().map(seen).collect()
}

/// Returns two lists in the order of responses. In the first, each call has the calls with a later
/// response that were invoked before its response. In the second, each call has the lowest version
/// in the responses of calls that were invoked after its response.
fn overlaps(certain: &[Operation]) -> (Vec<Vec<u32>>, Vec<Option<u64>>) {
    let mut by_asked: Vec<u32> = (0..count(certain.len())).collect();
    by_asked.sort_by_key(|&call| certain[index(call)].invoked);
    let mut least = vec![None; certain.len() + 1];
    for (rank, &call) in by_asked.iter().enumerate().rev() {
        let version = response_version(certain[index(call)].response);
        least[rank] = version.into_iter().chain(least[rank + 1]).min();
    }
    let mut next = 0;
    let mut beside: Vec<u32> = Vec::new();
    let per_call = certain.iter().zip(0..).map(|(call, first)| {
        while next < by_asked.len() && certain[index(by_asked[next])].invoked < call.returned {
            beside.push(by_asked[next]);
            next += 1;
        }
        beside.retain(|&call| call > first);
        beside.sort_unstable();
        (beside.clone(), least[next])
    });
    per_call.unzip()
}

/// Returns the time after which an unanswered call can no longer take place.
fn settled(call: &Operation) -> Nanos {
    match call.action {
        Action::Expire { .. } => call.ended,
        _ => call.ended + SETTLED,
    }
}

/// Returns the latest of the first 0, 1, 2, ... moments.
fn maxima(moments: impl Iterator<Item = Nanos>) -> Vec<Nanos> {
    let latest = |latest: &mut Nanos, moment: Nanos| {
        *latest = moment.max(*latest);
        Some(*latest)
    };
    std::iter::once(Nanos(0)).chain(moments.scan(Nanos(0), latest)).collect()
}

fn response_version(response: Response) -> Option<u64> {
    match response {
        Response::Found { version, .. }
        | Response::Done { version }
        | Response::Sum { version, .. } => Some(version),
        Response::Conflict(version) => version,
        _ => None,
    }
}
