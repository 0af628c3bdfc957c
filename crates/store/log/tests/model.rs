//! Compares the log with a model in random histories, with and without a disk, and with crashes.
#![allow(unreachable_pub, missing_docs, reason = "a test is no library")]

use crate::common;
use common::{Disk, chance};
use proptest::prelude::*;
use sprat_chance::Chance;
use sprat_log::{
    Config, Content, Durability, Full, Log, MIN_MEMORY, Operation, Pin, Restore, SegmentCopy,
};
use sprat_wire::entry::{Entry, SegmentHeader};
use sprat_wire::expiry::NEVER;
use sprat_wire::once::{COMPLETIONS, Completion, OperationId};
use sprat_wire::op::Status;
use sprat_wire::value::ValueType;
use std::collections::{BTreeMap, HashMap};

type Key = (u32, Vec<u8>);
/// An object's version, type and value.
type Object = (u64, ValueType, Vec<u8>);

/// The changes of the log, in the order in which they were made; `state` is their result.
#[derive(Default)]
struct Model {
    /// For each change: the key, the new object or `None` if the key was removed, and the log's
    /// position after the change. Changes made together have equal positions.
    history: Vec<(Key, Option<Object>, u64)>,
    state: BTreeMap<Key, Object>,
    /// The objects that the log had when it was restored after the last crash.
    base: BTreeMap<Key, Object>,
    /// By key, the version that the version of a new object must exceed.
    versions: HashMap<Key, u64>,
}

impl Model {
    fn record(&mut self, key: Key, object: Option<Object>, position: u64) {
        match &object {
            Some(object) => {
                let floor = self.versions.get(&key).copied().unwrap_or(0);
                assert!(object.0 > floor, "version {} of {key:?} after {floor}", object.0);
                self.versions.insert(key.clone(), object.0);
                self.state.insert(key.clone(), object.clone())
            }
            None => self.state.remove(&key),
        };
        self.history.push((key, object, position));
    }

    /// Compares the model with a log that was restored after a crash, when everything before
    /// `durable` was on disk. The restored log must equal the log's state at position `durable` or
    /// at a later position.
    fn recover(&mut self, found: BTreeMap<Key, Object>, durable: u64) {
        let mut state = std::mem::take(&mut self.base);
        let mut versions = HashMap::new();
        let mut history = std::mem::take(&mut self.history).into_iter().peekable();
        let mut reached = 0;
        loop {
            let between = history.peek().is_some_and(|(_, _, position)| *position == reached);
            let acknowledged = history.peek().is_some_and(|(_, _, position)| *position <= durable);
            if !acknowledged && !between && state == found {
                break;
            }
            let Some((key, object, position)) = history.next() else {
                let differs = |key: &&Key| state.get(*key) != found.get(*key);
                let keys: Vec<_> =
                    state.keys().chain(found.keys()).filter(differs).take(3).collect();
                let versions = |key: &Key| {
                    (state.get(key).map(|object| object.0), found.get(key).map(|object| object.0))
                };
                let versions: Vec<_> = keys.iter().map(|key| versions(key)).collect();
                panic!(
                    "the log is as it never was since {durable}: in the end and found, {keys:?} \
                     had {versions:?}"
                );
            };
            reached = position;
            match object {
                Some(object) => {
                    if acknowledged {
                        versions.insert(key.clone(), object.0);
                    }
                    state.insert(key, object)
                }
                None => state.remove(&key),
            };
        }
        for (key, object) in &found {
            versions.insert(key.clone(), object.0);
        }
        // From now on, new versions must be above the versions that were found, and above those
        // that were acknowledged after the previous crash.
        self.versions.retain(|key, _| !versions.contains_key(key) && !state.contains_key(key));
        self.versions.clear();
        self.versions.extend(versions);
        self.base = found.clone();
        self.state = found;
    }
}

/// The result that the model's operations store in their completions, in addition to the version.
const RESULT: &[u8] = b"sum";

/// Values longer than this, in bytes, may leave the ends of seglets unused.
const LONG_VALUE: usize = 4096;

struct Case {
    chance: Chance,
    keys: usize,
    value_max: usize,
    tables: u32,
    removes: usize,
    /// Percentage of changes that are operations with an id, which take effect once.
    once: usize,
    /// The last sequence number of each client's request slots.
    sequences: HashMap<(u64, u16), u64>,
}

impl Case {
    fn key(&mut self) -> Key {
        // A third of the keys get most of the writes.
        let n = if self.chance.one_in(3) {
            self.chance.index(self.keys)
        } else {
            self.chance.index(self.keys / 3 + 1)
        };
        let table = u32::try_from(n).unwrap() % self.tables + 1;
        (table, format!("key {n:0width$}", width = n % 40).into_bytes())
    }

    /// Returns the id of an operation of some slot if the next change takes effect once.
    fn operation(&mut self) -> Option<OperationId> {
        if self.chance.index(100) >= self.once {
            return None;
        }
        let (client, slot) =
            (self.chance.index(3) as u64, u16::try_from(self.chance.index(20)).unwrap());
        let sequence = self.sequences.entry((client, slot)).or_default();
        *sequence += 1 + self.chance.index(2) as u64;
        Some(OperationId { client, slot, sequence: *sequence, resent: false })
    }

    fn value(&mut self) -> (ValueType, Vec<u8>) {
        if self.chance.one_in(6) {
            let value_type = ValueType::of_code(u32::try_from(self.chance.index(3)).unwrap());
            return (value_type, self.chance.draw().to_le_bytes().to_vec());
        }
        let len = self.chance.index(self.value_max);
        let stamp = self.chance.draw().to_le_bytes();
        (ValueType::Bytes, (0..len).map(|at| stamp[at % 8]).collect())
    }
}

fn contents(log: &Log, tables: u32) -> BTreeMap<Key, Object> {
    let mut all = BTreeMap::new();
    for table in (1..=tables).flat_map(|table| [table, table | COMPLETIONS]) {
        let mut after = None;
        let mut found = Vec::new();
        loop {
            after = log.scan(table, (after, u64::MAX), 4000, 7, &mut found);
            if after.is_none() {
                break;
            }
        }
        assert_eq!(log.table_stats(table).objects, found.len() as u64);
        for reference in found {
            let entry = log.entry(reference);
            // Leaves out the byte that says whether the completion is joined. It does not matter,
            // since the completion is already in the log.
            let value = if table & COMPLETIONS == 0 { entry.value } else { &entry.value[1..] };
            let before = all.insert(
                (table, entry.key.to_vec()),
                (entry.version, entry.value_type, value.to_vec()),
            );
            assert!(before.is_none(), "given twice");
        }
    }
    all
}

/// Records a change in the model. If the change is an operation with an id, also checks that the
/// log has its completion.
fn record(
    model: &mut Model,
    log: &Log,
    key: Key,
    object: Option<Object>,
    version: u64,
    id: Option<OperationId>,
) {
    if let Some(id) = id {
        let completion = [&version.to_le_bytes()[..6], RESULT].concat();
        let name = (key.0 | COMPLETIONS, id.key().to_vec());
        model.record(name, Some((id.sequence, ValueType::Bytes, completion)), log.position());
        let found = log.completion(key.0, &id).map(|found| log.entry(found));
        let found = found.and_then(|entry| Completion::of(&entry));
        assert_eq!(
            found,
            Some(Completion {
                joined: true,
                status: Status::Ok,
                version,
                position: None,
                result: RESULT
            })
        );
    }
    model.record(key, object, log.position());
}

/// Ends all pins and makes the log durable, so that a refused write can succeed.
fn make_way(log: &mut Log, pins: &mut Vec<(Pin, Vec<u8>)>, disk: Option<&mut Disk>) {
    for (pin, value) in pins.drain(..) {
        assert_eq!(log.bytes(&pin), value, "a pinned value stays");
        log.unpin(pin);
    }
    if let Some(disk) = disk {
        disk.settle(log);
    }
}

/// Applies one random action to the log and the model, and to the disk if there is one.
fn step(
    log: &mut Log,
    model: &mut Model,
    case: &mut Case,
    pins: &mut Vec<(Pin, Vec<u8>)>,
    mut disk: Option<&mut Disk>,
) {
    let what = case.chance.index(100);
    if what < 60 {
        let (key, (value_type, value)) = (case.key(), case.value());
        let id = case.operation();
        for round in 0.. {
            let operation = id.map(|id| Operation { id, result: RESULT });
            let content = Content { value: &value, value_type, expires: NEVER };
            let put = log.put_content(key.0, &key.1, content, operation.as_ref());
            match put {
                Ok(written) => {
                    let entry = log.entry(written.reference);
                    assert_eq!((entry.version, entry.value), (written.version, &value[..]));
                    assert_eq!(entry.value_type, value_type);
                    if let Some((version, _, _)) = model.state.get(&key) {
                        assert_eq!(written.version, version + 1);
                    }
                    record(
                        model,
                        log,
                        key,
                        Some((written.version, value_type, value)),
                        written.version,
                        id,
                    );
                }
                Err(Full::Replication) => {
                    assert!(round < 100, "waits for ever: {:?}", log.stats());
                    make_way(log, pins, disk.as_deref_mut());
                    continue;
                }
                Err(Full::Memory | Full::Disk) => {
                    let live = usize::try_from(log.stats().object_bytes).unwrap();
                    let needed = live + 120 + value.len();
                    // Objects of nearly a seglet leave the ends of seglets unused: see
                    // `Log::capacity`.
                    let lost = if case.value_max > LONG_VALUE { log.capacity() / 4 } else { 0 };
                    assert!(
                        needed + lost > log.capacity(),
                        "refused at {live} of {}: {:?}",
                        log.capacity(),
                        log.stats()
                    );
                }
            }
            break;
        }
    } else if what < 60 + case.removes {
        let key = case.key();
        let id = case.operation();
        let removed = match id {
            Some(id) => log.remove_once(key.0, &key.1, &Operation { id, result: RESULT }),
            None => log.remove(key.0, &key.1),
        };
        match removed {
            Ok(removed) => {
                assert_eq!(removed, model.state.get(&key).map(|object| object.0));
                if let Some(version) = removed {
                    record(model, log, key, None, version, id);
                }
            }
            Err(Full::Replication) => make_way(log, pins, disk),
            Err(Full::Memory | Full::Disk) => panic!("no memory to remove: {:?}", log.stats()),
        }
    } else if what < 85 {
        let key = case.key();
        let found = log.find(key.0, &key.1);
        let object = found.map(|found| log.entry(found));
        let object = object.map(|entry| (entry.version, entry.value_type, entry.value.to_vec()));
        assert_eq!(object.as_ref(), model.state.get(&key));
        if let Some(found) = found
            && pins.len() < 4
        {
            let pin = log.pin(found);
            assert_eq!(pin.len(), object.as_ref().unwrap().2.len());
            pins.push((pin, object.unwrap().2));
        }
    } else if what < 90 {
        if !pins.is_empty() {
            let (pin, value) = pins.swap_remove(case.chance.index(pins.len()));
            assert_eq!(log.bytes(&pin), value, "a pinned value stays");
            log.unpin(pin);
        }
    } else if what < 93 {
        log.clean(case.chance.index(8));
    } else if what < 95 {
        change_together(log, model, case, pins, disk);
    } else if let Some(disk) = disk {
        disk.submit(log, case.chance.index(6));
        disk.flush(log, case.chance.index(6));
    }
}

/// Makes a few changes as a group.
fn change_together(
    log: &mut Log,
    model: &mut Model,
    case: &mut Case,
    pins: &mut Vec<(Pin, Vec<u8>)>,
    mut disk: Option<&mut Disk>,
) {
    let count = 1 + case.chance.index(6);
    let changes: Vec<_> =
        (0..count).map(|_| (case.key(), (!case.chance.one_in(4)).then(|| case.value()))).collect();
    let value_len = |value: &Option<(_, Vec<u8>)>| value.as_ref().map_or(8, |it| it.1.len());
    // The entries of an object and of a completion.
    let len = changes.iter().map(|(key, value)| 19 + key.1.len() + value_len(value) + 39).sum();
    if len > log.max_group() {
        return;
    }
    for round in 0.. {
        match log.begin_group(len, false) {
            Ok(()) => break,
            Err(Full::Replication) => {
                assert!(round < 100, "waits for ever: {:?}", log.stats());
                make_way(log, pins, disk.as_deref_mut());
            }
            Err(Full::Memory | Full::Disk) => return,
        }
    }
    let begin = model.history.len();
    for (key, value) in changes {
        let id = case.operation();
        let operation = id.map(|id| Operation { id, result: RESULT });
        match value {
            Some((value_type, value)) => {
                let content = Content { value: &value, value_type, expires: NEVER };
                let written = log.put_content(key.0, &key.1, content, operation.as_ref());
                let version = written.expect("the group has room").version;
                record(model, log, key, Some((version, value_type, value)), version, id);
            }
            None => {
                let removed = match operation {
                    Some(operation) => log.remove_once(key.0, &key.1, &operation),
                    None => log.remove(key.0, &key.1),
                };
                if let Some(version) = removed.expect("the group has room") {
                    record(model, log, key, None, version, id);
                }
            }
        }
    }
    log.end_group();
    let position = log.position();
    model.history[begin..].iter_mut().for_each(|(_, _, at)| *at = position);
}

fn case(seed: u64, keys: usize, value_max: usize, removes: usize) -> Case {
    // A third of the histories have no operations that take effect once.
    let once = if seed.is_multiple_of(3) { 0 } else { 40 };
    Case {
        chance: chance(seed),
        keys,
        value_max,
        tables: 3,
        removes,
        once,
        sequences: HashMap::new(),
    }
}

/// Runs a random history on a log without a disk.
fn volatile(seed: u64, memory: usize, keys: usize, value_max: usize, removes: usize, steps: usize) {
    let mut log = Log::new(Config::new(memory, Durability::Volatile)).unwrap();
    let (mut model, mut case) = (Model::default(), case(seed, keys, value_max, removes));
    let mut pins = Vec::new();
    for at in 0..steps {
        step(&mut log, &mut model, &mut case, &mut pins, None);
        if at % 256 == 0 {
            log.check_invariants();
        }
    }
    assert_eq!(contents(&log, 3), model.state);
    pins.into_iter().for_each(|(pin, _)| log.unpin(pin));
    log.check_invariants();
    empty(&mut log, &model);
}

/// Removes all objects of a log, with operations that take effect once. That must work however full
/// the log is.
fn empty(log: &mut Log, model: &Model) {
    let keys = model.state.keys().filter(|key| key.0 & COMPLETIONS == 0);
    for (sequence, key) in (1..).zip(keys) {
        let id = OperationId { client: u64::MAX, slot: 0, sequence, resent: false };
        let removed = log.remove_once(key.0, &key.1, &Operation { id, result: RESULT });
        assert!(matches!(removed, Ok(Some(_))), "{removed:?} at {:?}", log.stats());
    }
    log.check_invariants();
}

/// Runs random histories on a log with a disk. Each history ends with a crash.
fn durable(seed: u64, keys: usize, value_max: usize, removes: usize, steps: usize, crashes: usize) {
    let mut config = Config::new(MIN_MEMORY, Durability::Tracked);
    if seed.is_multiple_of(2) {
        config.max_segments_on_disk = config.memory / config.segment_bytes * 3 / 2 + 12;
    }
    let mut log = Log::new(config.clone()).unwrap();
    let mut disk = Disk::default();
    let (mut model, mut case) = (Model::default(), case(seed, keys, value_max, removes));
    for _ in 0..=crashes {
        let mut pins = Vec::new();
        for at in 0..case.chance.index(steps) {
            step(&mut log, &mut model, &mut case, &mut pins, Some(&mut disk));
            if at % 256 == 0 {
                log.check_invariants();
            }
        }
        pins.into_iter().for_each(|(pin, _)| log.unpin(pin));
        log.check_invariants();
        assert_eq!(contents(&log, 3), model.state);
        let durable = log.durable_position();
        disk.crash(&mut case.chance);
        log = disk.restore(config.clone(), None);
        log.check_invariants();
        model.recover(contents(&log, 3), durable);
        disk.flush(&mut log, 0);
    }
}

/// Copies of segments, by their ids, as a backup has them.
#[derive(Default)]
struct Copies(BTreeMap<u64, Vec<u8>>);

impl Copies {
    fn add(&mut self, log: &mut Log, id: u64, mut copy: SegmentCopy) {
        let mut bytes = Vec::new();
        while log.continue_copy(&mut copy, 20_000, &mut bytes) {}
        log.end_copy(copy);
        self.0.insert(id, bytes);
    }

    /// Copies a segment that can be copied now and was not copied before.
    fn add_some(&mut self, log: &mut Log, chance: &mut Chance) {
        let lacking: Vec<u64> =
            log.copyable().map(|(id, _)| id).filter(|id| !self.0.contains_key(id)).collect();
        if !lacking.is_empty() {
            let id = lacking[chance.index(lacking.len())];
            let copy = log.begin_copy(id).expect("it was listed a moment ago");
            self.add(log, id, copy);
        }
    }

    fn restore(&self, config: Config, ids: &[u64]) -> Log {
        let mut restore = Restore::new(config, ids, None).unwrap();
        for id in ids.iter().rev() {
            let bytes = &self.0[id];
            let header = Entry::parse_checked(bytes).unwrap();
            let (mut at, mut entries) = (header.encoded_len(), Vec::new());
            while at < bytes.len() {
                let entry = Entry::parse_checked(&bytes[at..]).unwrap();
                let len = entry.encoded_len();
                entries.push((restore.hash(entry.table, entry.key), &bytes[at..at + len]));
                at += len;
            }
            let safe_version = SegmentHeader::parse(header.value).unwrap().safe_version;
            restore.segment(*id, safe_version, entries).unwrap();
        }
        restore.finish(ids.last().copied().unwrap_or(0)).unwrap()
    }
}

/// Runs a random history in which segments are copied at any time, and compares what the copies
/// hold together with the log at the moment of each cut.
fn backed_up(seed: u64, value_max: usize, steps: usize, cuts: usize) {
    let mut config = Config::new(MIN_MEMORY, Durability::Tracked);
    if seed.is_multiple_of(2) {
        config.max_segments_on_disk = config.memory / config.segment_bytes * 3 / 2 + 12;
    }
    let mut log = Log::new(config.clone()).unwrap();
    let mut disk = Disk::default();
    let (mut model, mut case) = (Model::default(), case(seed, 300, value_max, 10));
    let mut copies = Copies::default();
    let mut pins = Vec::new();
    for _ in 0..cuts {
        for _ in 0..case.chance.index(steps) {
            step(&mut log, &mut model, &mut case, &mut pins, Some(&mut disk));
            if case.chance.one_in(100) {
                copies.add_some(&mut log, &mut case.chance);
            }
        }
        let mut waits = 0;
        let cut = loop {
            if let Some(cut) = log.cut() {
                break cut;
            }
            waits += 1;
            assert!(waits < 10_000, "it is never cut: {:?}", log.stats());
            make_way(&mut log, &mut pins, Some(&mut disk));
        };
        let state = model.state.clone();
        for _ in 0..case.chance.index(200) {
            // The segments of the cut are not cleaned, so a write could wait for ever.
            if log.needs_cleaning() {
                break;
            }
            step(&mut log, &mut model, &mut case, &mut pins, Some(&mut disk));
        }
        make_way(&mut log, &mut pins, Some(&mut disk));
        let ids: Vec<u64> = cut.iter().map(|(id, _, _)| *id).collect();
        for (id, _, copy) in cut {
            assert!(log.is_settled(&copy));
            match copies.0.contains_key(&id) {
                true => log.end_copy(copy),
                false => copies.add(&mut log, id, copy),
            }
        }
        log.check_invariants();
        let restored = copies.restore(config.clone(), &ids);
        restored.check_invariants();
        let found = contents(&restored, 3);
        let differs = |key: &&Key| state.get(*key) != found.get(*key);
        let keys: Vec<_> = state.keys().chain(found.keys()).filter(differs).take(3).collect();
        assert!(keys.is_empty(), "copies and log differ in {keys:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        max_shrink_iters: 40,
        ..ProptestConfig::default()
    })]

    #[test]
    fn small_values_without_a_disk(seed: u64, keys in 10usize..6000, removes in 0usize..20) {
        volatile(seed, MIN_MEMORY, keys, 1500, removes, 5000);
    }

    #[test]
    fn large_values_without_a_disk(seed: u64, keys in 30usize..700, removes in 0usize..20) {
        volatile(seed, 4 * MIN_MEMORY, keys, 50_000, removes, 3000);
    }

    #[test]
    fn crashes_with_small_values(seed: u64, keys in 10usize..6000, removes in 0usize..20) {
        durable(seed, keys, 1500, removes, 4000, 4);
    }

    #[test]
    fn crashes_with_large_values(seed: u64, keys in 3usize..200, removes in 0usize..20) {
        durable(seed, keys, 30_000, removes, 2000, 4);
    }

    #[test]
    fn copies_at_a_cut(seed: u64, value_max in 10usize..8000) {
        backed_up(seed, value_max, 2000, 4);
    }

    #[test]
    fn crashes_with_many_removals(seed: u64, keys in 10usize..40_000) {
        durable(seed, keys, 60, 24, 15_000, 3);
    }
}

/// The random histories found these cases.
#[test]
fn a_write_is_not_refused_beside_free_memory() {
    durable(16_365_720_754_631_855_485, 77, 30_000, 18, 2000, 4);
    durable(4_959_714_076_378_742_646, 101, 30_000, 14, 2000, 4);
}

/// The head that should have listed a survivor had no room for it, and a tombstone relied on the
/// survivor nevertheless.
#[test]
fn a_tombstone_does_not_rely_on_a_survivor_that_is_not_listed() {
    durable(10_210_694_562_522_067_765, 177, 30_000, 8, 2000, 4);
}

#[test]
fn a_log_takes_as_much_as_it_says() {
    volatile(10_131_788_691_295_585_730, 4 * MIN_MEMORY, 668, 50_000, 1, 3000);
}

/// The cleaner had taken the last seglet, so a removal found no room for its completion.
#[test]
fn a_full_log_takes_removals() {
    volatile(3_476_376_052_953_269_021, 4 * MIN_MEMORY, 690, 50_000, 1, 3000);
}
