//! Whether calls on one object can have happened one after the other, each at some moment between being asked and told.
//!
//! The search of Wing and Gong with the memory of Lowe: try every call that may come next, remember which sets of calls
//! in which state led nowhere. A call whose outcome is unknown may come at any time after it was asked, or never.
//!
//! The model is what the store promises of an object: an overwrite has the next version, a new object one
//! above every version its key ever had. A call whose version nobody was told leaves the version
//! open but for a lower bound, until someone is told.

use crate::history::{Action, OPEN, Operation, Told, Value};
use sprat_wire::op::Condition;
use std::collections::HashSet;

/// States that the search looks at before it gives up.
const MAX_STATES: usize = 100_000;

/// An object in the model.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct State {
    value: Option<Value>,
    /// The version, or a version that it is above; of an absent object, the highest known to have been.
    version: u64,
    /// Whether `version` is the version.
    exact: bool,
}

impl State {
    /// An object that never was.
    pub const NEVER: Self = Self { value: None, version: 0, exact: true };

    /// The state, knowing that its object has this version; `None` if it cannot.
    fn with_version(self, version: u64) -> Option<Self> {
        let fits = if self.exact { version == self.version } else { version > self.version };
        (self.value.is_some() && fits).then_some(Self { version, exact: true, ..self })
    }

    /// The state, knowing that the condition holds; `None` if it cannot.
    fn given(self, condition: Condition) -> Option<Self> {
        match condition {
            Condition::None => Some(self),
            Condition::Absent => self.value.is_none().then_some(self),
            Condition::Exists => self.value.is_some().then_some(self),
            Condition::Version(version) => self.with_version(version),
        }
    }

    /// The state, knowing that the condition does not hold as the object has this version.
    fn refusing(self, condition: Condition, current: Option<u64>) -> Option<Self> {
        let known = match current {
            Some(version) => self.with_version(version)?,
            None => self.value.is_none().then_some(self)?,
        };
        (!condition.holds(current)).then_some(known)
    }

    /// After a write told to have given this version; of an unknown one for `None`.
    fn written(self, value: Value, told: Option<u64>) -> Option<Self> {
        let value = Some(value);
        let (version, exact) = match (self.value, told) {
            (Some(_), Some(version)) => (self.with_version(version.checked_sub(1)?)?.version + 1, true),
            (Some(_), None) => (self.version + 1, self.exact),
            (None, Some(version)) if version > self.version => (version, true),
            (None, Some(_)) => return None,
            (None, None) => (self.version, false),
        };
        Some(Self { value, version, exact })
    }

    fn removed(self, told: Option<u64>) -> Option<Self> {
        let was = match told {
            Some(version) => self.with_version(version)?,
            None => self.value.is_some().then_some(self)?,
        };
        let version = if was.exact { was.version } else { was.version + 1 };
        Some(Self { value: None, version, exact: true })
    }

    fn number(self) -> Option<i64> {
        match self.value {
            None => Some(0),
            Some(Value::Number(number)) => Some(number),
            Some(Value::Text { .. }) => None,
        }
    }

    /// The state after a call that took place and was told what it was told; `None` if that cannot be.
    #[must_use]
    pub fn after(self, action: Action, told: Told) -> Option<Self> {
        match (action, told) {
            (Action::Read, Told::Found { version, value }) if self.value == Some(value) => self.with_version(version),
            (Action::Read, Told::Absent) => self.value.is_none().then_some(self),
            (Action::Write { value, condition }, Told::Done { version }) => {
                self.given(condition)?.written(value, Some(version))
            }
            (Action::Write { value, condition }, Told::Unknown) => self.given(condition)?.written(value, None),
            (Action::Remove { condition }, Told::Done { version }) => self.given(condition)?.removed(Some(version)),
            (Action::Remove { condition }, Told::Unknown) => self.given(condition)?.removed(None),
            (Action::Remove { condition }, Told::Absent) => self.given(condition).filter(|state| state.value.is_none()),
            (Action::Write { condition, .. } | Action::Remove { condition }, Told::Conflict(current)) => {
                self.refusing(condition, current)
            }
            (Action::Increment { delta }, Told::Sum { sum, version })
                if self.number()?.checked_add(delta) == Some(sum) =>
            {
                self.written(Value::Number(sum), Some(version))
            }
            (Action::Increment { delta }, Told::Unknown) => {
                self.written(Value::Number(self.number()?.checked_add(delta)?), None)
            }
            (Action::Increment { .. }, Told::NotANumber) => self.number().is_none().then_some(self),
            _ => None,
        }
    }
}

/// What the search found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// They can have happened so.
    Linearizable,
    /// They cannot: the number of the first call that found no place in the best attempt, and the state it met there.
    Broken(usize, State),
    /// The search grew too large.
    Undecided,
}

/// Calls that are done, one bit each.
type Set = Box<[u64]>;

fn has(set: &Set, index: usize) -> bool {
    set[index / 64] >> (index % 64) & 1 == 1
}

fn with(set: &Set, index: usize) -> Set {
    let mut set = set.clone();
    set[index / 64] |= 1 << (index % 64);
    set
}

/// What stands for every text that nobody ever read: it does not matter which of them an object holds.
const UNREAD: Value = Value::Text { id: 0, len: 0 };

/// The calls of one object, ready for the search.
struct Calls {
    /// Action and what was told, unread texts made one; those told first come first, those never told last.
    calls: Vec<Operation>,
    /// Of calls never told that do the same to an object, the one that was asked just before: it might as well be the one
    /// that took place.
    before: Vec<Option<usize>>,
    /// How many were told.
    certain: usize,
}

impl Calls {
    fn new(calls: &[Operation]) -> Self {
        let read: HashSet<Value> = calls.iter().filter_map(|call| value_read(call.told)).collect();
        let tells = |call: &&Operation| call.action != Action::Read || call.returned != OPEN;
        let mut calls: Vec<Operation> = calls.iter().filter(tells).copied().collect();
        calls.sort_by_key(|call| (call.returned, call.invoked));
        for call in &mut calls {
            if let Action::Write { value: value @ Value::Text { .. }, .. } = &mut call.action
                && !read.contains(value)
            {
                *value = UNREAD;
            }
        }
        let certain = calls.iter().filter(|call| call.returned != OPEN).count();
        let same = |index: usize| (certain..index).rev().find(|&other| calls[other].action == calls[index].action);
        let before = (0..calls.len()).map(same).collect();
        Self { calls, before, certain }
    }

    /// Whether a state is older than the versions that are still to be told: they never go back.
    fn is_before_rest(&self, done: &Set, first: usize, state: State) -> bool {
        let least = if state.exact || state.value.is_none() { state.version } else { state.version + 1 };
        let mut rest = (first..self.certain).filter(|&index| !has(done, index));
        rest.all(|index| version_told(self.calls[index].told).is_none_or(|version| least <= version))
    }

    /// The calls that may come next after those that are done, the last of which left the object in this state; `first` is the
    /// first of those told that is not done.
    fn moves(&self, done: &Set, first: usize, state: State) -> Vec<(usize, State)> {
        let Self { calls, before, certain } = self;
        let asked = |&index: &usize| !has(done, index) && calls[index].invoked < calls[first].returned;
        let foremost = |&index: &usize| before[index].is_none_or(|before| has(done, before));
        let mut moves = Vec::new();
        for index in (first..calls.len()).filter(asked).filter(foremost) {
            let Some(after) = state.after(calls[index].action, calls[index].told) else { continue };
            // What changes nothing, not even what is known, may as well come now.
            if after == state && index < *certain {
                return vec![(index, after)];
            }
            moves.push((index, after));
        }
        moves
    }
}

fn value_read(told: Told) -> Option<Value> {
    match told {
        Told::Found { value, .. } => Some(value),
        _ => None,
    }
}

fn version_told(told: Told) -> Option<u64> {
    match told {
        Told::Found { version, .. } | Told::Done { version } | Told::Sum { version, .. } => Some(version),
        Told::Conflict(version) => version,
        _ => None,
    }
}

/// Searches an order for calls on one object. Those told to be not done must be left out.
#[must_use]
pub fn check(calls: &[Operation]) -> Verdict {
    let calls = Calls::new(calls);
    let mut seen: HashSet<(Set, State)> = HashSet::new();
    let nothing: Set = vec![0; calls.calls.len().div_ceil(64)].into();
    let mut stack = vec![(nothing, State::NEVER)];
    let mut best = (0, 0, State::NEVER);
    while let Some((done, state)) = stack.pop() {
        // In the order of being told, so the first that is not done is the first that must be.
        let Some(first) = (0..calls.certain).find(|&index| !has(&done, index)) else { return Verdict::Linearizable };
        if first >= best.0 {
            best = (first, calls.calls[first].number, state);
        }
        if seen.len() > MAX_STATES {
            return Verdict::Undecided;
        }
        if !calls.is_before_rest(&done, first, state) {
            continue;
        }
        // The last one pushed is tried first.
        for (index, after) in calls.moves(&done, first, state).into_iter().rev() {
            let place = (with(&done, index), after);
            if !seen.contains(&place) {
                stack.push(place);
            }
        }
        seen.insert((done, state));
    }
    Verdict::Broken(best.1, best.2)
}
