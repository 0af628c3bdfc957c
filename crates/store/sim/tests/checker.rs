//! Gives the checks histories that violate the store's guarantees. The checks must reject each, and
//! accept a similar valid history.

use sprat_net::Nanos;
use sprat_sim::check::{Violation, check};
use sprat_sim::history::{Action, History, ObjectName, Page, Response, Span, Value};
use sprat_wire::op::Condition;
use sprat_wire::value::ValueType;
use std::time::Duration;

const NAME: ObjectName = ObjectName { table: 1, key: 1 };
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

fn found(version: u64, id: u64) -> Response {
    Response::Found { version, value: text(id) }
}

fn done(version: u64) -> Response {
    Response::Done { version }
}

/// Makes a history of calls, one after the other.
fn in_sequence(calls: &[(Action, Response)]) -> History {
    let mut history = History::default();
    for &(action, response) in calls {
        call(&mut history, action, response);
    }
    history
}

fn call(history: &mut History, action: Action, response: Response) {
    let number = history.invoke(Nanos(0), 0, NAME, action);
    history.respond(Nanos(0), number, response);
}

#[track_caller]
fn accepts(history: &History) {
    check(history, SEED, KEYS).unwrap();
}

#[track_caller]
fn rejects(history: &History) {
    let violation = check(history, SEED, KEYS).expect_err("this cannot be");
    assert!(matches!(*violation, Violation::Object { .. }), "{violation}");
}

#[test]
fn reads_return_the_last_write() {
    accepts(&in_sequence(&[(write(1), done(1)), (write(2), done(2)), (Action::Read, found(2, 2))]));
    rejects(&in_sequence(&[(write(1), done(1)), (write(2), done(2)), (Action::Read, found(1, 1))]));
    rejects(&in_sequence(&[(write(1), done(1)), (Action::Read, Response::Absent)]));
    rejects(&in_sequence(&[(write(1), done(1)), (Action::Read, found(1, 9))]));
    rejects(&in_sequence(&[(write(1), done(1)), (Action::Read, found(2, 1))]));
}

/// Makes a history of a write with a time to live of ten seconds, and of reads that begin some
/// seconds after it and have these responses.
fn expiring(reads: &[(u64, Response)]) -> History {
    let mut history = History::default();
    let number = history.invoke(Nanos(0), 0, NAME, write(1));
    history.set_ttl(number, Duration::from_secs(10));
    history.respond(Nanos(0), number, done(1));
    read_later(&mut history, reads);
    history
}

/// Adds reads to a history that begin some seconds after its beginning and have these responses.
fn read_later(history: &mut History, reads: &[(u64, Response)]) {
    for &(seconds, response) in reads {
        let now = Nanos(0) + Duration::from_secs(seconds);
        let number = history.invoke(now, 0, NAME, Action::Read);
        history.respond(now, number, response);
    }
}

#[test]
fn an_object_expires_once_and_in_time() {
    accepts(&expiring(&[(5, found(1, 1)), (10, found(1, 1)), (12, Response::Absent)]));
    accepts(&expiring(&[(9, Response::Absent), (20, Response::Absent)]));
    rejects(&expiring(&[(5, Response::Absent)]));
    rejects(&expiring(&[(9, Response::Absent), (10, found(1, 1))]));
    let violation = check(&expiring(&[(12, found(1, 1))]), SEED, KEYS).expect_err("it is too late");
    assert!(matches!(*violation, Violation::Outlived(_)), "{violation}");
    // A write that replaces the object makes it permanent.
    let mut replaced = expiring(&[(5, found(1, 1))]);
    call(&mut replaced, write(2), done(2));
    let number = replaced.invoke(Nanos(0) + Duration::from_secs(60), 0, NAME, Action::Read);
    replaced.respond(Nanos(0) + Duration::from_secs(60), number, found(2, 2));
    accepts(&replaced);
}

#[test]
fn a_change_that_came_late_expires_late() {
    // Its client has given it up. If it is of a transaction, the server that had prepared it may
    // have failed, and wrote it when the tablet was recovered.
    let late = |of_transaction: bool, reads: &[(u64, Response)]| {
        let mut history = History::default();
        let number = history.invoke(Nanos(0), 0, NAME, write(1));
        history.set_ttl(number, Duration::from_secs(10));
        if of_transaction {
            history.transact(&[number]);
        }
        history.respond(Nanos(0), number, Response::Unknown);
        read_later(&mut history, reads);
        history
    };
    let outlives = |history: &History| {
        let violation = check(history, SEED, KEYS).expect_err("the last read is too late");
        assert!(matches!(*violation, Violation::Outlived(_)), "{violation}");
    };
    accepts(&late(true, &[(40, found(1, 1)), (51, found(1, 1)), (52, Response::Absent)]));
    accepts(&late(true, &[(40, Response::Absent)]));
    outlives(&late(true, &[(40, found(1, 1)), (52, found(1, 1))]));
    // A request on its own is executed, or lost, within ten seconds.
    accepts(&late(false, &[(21, found(1, 1))]));
    outlives(&late(false, &[(22, found(1, 1))]));
}

/// The server that has prepared a change fails, and the object expires before it is recovered.
#[test]
fn a_prepared_change_of_an_object_that_expires_gets_any_later_version() {
    let changed = |of_transaction: bool, reads: &[(u64, Response)]| {
        let mut history = expiring(&[(5, found(1, 1))]);
        let action = write_if(2, Condition::Version(1));
        let number = history.invoke(Nanos(0) + Duration::from_secs(8), 1, NAME, action);
        if of_transaction {
            history.transact(&[number]);
        }
        read_later(&mut history, reads);
        history
    };
    accepts(&changed(true, &[(12, found(7, 2))]));
    accepts(&changed(false, &[(12, found(2, 2))]));
    rejects(&changed(false, &[(12, found(7, 2))]));
    // It has not expired yet.
    rejects(&changed(true, &[(8, found(7, 2))]));
    // A client that finds no object knows that the transaction cannot be committed any more.
    rejects(&changed(true, &[(11, Response::Absent), (12, found(7, 2))]));
}

#[test]
fn forgiving_discards_reads_and_keeps_changes() {
    let forgiven = |calls: &[(Action, Response)], first| {
        let mut history = in_sequence(calls);
        history.forgive(first);
        history
    };
    let stale = [
        (write(1), done(1)),
        (write(2), done(2)),
        (Action::Read, found(1, 1)),
        (Action::Read, found(2, 2)),
    ];
    rejects(&in_sequence(&stale));
    accepts(&forgiven(&stale, 3));
    rejects(&forgiven(&stale, 2));
    let lost = [(write(1), done(1)), (write(2), done(2)), (Action::Read, found(1, 1))];
    rejects(&forgiven(&lost, 2));
    rejects(&forgiven(&[(write(1), done(2)), (write(2), done(1)), (Action::Read, found(1, 2))], 2));
}

#[test]
fn a_removed_object_stays_removed() {
    accepts(&in_sequence(&[
        (write(1), done(1)),
        (REMOVE, done(1)),
        (Action::Read, Response::Absent),
    ]));
    rejects(&in_sequence(&[(write(1), done(1)), (REMOVE, done(1)), (Action::Read, found(1, 1))]));
    rejects(&in_sequence(&[(write(1), done(1)), (REMOVE, done(2))]));
    rejects(&in_sequence(&[(write(1), done(1)), (REMOVE, Response::Absent)]));
}

#[test]
fn versions_never_go_back() {
    accepts(&in_sequence(&[(write(1), done(3)), (REMOVE, done(3)), (write(2), done(8))]));
    rejects(&in_sequence(&[(write(1), done(3)), (REMOVE, done(3)), (write(2), done(3))]));
    rejects(&in_sequence(&[(write(1), done(3)), (REMOVE, done(3)), (write(2), done(1))]));
    rejects(&in_sequence(&[(write(1), done(3)), (write(2), done(3))]));
    // An overwrite has the next version.
    rejects(&in_sequence(&[(write(1), done(3)), (write(2), done(5))]));
}

#[test]
fn conditions_are_kept() {
    let first = (write(1), done(1));
    let stale = Condition::Version(9);
    accepts(&in_sequence(&[first, (write_if(2, Condition::Version(1)), done(2))]));
    accepts(&in_sequence(&[first, (write_if(2, Condition::Absent), Response::Conflict(Some(1)))]));
    accepts(&in_sequence(&[(write_if(2, Condition::Exists), Response::Conflict(None))]));
    rejects(&in_sequence(&[first, (write_if(2, stale), done(2))]));
    rejects(&in_sequence(&[first, (write_if(2, Condition::Absent), done(2))]));
    rejects(&in_sequence(&[(write_if(2, Condition::Exists), done(1))]));
    rejects(&in_sequence(&[
        first,
        (write_if(2, Condition::Version(1)), Response::Conflict(Some(1))),
    ]));
    rejects(&in_sequence(&[first, (write_if(2, stale), Response::Conflict(Some(2)))]));
    // A refused call was not executed.
    let refused = (write_if(2, stale), Response::Conflict(Some(1)));
    rejects(&in_sequence(&[first, refused, (Action::Read, found(2, 2))]));
}

#[test]
fn an_increment_counts_once() {
    let add = |sum, version| (Action::Increment { delta: 5 }, Response::Sum { sum, version });
    let number =
        |number, version| (Action::Read, Response::Found { version, value: Value::Sum(number) });
    accepts(&in_sequence(&[add(5, 1), add(10, 2), number(10, 2)]));
    let untyped = (Action::Read, Response::Found { version: 2, value: Value::Number(10) });
    rejects(&in_sequence(&[add(5, 1), add(10, 2), untyped]));
    rejects(&in_sequence(&[add(5, 1), add(10, 2), number(15, 3)]));
    rejects(&in_sequence(&[add(5, 1), add(5, 2)]));
    accepts(&in_sequence(&[
        (write(1), done(1)),
        (Action::Increment { delta: 5 }, Response::NotANumber),
    ]));
    rejects(&in_sequence(&[add(5, 1), (Action::Increment { delta: 5 }, Response::NotANumber)]));
    // A call that may or may not have been executed counts at most once.
    let perhaps = (Action::Increment { delta: 5 }, Response::Unknown);
    accepts(&in_sequence(&[add(5, 1), perhaps, number(5, 1)]));
    accepts(&in_sequence(&[add(5, 1), perhaps, number(10, 2)]));
    accepts(&in_sequence(&[add(5, 1), perhaps, number(5, 1), number(10, 2)]));
    rejects(&in_sequence(&[add(5, 1), perhaps, number(15, 3)]));
    rejects(&in_sequence(&[add(5, 1), perhaps, number(10, 2), number(5, 1)]));
}

#[test]
fn calls_of_unknown_outcome_take_place_at_most_once() {
    let perhaps = (write(2), Response::Unknown);
    accepts(&in_sequence(&[
        (write(1), done(1)),
        perhaps,
        (Action::Read, found(1, 1)),
        (Action::Read, found(2, 2)),
    ]));
    accepts(&in_sequence(&[
        (write(1), done(1)),
        perhaps,
        (write(3), done(3)),
        (Action::Read, found(3, 3)),
    ]));
    rejects(&in_sequence(&[(Action::Read, found(1, 2)), perhaps]));
    rejects(&in_sequence(&[
        (write(1), done(1)),
        perhaps,
        (Action::Read, found(2, 2)),
        (Action::Read, found(1, 1)),
    ]));
    // The new object may have any version above the earlier versions, but it has only one.
    accepts(&in_sequence(&[perhaps, (Action::Read, found(6, 2)), (write(3), done(7))]));
    rejects(&in_sequence(&[perhaps, (Action::Read, found(6, 2)), (Action::Read, found(7, 2))]));
    // A call that was certainly not executed has no effect.
    rejects(&in_sequence(&[
        (write(1), done(1)),
        (write(2), Response::NotDone),
        (Action::Read, found(2, 2)),
    ]));
}

#[test]
fn calls_at_the_same_time_come_in_either_order() {
    let both = |first: Response, second: Response, last: Response| {
        let mut history = History::default();
        let one = history.invoke(Nanos(0), 0, NAME, write(1));
        let two = history.invoke(Nanos(0), 1, NAME, write(2));
        history.respond(Nanos(0), one, first);
        history.respond(Nanos(0), two, second);
        call(&mut history, Action::Read, last);
        history
    };
    accepts(&both(done(1), done(2), found(2, 2)));
    accepts(&both(done(2), done(1), found(2, 1)));
    rejects(&both(done(1), done(2), found(1, 1)));
    rejects(&both(done(1), done(1), found(1, 1)));
}

/// Makes a history of one object, and one page that covers the whole table.
fn scanned(
    calls: &[(Action, Response)],
    rows: &[(ObjectName, u64, u64)],
    next: Option<u64>,
) -> History {
    let mut history = in_sequence(calls);
    let (invoked, returned) = (history.moment(), history.moment());
    let rows = rows.iter().map(|&(name, version, id)| (name.bytes(), version, text(id))).collect();
    let page = Page {
        client: 0,
        scan: 1,
        table: 1,
        span: Span::Positions(None, next),
        rows,
        invoked,
        returned,
        began: Nanos(0),
        ended: Nanos(0),
    };
    history.pages.push(page);
    history
}

#[test]
fn scans_return_the_objects_that_exist() {
    let there = [(write(1), done(1))];
    accepts(&scanned(&there, &[(NAME, 1, 1)], None));
    rejects(&scanned(&there, &[], None));
    rejects(&scanned(&there, &[(NAME, 1, 2)], None));
    rejects(&scanned(&there, &[(NAME, 2, 1)], None));
    accepts(&scanned(&[(write(1), done(1)), (REMOVE, done(1))], &[], None));
    rejects(&scanned(&[(write(1), done(1)), (REMOVE, done(1))], &[(NAME, 1, 1)], None));
    let other = ObjectName { key: 2, ..NAME };
    rejects(&scanned(&there, &[(NAME, 1, 1), (other, 1, 5)], None));
}

/// A page that is requested before an object exists, and arrives after it has expired, may show the
/// time before. Then the expiry comes at its own time nevertheless (seed 226).
#[test]
fn a_page_that_takes_long_keeps_no_object_from_expiring() {
    let seconds = |seconds: u64| Nanos(seconds * 1_000_000_000);
    let mut history = History::default();
    let invoked = history.moment();
    let write = |history: &mut History, at: Nanos, id, version, ttl| {
        let action = Action::Write { value: text(id), condition: Condition::None };
        let number = history.invoke(at, 0, NAME, action);
        if let Some(ttl) = ttl {
            history.set_ttl(number, ttl);
        }
        history.respond(at, number, Response::Done { version });
    };
    write(&mut history, seconds(1), 1, 1, Some(Duration::from_secs(5)));
    let read = history.invoke(seconds(1), 0, NAME, Action::Read);
    history.respond(seconds(1), read, Response::Found { version: 1, value: text(1) });
    let (returned, span) = (history.moment(), Span::Positions(None, None));
    let (began, ended, rows) = (seconds(0), seconds(20), Vec::new());
    let page = Page { client: 0, scan: 1, table: 1, span, rows, invoked, returned, began, ended };
    history.pages.push(page);
    write(&mut history, seconds(30), 2, 5, None);
    accepts(&history);
    history.pages[0].began = seconds(20);
    rejects(&history);
}

#[test]
fn scans_return_each_object_once_at_its_position() {
    let there = [(write(1), done(1))];
    let wrong = |history: &History| {
        let violation = check(history, SEED, KEYS).expect_err("this cannot be");
        assert!(matches!(*violation, Violation::Page { .. }), "{violation}");
    };
    wrong(&scanned(&there, &[(NAME, 1, 1), (NAME, 1, 1)], None));
    wrong(&scanned(&there, &[(NAME, 1, 1)], Some(0)));
    let stranger = ObjectName { key: 77, ..NAME };
    wrong(&scanned(&there, &[(NAME, 1, 1), (stranger, 1, 1)], None));
}

#[test]
fn bytes_that_no_client_writes_do_not_decode() {
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

const OTHER: ObjectName = ObjectName { table: 1, key: 2 };

/// Records a transaction that was committed: its calls and their responses.
fn transaction(history: &mut History, parts: &[(ObjectName, Action, Response)]) {
    let invoke = |&(name, action, _): &_| history.invoke(Nanos(0), 0, name, action);
    let numbers: Vec<usize> = parts.iter().map(invoke).collect();
    history.transact(&numbers);
    for (number, (_, _, response)) in numbers.into_iter().zip(parts) {
        history.respond(Nanos(0), number, *response);
    }
}

#[track_caller]
fn has_cycle(history: &History) {
    let violation = check(history, SEED, KEYS).expect_err("this cannot be");
    assert!(matches!(*violation, Violation::Cycle(_)), "{violation}");
}

fn overwrite(name: ObjectName, id: u64, version: u64) -> (ObjectName, Action, Response) {
    (name, write_if(id, Condition::Version(version)), Response::Committed)
}

/// Returns a history in which both objects have version 1.
fn two_objects() -> History {
    let mut history = History::default();
    for (name, id) in [(NAME, 1), (OTHER, 2)] {
        let number = history.invoke(Nanos(0), 0, name, write(id));
        history.respond(Nanos(0), number, done(1));
    }
    history
}

#[test]
fn a_transaction_is_seen_whole_or_not_at_all() {
    let changed = || {
        let mut history = two_objects();
        transaction(&mut history, &[overwrite(NAME, 3, 1), overwrite(OTHER, 4, 1)]);
        history
    };
    let read = |name, version, id| (name, Action::Read, found(version, id));
    let mut history = changed();
    transaction(&mut history, &[read(NAME, 2, 3), read(OTHER, 2, 4)]);
    accepts(&history);
    // A reader that overlaps the transaction and sees half of it.
    let mut history = two_objects();
    let reads = [NAME, OTHER].map(|name| history.invoke(Nanos(0), 1, name, Action::Read));
    history.transact(&reads);
    transaction(&mut history, &[overwrite(NAME, 3, 1), overwrite(OTHER, 4, 1)]);
    let mut whole = history.clone();
    for (history, other) in [(&mut whole, found(1, 2)), (&mut history, found(2, 4))] {
        history.respond(Nanos(0), reads[0], found(1, 1));
        history.respond(Nanos(0), reads[1], other);
    }
    accepts(&whole);
    has_cycle(&history);
}

/// Two transactions each read what the other writes, before it is written.
#[test]
fn write_skew_is_a_cycle() {
    let mut history = two_objects();
    let skew = |history: &mut History, reads: ObjectName, writes, id| {
        let numbers = [
            history.invoke(Nanos(0), 0, reads, Action::Read),
            history.invoke(Nanos(0), 0, writes, write_if(id, Condition::Version(1))),
        ];
        history.transact(&numbers);
        numbers
    };
    let first = skew(&mut history, NAME, OTHER, 3);
    let second = skew(&mut history, OTHER, NAME, 4);
    for ([read, written], id) in [(first, 1), (second, 2)] {
        history.respond(Nanos(0), read, found(1, id));
        history.respond(Nanos(0), written, Response::Committed);
    }
    has_cycle(&history);
}

#[test]
fn two_transactions_cannot_make_one_version() {
    let mut history = two_objects();
    transaction(&mut history, &[overwrite(NAME, 3, 1), overwrite(OTHER, 4, 1)]);
    transaction(&mut history, &[overwrite(NAME, 5, 1), overwrite(OTHER, 6, 2)]);
    rejects(&history);
}

/// A transaction that removes an object if there is one may come before or after a write.
#[test]
fn a_removal_without_a_version_may_remove_nothing() {
    let mut history = History::default();
    let number = history.invoke(Nanos(0), 0, NAME, REMOVE);
    history.transact(&[number]);
    call(&mut history, write(1), done(1));
    history.respond(Nanos(0), number, Response::Committed);
    let mut removed = history.clone();
    call(&mut history, Action::Read, found(1, 1));
    accepts(&history);
    call(&mut removed, Action::Read, Response::Absent);
    accepts(&removed);
}
