//! Runs readers, writers, deliveries and a sweeper concurrently, in any order and with faults, and
//! ends each at any point. Readers and writers of a key must see the key as if there were only one
//! copy of it. At the end, the home must have the last write.
#![allow(missing_docs, reason = "a test is no library")]

use crate::pretend;
use pretend::{Far, Near, Shared};
use proptest::prelude::*;
use sprat_bridge::{Cell, Error, KeyOperations, MemoryTable as _, Stamps};
use sprat_client::Condition;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

const BASE: u64 = 1_000_000;
const KEYS: u8 = 2;
const WORKERS: usize = 6;

/// An operation of a user with its result, and the times of its start and end.
#[derive(Clone, Debug)]
struct Observed {
    key: u8,
    begun: usize,
    ended: usize,
    access: Access,
}

#[derive(Clone, Debug)]
enum Access {
    /// A write or deletion, with its version.
    Wrote(u64),
    /// A read, with its value.
    Read(Option<u64>),
}

#[derive(Clone, Debug)]
enum Act {
    Read(u8),
    Write(u8),
    Delete(u8),
    Carry(u8),
    Sweep(u8),
}

type Task = Pin<Box<dyn Future<Output = ()>>>;
type History = Rc<RefCell<Vec<Observed>>>;
type Clock = Rc<RefCell<usize>>;

fn tick(clock: &Clock) -> usize {
    *clock.borrow_mut() += 1;
    *clock.borrow()
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("values of this test are numbers"))
}

/// Makes the task of an operation. The history gets the operations that end with an answer. A write
/// whose answer a fault loses is known only to `Shared`.
fn act(
    act: &Act,
    operations: &Rc<KeyOperations<Near, Far>>,
    history: &History,
    clock: &Clock,
) -> Task {
    let (operations, history, clock, act) =
        (Rc::clone(operations), Rc::clone(history), Rc::clone(clock), act.clone());
    Box::pin(async move {
        let begun = tick(&clock);
        let saw = |key, access| {
            let ended = tick(&clock);
            history.borrow_mut().push(Observed { key, begun, ended, access });
        };
        match act {
            Act::Read(key) => match operations.read(&[key]).await {
                Ok(read) => saw(key, Access::Read(read.value.as_deref().map(number))),
                Err(Error::Store(_) | Error::Home { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            Act::Write(key) | Act::Delete(key) => {
                let value = matches!(act, Act::Write(_)).then_some(begun as u64);
                let bytes = value.map(u64::to_le_bytes);
                let cell = bytes.as_ref().map_or(Cell::Gone, |bytes| Cell::Dirty(bytes));
                if let Ok(version) =
                    operations.near.put(&[key], &cell.encode(), Condition::None).await
                {
                    saw(key, Access::Wrote(version));
                }
            }
            Act::Carry(key) => drop(operations.deliver(&[key]).await),
            Act::Sweep(key) => {
                let Ok(Some(object)) = operations.near.get(&[key]).await else { return };
                if Cell::parse(&object.value).expect("a cell").may_be_evicted() {
                    drop(operations.near.remove(&[key], Condition::Version(object.version)).await);
                }
            }
        }
    })
}

/// Runs operations, `WORKERS` at a time, and polls them in the order that `choices` gives; some are
/// dropped before they end.
fn run(acts: &[Act], choices: &[u8], faults: u8) {
    let shared = Shared::new(choices, faults);
    let stamps = Stamps::new(BASE).expect("a time");
    let operations =
        Rc::new(KeyOperations { near: Near(shared.clone()), far: Far(shared.clone()), stamps });
    let (history, clock) = (History::default(), Clock::default());
    let mut left = acts.iter();
    let mut tasks: Vec<Task> = Vec::new();
    loop {
        while tasks.len() < WORKERS
            && let Some(next) = left.next()
        {
            tasks.push(act(next, &operations, &history, &clock));
        }
        if tasks.is_empty() {
            break;
        }
        let at = shared.choose(tasks.len());
        if shared.fails() && shared.fails() {
            drop(tasks.swap_remove(at)); // as if its process were killed
        } else if poll(&mut tasks[at]) {
            drop(tasks.swap_remove(at));
        }
    }
    shared.stop_faults();
    check(&history.borrow(), &shared);
    // The remaining objects are delivered and evicted. A reader must then find the last write.
    for key in 0..KEYS {
        while shared.is_dirty(key) {
            finish(act(&Act::Carry(key), &operations, &history, &clock));
        }
        let last = shared.last_written(key);
        let row = shared.row(key);
        assert_eq!(
            row.as_ref().map(|row| number(&row.value)),
            last.as_ref().and_then(|last| last.0)
        );
        if let (Some(row), Some((_, version))) = (row, last) {
            assert_eq!(row.stamp, stamps.of(version));
        }
        finish(act(&Act::Sweep(key), &operations, &history, &clock));
        assert!(shared.object(key).is_none(), "all objects can be evicted");
        finish(act(&Act::Read(key), &operations, &history, &clock));
    }
    check(&history.borrow(), &shared);
}

fn poll(task: &mut Task) -> bool {
    matches!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()))
}

fn finish(mut task: Task) {
    while !poll(&mut task) {}
}

/// Checks that each read found a value that is not older than what operations that ended before its
/// start wrote or found.
fn check(history: &[Observed], shared: &Shared) {
    for key in 0..KEYS {
        // Versions of all values, including those of writes whose answer was lost.
        let versions: BTreeMap<u64, Option<u64>> = shared.written(key);
        let of = |value: Option<u64>| {
            versions.iter().filter(move |(_, wrote)| **wrote == value).map(|(version, _)| *version)
        };
        let mut all: Vec<&Observed> = history.iter().filter(|seen| seen.key == key).collect();
        all.sort_by_key(|seen| seen.ended);
        // For each operation that ended: the lowest version that later operations may see.
        let mut floors: Vec<(usize, u64)> = Vec::new();
        for seen in all {
            let before = floors.iter().filter(|(ended, _)| *ended < seen.begun);
            let floor = before.map(|(_, version)| *version).max().unwrap_or(0);
            let version = match &seen.access {
                Access::Wrote(version) => *version,
                Access::Read(value) => {
                    let nothing_yet = (value.is_none() && floor == 0).then_some(0);
                    let found =
                        nothing_yet.or_else(|| of(*value).find(|version| *version >= floor));
                    found.unwrap_or_else(|| {
                        panic!("key {key}: {seen:?} is older than {floor}: {versions:?}")
                    })
                }
            };
            floors.push((seen.ended, version));
        }
    }
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let key = 0..KEYS;
    let act = prop_oneof![
        4 => key.clone().prop_map(Act::Read),
        3 => key.clone().prop_map(Act::Write),
        1 => key.clone().prop_map(Act::Delete),
        4 => key.clone().prop_map(Act::Carry),
        2 => key.prop_map(Act::Sweep),
    ];
    prop::collection::vec(act, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn users_see_one_place(
        acts in acts(),
        choices in prop::collection::vec(any::<u8>(), 32..600),
        faults in 0u8..60,
    ) {
        run(&acts, &choices, faults);
    }
}
