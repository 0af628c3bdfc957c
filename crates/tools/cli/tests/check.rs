//! Tests `sprat check`. Right answers pass, and any wrong answer is found and named. Also runs it
//! against a real server.

use crate::support;
use sprat_chance::Chance;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use sprat_check::{
    Action, Content, Disagreement, KEYS, Model, Operation, Outcome, SHARED_KEY, SharedCounter,
    Work, key_name,
};
use sprat_client::{Condition, Row, Ttl, ValueType};
use sprat_wire::MAX_VALUE;
use support::{PATIENCE, ServerProcess, TCP, UDP, run, sprat};

/// A correct store: objects with their versions, and the highest version that each key has had. It
/// answers all in one moment, so no object expires.
#[derive(Default)]
struct Store {
    objects: HashMap<usize, (u64, Vec<u8>)>,
    /// The times to live of objects that have one.
    ttls: HashMap<usize, Ttl>,
    highest: HashMap<usize, u64>,
}

impl Store {
    fn answer(&mut self, operation: &Operation) -> Outcome {
        let key = operation.key;
        let current = self.objects.get(&key).map(|(version, _)| *version);
        match operation.action {
            Action::Get => match self.objects.get(&key) {
                Some((version, value)) => {
                    Outcome::Found { version: *version, value: value.clone() }
                }
                None => Outcome::Missing,
            },
            Action::Put { condition, .. } | Action::Remove { condition }
                if !condition.holds(current) =>
            {
                Outcome::Conflict { current }
            }
            Action::Put { content, ttl, .. } => {
                self.ttls.remove(&key);
                self.ttls.extend(ttl.map(|ttl| (key, ttl)));
                Outcome::Stored { version: self.store(key, content.bytes()) }
            }
            Action::Remove { .. } => match self.objects.remove(&key) {
                Some((version, _)) => Outcome::Removed { version },
                None => Outcome::Missing,
            },
            Action::Increment { delta } => {
                let old = self
                    .objects
                    .get(&key)
                    .map(|(_, value)| value.as_slice().try_into().map(i64::from_le_bytes));
                match old.unwrap_or(Ok(0)).ok().and_then(|old| old.checked_add(delta)) {
                    Some(sum) => Outcome::Summed {
                        sum,
                        version: self.store(key, sum.to_le_bytes().to_vec()),
                    },
                    None => Outcome::NotANumber,
                }
            }
        }
    }

    fn store(&mut self, key: usize, value: Vec<u8>) -> u64 {
        // A new object may skip versions, as after a crash.
        let skip = if self.objects.contains_key(&key) { 1 } else { 5 };
        let highest = self.highest.entry(key).or_default();
        *highest += skip;
        self.objects.insert(key, (*highest, value));
        *highest
    }

    fn rows(&self) -> Vec<Row> {
        let row = |(key, (version, value)): (&usize, &(u64, Vec<u8>))| Row {
            key: key_name(*key).into_bytes(),
            version: *version,
            value: value.clone(),
            value_type: ValueType::Bytes,
            ttl: self.ttls.get(key).copied(),
        };
        let mut rows: Vec<_> = self.objects.iter().map(row).collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        rows
    }
}

fn moment(now: Instant) -> Range<Instant> {
    now..now
}

/// Runs operations, all at the moment `now`. `spoil` may change the answer to one of them.
fn play(
    operations: u64,
    now: &Range<Instant>,
    spoil: &mut dyn FnMut(&Operation, &mut Outcome),
) -> (Model, Store, Result<(), Disagreement>) {
    let (mut model, mut store, mut work) = (Model::default(), Store::default(), Work::new(7));
    for _ in 0..operations {
        let operation = work.draw(&model, |_| false);
        let mut outcome = store.answer(&operation);
        spoil(&operation, &mut outcome);
        if let Err(disagreement) = model.verify(&operation, &outcome, now) {
            return (model, store, Err(disagreement));
        }
    }
    (model, store, Ok(()))
}

#[test]
fn a_correct_store_passes_with_any_operations() {
    let mut counts: HashMap<String, u64> = HashMap::new();
    let (mut longest, mut empty) = (0, 0);
    let now = moment(Instant::now());
    let (model, store, judged) = play(20_000, &now, &mut |operation, outcome| {
        if let Action::Put { content: Content::Filled { len, .. }, .. } = operation.action {
            longest += u64::from(len == MAX_VALUE);
            empty += u64::from(len == 0);
        }
        let kind = |text: &str| text.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
        *counts
            .entry(kind(&format!("{:?}", operation.action)) + "-" + &kind(&format!("{outcome:?}")))
            .or_default() += 1;
    });
    judged.expect("right answers");
    model.verify_all(store.rows().into_iter(), &now).expect("the same table");
    assert_eq!(model.len(), store.objects.len());
    // Every kind of answer must come often, since this test would otherwise check little.
    for kind in [
        "Get-Found",
        "Get-Missing",
        "Put-Stored",
        "Put-Conflict",
        "Remove-Removed",
        "Remove-Missing",
        "Remove-Conflict",
        "Increment-Summed",
        "Increment-NotANumber",
    ] {
        assert!(counts.get(kind).is_some_and(|&count| count >= 50), "{kind}: {counts:?}");
    }
    assert!(longest >= 5 && empty >= 50, "{longest} of the longest values, {empty} empty ones");
}

#[test]
fn any_wrong_answer_is_found_where_it_is_given() {
    for wanted in ["Found", "Missing", "Stored", "Summed", "Removed", "Conflict", "NotANumber"] {
        for way in 0..2 {
            let mut spoilt = None;
            let (_, _, judged) = play(5000, &moment(Instant::now()), &mut |operation, outcome| {
                if operation.number > 500
                    && spoilt.is_none()
                    && format!("{outcome:?}").starts_with(wanted)
                {
                    let before = outcome.clone();
                    match outcome {
                        Outcome::Found { value, .. } if way == 0 => match value.last_mut() {
                            Some(byte) => *byte ^= 1,
                            None => value.push(0),
                        },
                        Outcome::Summed { sum, .. } if way == 0 => *sum += 1,
                        Outcome::Found { version, .. }
                        | Outcome::Summed { version, .. }
                        | Outcome::Stored { version }
                        | Outcome::Removed { version }
                            if way == 1 =>
                        {
                            // By 5, because a new object may skip up to 5 versions.
                            *version = version.saturating_sub(5);
                        }
                        Outcome::Conflict { current } if way == 1 => {
                            *current = current.map_or(Some(1), |version| Some(version + 1));
                        }
                        _ => *outcome = Outcome::Stored { version: 0 },
                    }
                    assert_ne!(before, *outcome);
                    spoilt = Some((operation.number, key_name(operation.key)));
                }
            });
            let (number, key) = spoilt.expect("such an answer comes");
            let disagreement = judged.expect_err(wanted);
            assert_eq!(
                (disagreement.operation, &disagreement.key),
                (Some(number), &key),
                "{wanted}: {disagreement}"
            );
        }
    }
}

#[test]
fn any_difference_in_the_table_is_found() {
    let now = moment(Instant::now());
    let (model, store, _) = play(2000, &now, &mut |_, _| {});
    model.verify_all(store.rows().into_iter(), &now).expect("the same table");
    let at = store.rows().iter().position(|row| row.ttl.is_none()).expect("most never expire");
    let spoil = |how: &dyn Fn(&mut Vec<Row>)| {
        let mut rows = store.rows();
        how(&mut rows);
        model.verify_all(rows.into_iter(), &now).expect_err("a difference")
    };
    let key = String::from_utf8(store.rows()[at].key.clone()).expect("text");
    assert_eq!(spoil(&|rows| drop(rows.remove(at))).key, key, "missing");
    assert_eq!(spoil(&|rows| rows.push(rows[at].clone())).key, key, "twice");
    assert_eq!(spoil(&|rows| rows[at].version += 1).key, key, "another version");
    assert_eq!(spoil(&|rows| rows[at].value.push(0)).key, key, "another value");
    assert_eq!(
        spoil(&|rows| rows.push(Row {
            key: b"stranger".to_vec(),
            version: 1,
            value: Vec::new(),
            value_type: ValueType::Bytes,
            ttl: None,
        }))
        .key,
        "stranger"
    );
}

#[test]
fn an_object_is_there_until_it_expires_and_not_after() {
    let (ttl, second) = (Duration::from_secs(10), Duration::from_secs(1));
    let content = Content::Number(5);
    let put = Action::Put {
        content,
        condition: Condition::None,
        ttl: Some(Ttl::of(ttl).expect("valid")),
    };
    let begun = Instant::now();
    let mut put_at_first = Model::default();
    let operation = |action| Operation { number: 1, key: 0, action };
    let stored = Outcome::Stored { version: 7 };
    put_at_first.verify(&operation(put), &stored, &moment(begun)).expect("stored");
    let found = Outcome::Found { version: 7, value: content.bytes() };
    let row = Row {
        key: key_name(0).into_bytes(),
        version: 7,
        value: content.bytes(),
        value_type: ValueType::Bytes,
        ttl: None,
    };
    for (after, may_be_there, may_be_gone) in [
        (ttl - second - second, true, false),
        (ttl - second, true, true),
        (ttl + second, true, true),
        (ttl + second + second, false, true),
    ] {
        let now = moment(begun + after);
        for (outcome, is_right) in [(&found, may_be_there), (&Outcome::Missing, may_be_gone)] {
            let judged = put_at_first.clone().verify(&operation(Action::Get), outcome, &now);
            assert_eq!(judged.is_ok(), is_right, "{outcome:?} after {after:?}: {judged:?}");
        }
        let with = put_at_first.verify_all([row.clone()].into_iter(), &now);
        assert_eq!(with.is_ok(), may_be_there, "after {after:?}: {with:?}");
        let without = put_at_first.verify_all(std::iter::empty(), &now);
        assert_eq!(without.is_ok(), may_be_gone, "after {after:?}: {without:?}");
    }
    // What was found missing stays missing, and an increment leaves the time as it is.
    let now = moment(begun + ttl);
    let mut missing = put_at_first.clone();
    missing.verify(&operation(Action::Get), &Outcome::Missing, &now).expect("gone");
    missing.verify(&operation(Action::Get), &found, &now).expect_err("it came back");
    let mut summed = put_at_first.clone();
    let sum = Outcome::Summed { sum: 6, version: 8 };
    summed.verify(&operation(Action::Increment { delta: 1 }), &sum, &now).expect("6");
    let late = moment(begun + 2 * ttl);
    summed.verify(&operation(Action::Get), &Outcome::Missing, &late).expect("gone");
}

#[test]
fn objects_with_an_operation_under_way_are_left_alone() {
    let (model, mut work, mut random) = (Model::default(), Work::new(1), Chance::new(2));
    for _ in 0..5000 {
        let busy: Vec<usize> = (0..64).map(|_| random.index(KEYS)).collect();
        let operation = work.draw(&model, |key| busy.contains(&key));
        assert!(!busy.contains(&operation.key), "{operation:?}");
    }
}

/// Returns a [`SharedCounter`] of depth 4 on which `additions` additions have begun and none has
/// ended.
fn added(additions: u64) -> SharedCounter {
    let mut shared = SharedCounter::new(4);
    (0..additions).for_each(|_| shared.begin());
    shared
}

fn summed(sum: i64) -> Outcome {
    Outcome::Summed { sum, version: 1 }
}

#[test]
fn additions_under_way_together_are_each_done_once() {
    let mut shared = added(0);
    for first in (0..400).step_by(4) {
        (0..4).for_each(|_| shared.begin());
        // The server executes them in any order.
        for sum in [3, 1, 4, 2] {
            shared.verify(1, &summed(first + sum)).expect("a sum of its own");
        }
    }
    let row = |value: &[u8]| Row {
        key: SHARED_KEY.as_bytes().to_vec(),
        version: 400,
        value: value.to_vec(),
        value_type: ValueType::Integer,
        ttl: None,
    };
    shared
        .verify_end(Some(&row(&400_i64.to_le_bytes())))
        .expect("the requested number of additions");
    for wrong in [
        Some(row(&401_i64.to_le_bytes())),
        Some(row(&399_i64.to_le_bytes())),
        Some(row(b"x")),
        None,
    ] {
        let message = shared.verify_end(wrong.as_ref()).expect_err("another number").to_string();
        assert!(message.contains("\"shared\": expected the number 400; got "), "{message}");
    }
    added(0).verify_end(None).expect("never made");
}

#[test]
fn an_addition_done_twice_or_not_at_all_is_found() {
    // The sums that were answered before, and the wrong one.
    for (before, odd) in [
        (&[1, 2][..], summed(2)),
        (&[1, 3], summed(3)),
        (&[], summed(9)),
        (&[], summed(0)),
        (&[], summed(-1)),
        (&[], Outcome::NotANumber),
        (&[], Outcome::Missing),
    ] {
        let mut shared = added(8);
        before.iter().for_each(|&sum| shared.verify(1, &summed(sum)).expect("a sum of its own"));
        let wrong = shared.verify(77, &odd).expect_err("no such sum");
        assert!(wrong.operation == Some(77) && wrong.expected.contains("to 8"), "{wrong}");
    }
    // No answer had sum 1. An addition whose answer is four answers late is not in flight.
    let mut shared = added(8);
    [2, 3, 4]
        .into_iter()
        .for_each(|sum| shared.verify(1, &summed(sum)).expect("the first may be late"));
    let wrong = shared.verify(5, &summed(5)).expect_err("too late");
    assert!(wrong.expected.contains("the sum 1, which no increment returned"), "{wrong}");
}

fn server(data: &Path, listen: &str) -> ServerProcess {
    ServerProcess::start(data, &["-L", listen, "--memory", "128M", "--disk", "512M"])
        .expect("it starts")
}

#[test]
fn a_server_answers_every_operation_correctly() {
    let dir = tempfile::tempdir().expect("a directory");
    for (listen, depth) in [(UDP, "8"), (TCP, "1"), (UDP, "64")] {
        let server = server(&dir.path().join(depth), listen);
        let at = ["-C", &server.coordinator];
        let ran = run(&[
            &["check", "--operations", "3000", "--seed", "11", "--depth", depth, "--json"],
            &at[..],
        ]
        .concat());
        let report: serde_json::Value = serde_json::from_str(ran.ok()).expect("JSON");
        assert_eq!(
            (&report["ok"], &report["operations"], &report["seed"]),
            (&true.into(), &3000.into(), &11.into())
        );
        assert_eq!(report["shared_increments"], 300, "{report}");
        assert!(
            report["disagreement"].is_null() && report["bytes_read"].as_u64() > Some(1_000_000),
            "{report}"
        );
        assert_eq!(run(&[&["table", "list"], &at[..]].concat()).ok(), "", "its table is gone");

        // A table that is kept has the reported number of objects, and is not used again.
        let keep = ["check", "--operations", "300", "--table", "mine", "--keep", "--seed", "3"];
        let text = run(&[&keep[..], &at[..]].concat());
        let stats = run(&[&["table", "stats", "mine", "--json"], &at[..]].concat());
        let stats: serde_json::Value = serde_json::from_str(stats.ok()).expect("JSON");
        let words = text.ok().split_once(" objects at the end").expect("the number").0;
        let there: u64 = words.rsplit(' ').next().and_then(|word| word.parse().ok()).expect(words);
        // Some have expired since.
        let left = stats["objects"].as_u64().expect("a number");
        assert!(there / 2 < left && left <= there, "{text:?}; {stats}");
        let again = run(&[&keep[..], &at[..]].concat());
        assert_eq!(again.code, Some(1));
        assert!(
            again.stderr.contains("\"mine\" exists") && again.stderr.contains("--table"),
            "{}",
            again.stderr
        );
        assert!(server.stop().success());
    }
}

#[test]
fn changes_by_another_client_are_found_and_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = server(dir.path(), UDP);
    let at = ["-C", &server.coordinator];
    let endless = ["check", "--operations", "1000000000", "--table", "t", "--seed", "5"];
    let check = sprat()
        .args(endless)
        .args(at)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut check = KilledOnDrop(check);
    let until = Instant::now() + PATIENCE;
    // Repeats until the table exists, and until the check reads the object before it overwrites it.
    while check.0.try_wait().expect("ours").is_none() {
        assert!(Instant::now() < until, "the check does not notice a foreign change");
        run(&[&["put", "t", "key-0001", "not from here"], &at[..]].concat());
    }
    assert_eq!(check.0.wait().expect("ours").code(), Some(1));
    let mut stderr = String::new();
    std::io::Read::read_to_string(check.0.stderr.as_mut().expect("piped"), &mut stderr)
        .expect("text");
    for part in ["of \"key-0001\": expected ", "; got ", "--seed 5", "kept table \"t\""] {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
    assert!(
        run(&[&["get", "t", "key-0001"], &at[..]].concat())
            .code
            .is_some_and(|code| code == 0 || code == 3)
    );
    assert!(server.stop().success());
}

/// A process. Dropping this value kills the process.
struct KilledOnDrop(std::process::Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
