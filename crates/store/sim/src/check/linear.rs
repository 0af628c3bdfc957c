//! Decides whether calls on one object can have happened one after the other, each at some moment
//! between its invocation and its response.
//!
//! This is Wing and Gong's search with Lowe's memory: it tries every call that may come next, and
//! remembers which sets of calls, in which state, led nowhere. A call whose outcome is unknown may
//! take place at any time after its invocation until it has surely settled, or may never take
//! place.
//!
//! A set of calls is represented by three parts: the first answered call that is not done, the
//! answered calls after it that are done, and the unanswered calls that took place. Calls of the
//! second part overlap the first, so this part stays small even in a long history. If a set led
//! nowhere, a set in which more unanswered calls took place leads nowhere too.

use super::calls::Calls;
use super::model::State;
use crate::history::Operation;
use std::collections::HashMap;

/// Number of states that the search visits before it gives up.
const MAX_STATES: usize = 200_000;

/// The result of the search.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// An order exists.
    Linearizable,
    /// No order exists. Holds the number of the first call that the best attempt could not place,
    /// and the state before that call.
    Broken(usize, State),
    /// The search visited too many states.
    Undecided,
}

/// Indexes of calls among [`Calls`], ascending.
type CallSet = Vec<u32>;

/// A position of the search: the calls that are done so far, and the object's state after them.
#[derive(Clone, Debug)]
struct Attempt {
    /// The first answered call that is not done.
    first: u32,
    /// The answered calls after `first` that are done.
    ahead: CallSet,
    /// The unanswered calls that took place and still matter.
    taken: CallSet,
    state: State,
}

fn insert(calls: &CallSet, call: u32) -> CallSet {
    let at = calls.partition_point(|&other| other < call);
    let mut calls = calls.clone();
    calls.insert(at, call);
    calls
}

/// Returns whether all calls of `few` are among `many`.
fn is_subset(few: &CallSet, many: &CallSet) -> bool {
    let mut rest = many.iter();
    few.iter().all(|call| rest.by_ref().find(|&other| other >= call) == Some(call))
}

impl Attempt {
    /// Returns the attempt after one more call, which left the object in `state`.
    fn with(&self, calls: &Calls, call: u32, state: State) -> Self {
        let Self { mut first, mut ahead, mut taken, .. } = self.clone();
        if !calls.is_answered(call) {
            taken = insert(&taken, call);
        } else if call == first {
            let run =
                ahead.iter().zip(first + 1..).take_while(|&(&call, next)| call == next).count();
            ahead.drain(..run);
            first += 1 + u32::try_from(run).expect("few");
        } else {
            ahead = insert(&ahead, call);
        }
        if first < calls.answered() {
            taken.retain(|&call| !calls.is_spent(call, first, state));
        }
        Self { first, ahead, taken, state }
    }

    /// Returns the attempts that may follow this one, the likeliest last.
    fn next(&self, calls: &Calls) -> Vec<Self> {
        let Self { first, ahead, taken, state } = self;
        let candidates = calls.beside(*first).filter(|call| ahead.binary_search(call).is_err());
        let mut next = Vec::new();
        for call in candidates {
            let Some(after) = calls.after(call, *state) else { continue };
            let attempt = self.with(calls, call, after);
            // A call that changes neither the object nor what is known about it can be placed now,
            // unless some other call can only come before this call, or this call would change the
            // object later.
            if after == *state
                && !calls.may_act_later(call)
                && !self.is_last_chance(calls, call, attempt.first)
            {
                return vec![attempt];
            }
            next.push(attempt);
        }
        for call in
            calls.unanswered(*first, *state).filter(|call| taken.binary_search(call).is_err())
        {
            let equivalent = calls.equivalent(call, *first, *state);
            if equivalent.is_none_or(|equivalent| taken.binary_search(&equivalent).is_ok())
                && let Some(after) = calls.after(call, *state)
                && after != *state
            {
                next.push(self.with(calls, call, after));
            }
        }
        next.reverse();
        next
    }

    /// Returns whether some unanswered call may come now, but no longer after `call`, or when all
    /// calls before `first` are done.
    fn is_last_chance(&self, calls: &Calls, call: u32, first: u32) -> bool {
        let Self { taken, state, .. } = self;
        let mut may =
            calls.unanswered(self.first, *state).filter(|one| taken.binary_search(one).is_err());
        may.any(|one| {
            calls.is_settled_before(one, call)
                || first < calls.answered() && calls.is_spent(one, first, *state)
        })
    }

    /// Returns whether a response that must still be placed has a version below the state's:
    /// versions never decrease.
    fn is_too_far(&self, calls: &Calls) -> bool {
        let beside =
            calls.beside(self.first).filter(|call| self.ahead.binary_search(call).is_err());
        let version = beside.filter_map(|call| calls.version(call)).min();
        version
            .into_iter()
            .chain(calls.least_version_behind(self.first))
            .any(|version| version < self.state.least())
    }
}

/// Searches for an order of the calls on one object. Calls that were certainly not executed must be
/// left out.
#[must_use]
pub fn check(operations: &[Operation]) -> Verdict {
    let calls = Calls::new(operations);
    // For each position of the search, the sets of unanswered calls that had taken place there; no
    // set includes another.
    let mut seen: HashMap<(u32, CallSet, State), Vec<CallSet>> = HashMap::new();
    let mut states = 0;
    let mut stack =
        vec![Attempt { first: 0, ahead: Vec::new(), taken: Vec::new(), state: State::NEVER }];
    let mut best = (0, State::NEVER);
    while let Some(attempt) = stack.pop() {
        if attempt.first == calls.answered() {
            return Verdict::Linearizable;
        }
        if attempt.first >= best.0 {
            best = (attempt.first, attempt.state);
        }
        if states == MAX_STATES {
            return Verdict::Undecided;
        }
        if attempt.is_too_far(&calls) {
            continue;
        }
        let before = seen.entry((attempt.first, attempt.ahead.clone(), attempt.state)).or_default();
        if before.iter().any(|taken| is_subset(taken, &attempt.taken)) {
            continue;
        }
        before.retain(|taken| !is_subset(&attempt.taken, taken));
        before.push(attempt.taken.clone());
        states += 1;
        stack.extend(attempt.next(&calls));
    }
    Verdict::Broken(calls.number(best.0), best.1)
}
