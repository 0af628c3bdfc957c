//! The checks, shown histories that cannot be: each must be refused, and its lawful sister
//! accepted.

use sprat_net::Nanos;
use sprat_sim::check::{Violation, check};
use sprat_sim::history::{Action, History, Name, Page, Told, Value};
use sprat_wire::op::Condition;
use sprat_wire::value::ValueType;

const NAME: Name = Name { table: 1, key: 1 };
const SEED: u64 = 7;
const KEYS: u16 = 4;

fn text(id: u64) -> Value {
    Value::Text { id, len: 20 }
}

fn write(id: u64) -> Action {
    Action::Write { value: text(id), condition: Condition::None }
}

fn write_if(id: u64, condition: Condition) -> Action {
    Action::Write { value: text(id), condition }
}

const REMOVE: Action = Action::Remove { condition: Condition::None };

fn found(version: u64, id: u64) -> Told {
    Told::Found { version, value: text(id) }
}

fn done(version: u64) -> Told {
    Told::Done { version }
}

/// Calls one after the other.
fn in_turn(calls: &[(Action, Told)]) -> History {
    let mut history = History::default();
    for &(action, told) in calls {
        call(&mut history, action, told);
    }
    history
}

fn call(history: &mut History, action: Action, told: Told) {
    let number = history.invoke(Nanos(0), 0, NAME, action);
    history.tell(Nanos(0), number, told);
}

#[track_caller]
fn lawful(history: &History) {
    check(history, SEED, KEYS).unwrap();
}

#[track_caller]
fn lawless(history: &History) {
    let violation = check(history, SEED, KEYS).expect_err("this cannot be");
    assert!(matches!(*violation, Violation::Object { .. }), "{violation}");
}

#[test]
fn a_read_gives_what_was_written_last() {
    lawful(&in_turn(&[(write(1), done(1)), (write(2), done(2)), (Action::Read, found(2, 2))]));
    lawless(&in_turn(&[(write(1), done(1)), (write(2), done(2)), (Action::Read, found(1, 1))]));
    lawless(&in_turn(&[(write(1), done(1)), (Action::Read, Told::Absent)]));
    lawless(&in_turn(&[(write(1), done(1)), (Action::Read, found(1, 9))]));
    lawless(&in_turn(&[(write(1), done(1)), (Action::Read, found(2, 1))]));
}

#[test]
fn what_was_only_seen_is_forgiven_and_what_was_done_is_not() {
    let forgiven = |calls: &[(Action, Told)], first| {
        let mut history = in_turn(calls);
        history.forgive(first);
        history
    };
    let stale = [
        (write(1), done(1)),
        (write(2), done(2)),
        (Action::Read, found(1, 1)),
        (Action::Read, found(2, 2)),
    ];
    lawless(&in_turn(&stale));
    lawful(&forgiven(&stale, 3));
    lawless(&forgiven(&stale, 2));
    let lost = [(write(1), done(1)), (write(2), done(2)), (Action::Read, found(1, 1))];
    lawless(&forgiven(&lost, 2));
    lawless(&forgiven(&[(write(1), done(2)), (write(2), done(1)), (Action::Read, found(1, 2))], 2));
}

#[test]
fn a_removed_object_stays_removed() {
    lawful(&in_turn(&[(write(1), done(1)), (REMOVE, done(1)), (Action::Read, Told::Absent)]));
    lawless(&in_turn(&[(write(1), done(1)), (REMOVE, done(1)), (Action::Read, found(1, 1))]));
    lawless(&in_turn(&[(write(1), done(1)), (REMOVE, done(2))]));
    lawless(&in_turn(&[(write(1), done(1)), (REMOVE, Told::Absent)]));
}

#[test]
fn versions_never_go_back() {
    lawful(&in_turn(&[(write(1), done(3)), (REMOVE, done(3)), (write(2), done(8))]));
    lawless(&in_turn(&[(write(1), done(3)), (REMOVE, done(3)), (write(2), done(3))]));
    lawless(&in_turn(&[(write(1), done(3)), (REMOVE, done(3)), (write(2), done(1))]));
    lawless(&in_turn(&[(write(1), done(3)), (write(2), done(3))]));
    // An overwrite has the next one.
    lawless(&in_turn(&[(write(1), done(3)), (write(2), done(5))]));
}

#[test]
fn conditions_are_kept() {
    let first = (write(1), done(1));
    let stale = Condition::Version(9);
    lawful(&in_turn(&[first, (write_if(2, Condition::Version(1)), done(2))]));
    lawful(&in_turn(&[first, (write_if(2, Condition::Absent), Told::Conflict(Some(1)))]));
    lawful(&in_turn(&[(write_if(2, Condition::Exists), Told::Conflict(None))]));
    lawless(&in_turn(&[first, (write_if(2, stale), done(2))]));
    lawless(&in_turn(&[first, (write_if(2, Condition::Absent), done(2))]));
    lawless(&in_turn(&[(write_if(2, Condition::Exists), done(1))]));
    lawless(&in_turn(&[first, (write_if(2, Condition::Version(1)), Told::Conflict(Some(1)))]));
    lawless(&in_turn(&[first, (write_if(2, stale), Told::Conflict(Some(2)))]));
    // What was refused has not been done.
    let refused = (write_if(2, stale), Told::Conflict(Some(1)));
    lawless(&in_turn(&[first, refused, (Action::Read, found(2, 2))]));
}

#[test]
fn an_increment_counts_once() {
    let add = |sum, version| (Action::Increment { delta: 5 }, Told::Sum { sum, version });
    let number =
        |number, version| (Action::Read, Told::Found { version, value: Value::Sum(number) });
    lawful(&in_turn(&[add(5, 1), add(10, 2), number(10, 2)]));
    let untyped = (Action::Read, Told::Found { version: 2, value: Value::Number(10) });
    lawless(&in_turn(&[add(5, 1), add(10, 2), untyped]));
    lawless(&in_turn(&[add(5, 1), add(10, 2), number(15, 3)]));
    lawless(&in_turn(&[add(5, 1), add(5, 2)]));
    lawful(&in_turn(&[(write(1), done(1)), (Action::Increment { delta: 5 }, Told::NotANumber)]));
    lawless(&in_turn(&[add(5, 1), (Action::Increment { delta: 5 }, Told::NotANumber)]));
    // One that may or may not have been executed counts once or not at all, never twice.
    let perhaps = (Action::Increment { delta: 5 }, Told::Unknown);
    lawful(&in_turn(&[add(5, 1), perhaps, number(5, 1)]));
    lawful(&in_turn(&[add(5, 1), perhaps, number(10, 2)]));
    lawful(&in_turn(&[add(5, 1), perhaps, number(5, 1), number(10, 2)]));
    lawless(&in_turn(&[add(5, 1), perhaps, number(15, 3)]));
    lawless(&in_turn(&[add(5, 1), perhaps, number(10, 2), number(5, 1)]));
}

#[test]
fn what_is_unknown_is_done_once_later_or_never() {
    let perhaps = (write(2), Told::Unknown);
    lawful(&in_turn(&[
        (write(1), done(1)),
        perhaps,
        (Action::Read, found(1, 1)),
        (Action::Read, found(2, 2)),
    ]));
    lawful(&in_turn(&[
        (write(1), done(1)),
        perhaps,
        (write(3), done(3)),
        (Action::Read, found(3, 3)),
    ]));
    lawless(&in_turn(&[(Action::Read, found(1, 2)), perhaps]));
    lawless(&in_turn(&[
        (write(1), done(1)),
        perhaps,
        (Action::Read, found(2, 2)),
        (Action::Read, found(1, 1)),
    ]));
    // Its version may be any above those before, but there is only one.
    lawful(&in_turn(&[perhaps, (Action::Read, found(6, 2)), (write(3), done(7))]));
    lawless(&in_turn(&[perhaps, (Action::Read, found(6, 2)), (Action::Read, found(7, 2))]));
    // What was surely not done was not.
    lawless(&in_turn(&[
        (write(1), done(1)),
        (write(2), Told::NotDone),
        (Action::Read, found(2, 2)),
    ]));
}

#[test]
fn calls_at_the_same_time_come_in_either_order() {
    let both = |first: Told, second: Told, last: Told| {
        let mut history = History::default();
        let one = history.invoke(Nanos(0), 0, NAME, write(1));
        let two = history.invoke(Nanos(0), 1, NAME, write(2));
        history.tell(Nanos(0), one, first);
        history.tell(Nanos(0), two, second);
        call(&mut history, Action::Read, last);
        history
    };
    lawful(&both(done(1), done(2), found(2, 2)));
    lawful(&both(done(2), done(1), found(2, 1)));
    lawless(&both(done(1), done(2), found(1, 1)));
    lawless(&both(done(1), done(1), found(1, 1)));
}

/// A history of one object, and one page that holds the whole table.
fn scanned(calls: &[(Action, Told)], rows: &[(Name, u64, u64)], next: Option<u64>) -> History {
    let mut history = in_turn(calls);
    let (invoked, returned) = (history.moment(), history.moment());
    let rows = rows.iter().map(|&(name, version, id)| (name.bytes(), version, text(id))).collect();
    let page = Page {
        client: 0,
        scan: 1,
        table: 1,
        after: None,
        next,
        rows,
        invoked,
        returned,
        ended: Nanos(0),
    };
    history.pages.push(page);
    history
}

#[test]
fn a_scan_gives_what_is_there() {
    let there = [(write(1), done(1))];
    lawful(&scanned(&there, &[(NAME, 1, 1)], None));
    lawless(&scanned(&there, &[], None));
    lawless(&scanned(&there, &[(NAME, 1, 2)], None));
    lawless(&scanned(&there, &[(NAME, 2, 1)], None));
    lawful(&scanned(&[(write(1), done(1)), (REMOVE, done(1))], &[], None));
    lawless(&scanned(&[(write(1), done(1)), (REMOVE, done(1))], &[(NAME, 1, 1)], None));
    let other = Name { key: 2, ..NAME };
    lawless(&scanned(&there, &[(NAME, 1, 1), (other, 1, 5)], None));
}

#[test]
fn a_scan_gives_it_once_and_in_its_place() {
    let there = [(write(1), done(1))];
    let wrong = |history: &History| {
        let violation = check(history, SEED, KEYS).expect_err("this cannot be");
        assert!(matches!(*violation, Violation::Page { .. }), "{violation}");
    };
    wrong(&scanned(&there, &[(NAME, 1, 1), (NAME, 1, 1)], None));
    wrong(&scanned(&there, &[(NAME, 1, 1)], Some(0)));
    let stranger = Name { key: 77, ..NAME };
    wrong(&scanned(&there, &[(NAME, 1, 1), (stranger, 1, 1)], None));
}

#[test]
fn nobody_can_have_written_other_bytes() {
    let bytes = text(3).encode();
    assert_eq!(Value::decode(ValueType::Bytes, &bytes), Some(text(3)));
    assert_eq!(Value::decode(ValueType::Bytes, &5i64.to_le_bytes()), Some(Value::Number(5)));
    assert_eq!(Value::decode(ValueType::Bytes, b"short"), None);
    for at in 8..bytes.len() {
        let mut bent = bytes.clone();
        bent[at] ^= 1;
        assert_eq!(Value::decode(ValueType::Bytes, &bent), None, "byte {at}");
    }
}
