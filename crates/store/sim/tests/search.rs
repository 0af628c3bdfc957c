//! Compares the search for an order with a plain search, on small random histories.

use sprat_net::Nanos;
use sprat_sim::check::linear::{self, Verdict};
use sprat_sim::check::model::State;
use sprat_sim::history::{Action, OPEN, ObjectName, Operation, Response, SETTLED, Value};
use sprat_sim::random::Random;
use sprat_wire::op::Condition;

/// Number of histories.
const HISTORIES: u64 = 40_000;

/// Nanoseconds of a step of time, such that an unanswered call settles within a few calls.
const TICK: u64 = 100_000_000;

/// The largest number of calls in a history, of which the plain search tries all orders.
const CALLS: u64 = 8;

/// Returns whether an order exists, by trying each.
fn fits(calls: &[Operation], done: u32, state: State) -> bool {
    let open = |index: &usize| done >> index & 1 == 0;
    let rest = || (0..calls.len()).filter(open);
    if rest().all(|index| calls[index].returned == OPEN) {
        return true;
    }
    let first = rest().map(|index| (calls[index].returned, calls[index].invoked)).min().unwrap();
    // The latest invocation among the calls that were answered before the first remaining call. A
    // call that had settled by this time took place earlier, or never.
    let before =
        calls.iter().filter(|call| (call.returned, call.invoked) < first).map(|call| call.began);
    let begun = before.max().unwrap_or(Nanos(0));
    let may = |call: &Operation| {
        let settled = match call.action {
            Action::Expire { .. } => call.ended,
            _ => call.ended + SETTLED,
        };
        let lasts = call.returned != OPEN || was_read(calls, call) || settled >= begun;
        call.invoked < first.0 && lasts
    };
    rest().filter(|&index| may(&calls[index])).any(|index| {
        let after = state.after(&calls[index]);
        after.is_some_and(|after| fits(calls, done | 1 << index, after))
    })
}

/// Returns whether a read saw the text that this call wrote. If so, the read shows when the call
/// took place, and the time by which it had to settle does not matter.
fn was_read(calls: &[Operation], call: &Operation) -> bool {
    let Action::Write { value: text @ Value::Text { .. }, .. } = call.action else { return false };
    calls
        .iter()
        .any(|other| matches!(other.response, Response::Found { value, .. } if value == text))
}

fn condition(random: &mut Random) -> Condition {
    match random.below(8) {
        0..5 => Condition::None,
        5 => Condition::Absent,
        6 => Condition::Exists,
        _ => Condition::Version(random.below(6)),
    }
}

/// An object that keeps the store's guarantees. Versions of new objects skip some numbers.
#[derive(Default)]
struct Object {
    value: Option<Value>,
    version: u64,
}

impl Object {
    fn respond(&mut self, random: &mut Random, action: Action) -> Response {
        let current = self.value.map(|_| self.version);
        match action {
            Action::Read => self
                .value
                .map_or(Response::Absent, |value| Response::Found { version: self.version, value }),
            Action::Write { condition, .. } if !condition.holds(current) => {
                Response::Conflict(current)
            }
            Action::Write { value, .. } => Response::Done { version: self.put(random, value) },
            Action::Remove { condition } if !condition.holds(current) => {
                Response::Conflict(current)
            }
            Action::Remove { .. } => match self.value.take() {
                Some(_) => Response::Done { version: self.version },
                None => Response::Absent,
            },
            Action::Expire { value } => {
                self.value = self.value.filter(|known| *known != value);
                Response::Unknown
            }
            Action::Increment { delta } => match self.value {
                Some(Value::Text { .. }) => Response::NotANumber,
                Some(Value::Number(number) | Value::Sum(number)) => {
                    self.sum(random, number + delta)
                }
                None => self.sum(random, delta),
            },
        }
    }

    fn sum(&mut self, random: &mut Random, sum: i64) -> Response {
        Response::Sum { sum, version: self.put(random, Value::Sum(sum)) }
    }

    fn put(&mut self, random: &mut Random, value: Value) -> u64 {
        self.version += if self.value.is_some() { 1 } else { 1 + random.below(2) };
        self.value = Some(value);
        self.version
    }
}

/// Makes a valid history of calls that overlap. Some have no response, and some of these never take
/// place.
fn history(random: &mut Random) -> Vec<Operation> {
    let count = random.between(2, CALLS);
    let mut object = Object::default();
    let (mut calls, mut moment) = (Vec::new(), 100);
    for number in 0..count {
        let value = match random.below(3) {
            0 => Value::Number(i64::try_from(random.below(3)).unwrap()),
            _ => Value::Text { id: number + 1, len: 20 },
        };
        let action = match random.below(12) {
            0..4 => Action::Read,
            4..7 => Action::Write { value, condition: condition(random) },
            7 => Action::Remove { condition: condition(random) },
            10.. => Action::Expire { value: Value::Text { id: 1 + random.below(count), len: 20 } },
            _ => Action::Increment { delta: 1 + i64::try_from(random.below(2)).unwrap() },
        };
        // A call takes place at its own moment. Its invocation is before this moment, and its
        // response after it.
        moment += if random.chance(1, 4) { 200 } else { 20 };
        let (invoked, returned) = (moment - random.below(50), moment + 1 + random.below(50));
        let lost = random.chance(1, 4) || matches!(action, Action::Expire { .. });
        let response = if lost && random.chance(1, 2) {
            Response::Unknown
        } else {
            object.respond(random, action)
        };
        let (response, returned) =
            if lost { (Response::Unknown, OPEN) } else { (response, returned) };
        let (number, name) = (usize::try_from(number).unwrap(), ObjectName { table: 1, key: 1 });
        calls.push(Operation {
            number,
            client: 0,
            name,
            action,
            invoked: invoked * 100 + number as u64,
            returned: if returned == OPEN { OPEN } else { returned * 100 + number as u64 },
            began: Nanos(invoked * TICK),
            ended: Nanos(returned.min(moment + 1) * TICK),
            response,
            of_transaction: random.chance(1, 4),
        });
    }
    calls
}

/// Changes one response, so that the history may no longer be valid.
fn bend(random: &mut Random, calls: &mut [Operation]) {
    let index = usize::try_from(random.below(calls.len() as u64)).unwrap();
    let other = calls[usize::try_from(random.below(calls.len() as u64)).unwrap()].action;
    match &mut calls[index].response {
        Response::Found { value, .. } if random.chance(1, 2) => {
            if let Action::Write { value: written, .. } = other {
                *value = written;
            }
        }
        Response::Found { version, .. }
        | Response::Done { version }
        | Response::Sum { version, .. } => {
            *version = version.saturating_sub(1) + random.below(3);
        }
        response @ Response::Absent => *response = Response::Done { version: 1 + random.below(4) },
        response @ Response::Conflict(_) => {
            *response = Response::Conflict(random.chance(1, 2).then(|| 1 + random.below(4)))
        }
        _ => {}
    }
}

#[test]
fn search_agrees_with_trying_all_orders() {
    let mut verdicts = [0; 2];
    for seed in 0..HISTORIES {
        let random = &mut Random::new(seed);
        let mut calls = history(random);
        if random.chance(2, 3) {
            bend(random, &mut calls);
        }
        let plain = fits(&calls, 0, State::NEVER);
        let found = linear::check(&calls);
        assert_ne!(found, Verdict::Undecided);
        let lines: Vec<String> = calls
            .iter()
            .map(|call| format!("{}..{} {call}", call.invoked, call.returned))
            .collect();
        assert_eq!(
            found == Verdict::Linearizable,
            plain,
            "seed {seed}: {found:?}\n{}",
            lines.join("\n")
        );
        verdicts[usize::from(plain)] += 1;
    }
    assert!(verdicts.iter().all(|&count| count > HISTORIES / 10), "both kinds: {verdicts:?}");
}
