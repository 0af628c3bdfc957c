//! The calls on one object, ready for the search: those told in the order of being told, those
//! never told behind them in the order of being asked.

use super::model::State;
use crate::history::{Action, OPEN, Operation, SETTLED, Told, Value};
use sprat_net::Nanos;
use sprat_wire::op::Condition;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// What stands for every text that nobody ever read: it does not matter which of them an object
/// holds.
const UNREAD: Value = Value::Text { id: 0, len: 0 };

/// The calls of one object. A call's place is where it is in `calls`.
pub(super) struct Calls {
    calls: Vec<Operation>,
    /// How many were told.
    told: u32,
    /// Of each that was told, those told later but asked before it was told.
    overlaps: Vec<Vec<u32>>,
    /// Of each that was told, the least version told of a call asked after that.
    least_behind: Vec<Option<u64>>,
    /// Of each that was told, when all those told before it had been asked.
    begun: Vec<Nanos>,
    /// Of each that was told, which of those never told may come before it: asked before it was
    /// told, and not settled.
    asked: Vec<Range<u32>>,
    /// Of those never told that do the same to an object, the one that was asked just before: it
    /// might as well be the one that took place.
    twins: Vec<Option<u32>>,
    /// Values that were told, by their versions.
    values: HashMap<u64, Value>,
    /// Versions that calls were told to have made: nothing else did.
    made: HashSet<u64>,
}

fn count(len: usize) -> u32 {
    u32::try_from(len).expect("a history fits in memory")
}

fn at(place: u32) -> usize {
    place as usize
}

impl Calls {
    /// Those of one object, in any order.
    pub(super) fn new(operations: &[Operation]) -> Self {
        let mut calls = seen_by_readers(operations);
        // A read of which nobody knows what it gave says nothing.
        calls.retain(|call| call.action != Action::Read || call.returned != OPEN);
        calls.sort_by_key(|call| (call.returned, call.invoked));
        let told = calls.partition_point(|call| call.returned != OPEN);
        let (certain, open) = calls.split_at(told);
        let begun: Vec<Nanos> = maxima(certain.iter().map(|call| call.began));
        let settled: Vec<Nanos> = maxima(open.iter().map(settled)).split_off(1);
        let asked = certain.iter().zip(&begun).map(|(call, &begun)| {
            let from = settled.partition_point(|&settled| settled < begun);
            let until = open.partition_point(|other| other.invoked < call.returned);
            count(told + from)..count(told + until.max(from))
        });
        let asked = asked.collect();
        let same = |one: &Operation, other: &Operation| {
            one.action == other.action && one.ended <= other.ended
        };
        let twin = |index: usize| (0..index).rev().find(|&other| same(&open[other], &open[index]));
        let twins =
            (0..open.len()).map(|index| twin(index).map(|twin| count(told + twin))).collect();
        let makes = |call: &&Operation| {
            matches!(call.action, Action::Write { .. } | Action::Increment { .. })
        };
        let mut values = HashMap::new();
        for call in certain {
            match (call.action, call.told) {
                (_, Told::Found { version, value })
                | (Action::Write { value, .. }, Told::Done { version }) => {
                    values.insert(version, value);
                }
                (_, Told::Sum { sum, version }) => {
                    values.insert(version, Value::Sum(sum));
                }
                _ => {}
            }
        }
        let made = certain.iter().filter(makes).filter_map(|call| match call.told {
            Told::Done { version } | Told::Sum { version, .. } => Some(version),
            _ => None,
        });
        let made = made.collect();
        let (overlaps, least_behind) = overlaps(certain);
        Self { told: count(told), overlaps, least_behind, begun, asked, twins, values, made, calls }
    }

    /// How many were told.
    pub(super) fn told(&self) -> u32 {
        self.told
    }

    /// Whether the one there was told.
    pub(super) fn is_told(&self, place: u32) -> bool {
        place < self.told
    }

    /// The number in the history of the one there.
    pub(super) fn number(&self, place: u32) -> usize {
        self.calls[at(place)].number
    }

    /// Of those told from `first` on, the ones that may come next when all before it are done.
    pub(super) fn beside(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::once(first).chain(self.overlaps[at(first)].iter().copied())
    }

    /// The least version told of a call that must come after `first`.
    pub(super) fn least_behind(&self, first: u32) -> Option<u64> {
        self.least_behind[at(first)]
    }

    /// Those never told that may come next, when all before `first` are done and the object is like
    /// this.
    pub(super) fn never_told(&self, first: u32, state: State) -> impl Iterator<Item = u32> + '_ {
        self.asked[at(first)].clone().filter(move |&place| !self.is_spent(place, first, state))
    }

    /// The one never told that does the same and came before in all, if there is one that still
    /// may.
    pub(super) fn twin(&self, place: u32, first: u32, state: State) -> Option<u32> {
        self.twins[at(place - self.told)].filter(|&twin| !self.is_spent(twin, first, state))
    }

    /// The version that the one there was told.
    pub(super) fn version(&self, place: u32) -> Option<u64> {
        version_told(self.calls[at(place)].told)
    }

    /// Whether the one there, never told, cannot take place any more.
    pub(super) fn is_spent(&self, place: u32, first: u32, state: State) -> bool {
        let call = &self.calls[at(place)];
        let refused = match call.action {
            Action::Write { condition: Condition::Version(version), .. }
            | Action::Remove { condition: Condition::Version(version) } => version < state.least(),
            _ => false,
        };
        refused || settled(call) < self.begun[at(first)]
    }

    /// The state after the one there; `None` if it cannot come then, or nobody can have seen what
    /// was seen after that.
    pub(super) fn after(&self, place: u32, state: State) -> Option<State> {
        let call = &self.calls[at(place)];
        let after = state.after(call.action, call.told)?;
        if let Some((version, value)) = after.known() {
            let new = !self.is_told(place) && after != state;
            let of_another = new && self.made.contains(&version);
            if of_another || self.values.get(&version).is_some_and(|&told| told != value) {
                return None;
            }
        }
        Some(after)
    }
}

/// The calls, knowing what readers saw: a text is written by one call only, so whoever read it
/// tells of what version that write was, and that it took place before. Texts that nobody read are
/// made one.
fn seen_by_readers(operations: &[Operation]) -> Vec<Operation> {
    let mut read: HashMap<Value, (u64, u64)> = HashMap::new();
    for call in operations {
        if let Told::Found { version, value: value @ Value::Text { .. } } = call.told {
            let (_, first) = read.entry(value).or_insert((version, call.returned));
            *first = call.returned.min(*first);
        }
    }
    let seen = |call: &Operation| {
        let mut call = *call;
        if let Action::Write { value: value @ Value::Text { .. }, .. } = &mut call.action {
            match read.get(value) {
                None => *value = UNREAD,
                Some(&(version, returned)) if call.returned == OPEN && call.invoked < returned => {
                    (call.told, call.returned) = (Told::Done { version }, returned);
                }
                Some(_) => {}
            }
        }
        call
    };
    operations.iter().map(seen).collect()
}

/// Of each call, in the order of being told, those told later but asked before it was told; and the
/// least version told of those asked after that.
fn overlaps(certain: &[Operation]) -> (Vec<Vec<u32>>, Vec<Option<u64>>) {
    let mut by_asked: Vec<u32> = (0..count(certain.len())).collect();
    by_asked.sort_by_key(|&place| certain[at(place)].invoked);
    let mut least = vec![None; certain.len() + 1];
    for (rank, &place) in by_asked.iter().enumerate().rev() {
        let told = version_told(certain[at(place)].told);
        least[rank] = told.into_iter().chain(least[rank + 1]).min();
    }
    let mut next = 0;
    let mut beside: Vec<u32> = Vec::new();
    let per_call = certain.iter().zip(0..).map(|(call, first)| {
        while next < by_asked.len() && certain[at(by_asked[next])].invoked < call.returned {
            beside.push(by_asked[next]);
            next += 1;
        }
        beside.retain(|&place| place > first);
        beside.sort_unstable();
        (beside.clone(), least[next])
    });
    per_call.unzip()
}

/// When a call that was never told will have taken place, or never will.
fn settled(call: &Operation) -> Nanos {
    call.ended + SETTLED
}

/// The latest of none of them, of the first, of the first two, and so on.
fn maxima(moments: impl Iterator<Item = Nanos>) -> Vec<Nanos> {
    let latest = |latest: &mut Nanos, moment: Nanos| {
        *latest = moment.max(*latest);
        Some(*latest)
    };
    std::iter::once(Nanos(0)).chain(moments.scan(Nanos(0), latest)).collect()
}

fn version_told(told: Told) -> Option<u64> {
    match told {
        Told::Found { version, .. } | Told::Done { version } | Told::Sum { version, .. } => {
            Some(version)
        }
        Told::Conflict(version) => version,
        _ => None,
    }
}
