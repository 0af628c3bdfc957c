//! Properties of the log, one in each test.
#![allow(unreachable_pub, missing_docs, reason = "a test is no library")]

use crate::common;
use common::{Disk, chance};
use sprat_log::{Config, Durability, Full, Log, MIN_MEMORY, Operation, Ref, Restore, Role};
use sprat_wire::entry::{Entry, Kind, SegmentHeader};
use sprat_wire::once::{COMPLETIONS, Completion, OperationId};
use sprat_wire::op::Status;
use sprat_wire::tablet::{Range, Tablet, position};
use std::collections::{BTreeMap, BTreeSet};

const MB: usize = 1 << 20;

fn volatile(memory: usize) -> Log {
    Log::new(Config::new(memory, Durability::Volatile)).unwrap()
}

/// Returns a log whose segments hold seven of the longest values each, so that little space is lost
/// at the end of each segment.
fn volatile_with_long_segments() -> Log {
    let config = Config::new(64 * MB, Durability::Volatile);
    Log::new(Config { segment_bytes: 8 * MB, max_segments_on_disk: 32, ..config }).unwrap()
}

fn key(n: usize) -> Vec<u8> {
    format!("key {n:026}").into_bytes()
}

/// Puts one object for each number.
fn fill(
    log: &mut Log,
    table: u32,
    numbers: std::ops::Range<usize>,
    value: impl Fn(usize) -> Vec<u8>,
) {
    for n in numbers {
        log.put(table, &key(n), &value(n)).unwrap();
    }
}

/// Scans a table to its end; `between` changes the log after each call.
fn scan(
    log: &mut Log,
    table: u32,
    limit: usize,
    mut between: impl FnMut(&mut Log),
) -> Vec<Vec<u8>> {
    let (mut after, mut keys) = (None, Vec::new());
    loop {
        let mut found = Vec::new();
        after = log.scan(table, (after, u64::MAX), usize::MAX, limit, &mut found);
        keys.extend(found.iter().map(|&found| log.entry(found).key.to_vec()));
        if after.is_none() {
            return keys;
        }
        between(log);
    }
}

#[test]
fn the_table_grows_and_stays_small() {
    let mut log = volatile(64 * MB);
    let mut worst: f64 = 0.0;
    for n in 0..300_000usize {
        log.put(1, &key(n), &[]).unwrap();
        if n >= 100_000 && n % 1000 == 0 {
            let bytes = u32::try_from(log.stats().table_bytes).unwrap();
            worst = worst.max(f64::from(bytes) / f64::from(u32::try_from(n).unwrap()));
        }
    }
    assert!(worst <= 12.0, "{worst} bytes an object");
    log.check_invariants();
    for n in 0..300_000 {
        assert!(log.find(1, &key(n)).is_some());
        assert!(log.find(2, &key(n)).is_none());
    }
}

#[test]
fn a_scan_gives_each_object_once_while_the_table_grows() {
    let mut log = volatile(64 * MB);
    fill(&mut log, 1, 0..2000, |_| b"stays".to_vec());
    fill(&mut log, 2, 0..500, |_| b"another table".to_vec());
    let mut next = 1_000_000;
    let keys = scan(&mut log, 1, 10, |log| {
        for _ in 0..if next < 1_030_000 { 300 } else { 0 } {
            log.put(1, &key(next), b"comes meanwhile").unwrap();
            next += 1;
        }
    });
    let distinct: BTreeSet<_> = keys.iter().cloned().collect();
    assert_eq!(distinct.len(), keys.len(), "given twice");
    (0..2000).for_each(|n| assert!(distinct.contains(&key(n)), "{n} was left out"));
    assert!(keys.len() > 2000, "the table did grow");
}

#[test]
fn a_cursor_outlives_a_restart() {
    let config = Config { seed: 77, ..Config::new(MIN_MEMORY, Durability::Tracked) };
    let mut log = Log::new(config.clone()).unwrap();
    let mut disk = Disk::default();
    fill(&mut log, 1, 0..3000, |_| b"value".to_vec());
    disk.settle(&mut log);
    let mut first = Vec::new();
    let after = log.scan(1, (None, u64::MAX), usize::MAX, 1000, &mut first);
    let mut keys: Vec<_> = first.iter().map(|&found| log.entry(found).key.to_vec()).collect();
    disk.crash(&mut chance(1));
    let log = disk.restore(config, None);
    let mut after = after;
    while after.is_some() {
        let mut found = Vec::new();
        after = log.scan(1, (after, u64::MAX), usize::MAX, 1000, &mut found);
        keys.extend(found.iter().map(|&found| log.entry(found).key.to_vec()));
    }
    assert_eq!(keys.len(), 3000);
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 3000);
}

#[test]
fn a_dropped_table_is_gone_at_once_and_its_memory_soon() {
    let mut log = volatile(MIN_MEMORY);
    fill(&mut log, 1, 0..5000, |_| [1; 100].to_vec());
    fill(&mut log, 2, 0..5000, |_| [2; 100].to_vec());
    assert_eq!(log.table_stats(1).objects, 5000);
    log.drop_table(1);
    assert_eq!(log.table_stats(1).objects, 0);
    assert!(log.find(1, &key(7)).is_none());
    assert!(scan(&mut log, 1, 100, |_| {}).is_empty());
    log.check_invariants();
    while !log.clean(1).idle {
        log.check_invariants();
    }
    assert_eq!(log.stats().objects, 5000);
    assert_eq!(scan(&mut log, 2, 100, |_| {}).len(), 5000);
    // All room of the dropped table is free again.
    fill(&mut log, 3, 0..5000, |_| [3; 300].to_vec());
    log.check_invariants();
}

#[test]
fn a_dropped_tablet_goes_and_the_rest_of_its_table_stays() {
    let mut log = volatile(MIN_MEMORY);
    fill(&mut log, 1, 0..5000, |_| [1; 100].to_vec());
    fill(&mut log, 2, 0..100, |_| [2; 100].to_vec());
    let [low, high] = Range::ALL.parts(2)[..] else { unreachable!("two") };
    let place = |key: &[u8]| position(log.config().seed, 1, key);
    let stay: Vec<Vec<u8>> = (0..5000).map(key).filter(|key| low.contains(place(key))).collect();
    let mut found = Vec::new();
    assert_eq!(
        log.scan(1, (None, low.last), usize::MAX, 10_000, &mut found).and(None::<u64>),
        None
    );
    assert!(
        found.iter().all(|&found| low.contains(place(log.entry(found).key))),
        "a scan ends at its limit"
    );
    let tablet = |range| Tablet { table: 1, range };
    let id = OperationId { client: 1, slot: 2, sequence: 3, resent: false };
    log.put_once(1, &stay[0], b"x", &Operation { id, result: &[] }).unwrap();
    log.drop_tablet(tablet(high));
    assert!(
        log.is_dropping(tablet(high))
            && log.is_dropping(tablet(Range::ALL))
            && !log.is_dropping(tablet(low))
    );
    while !log.clean(1).idle {
        log.check_invariants();
    }
    assert!(!log.is_dropping(tablet(high)));
    assert_eq!(log.table_stats(1).objects, stay.len() as u64);
    assert!(stay.iter().all(|key| log.find(1, key).is_some()));
    assert!(
        (0..5000)
            .map(key)
            .filter(|key| high.contains(position(0, 1, key)))
            .all(|key| log.find(1, &key).is_none())
    );
    assert!(log.completion(1, &id).is_some(), "the log does not know its tablet");
    // Objects written again do not count as dropped.
    fill(&mut log, 1, 0..5000, |_| [3; 100].to_vec());
    while !log.clean(1).idle {}
    assert_eq!((log.table_stats(1).objects, log.table_stats(2).objects), (5000, 100));
    log.check_invariants();
}

#[test]
fn a_restart_leaves_out_tables_that_are_gone() {
    let config = Config::new(MIN_MEMORY, Durability::Tracked);
    let mut log = Log::new(config.clone()).unwrap();
    let mut disk = Disk::default();
    for table in 1..=3 {
        fill(&mut log, table, 0..100, |_| b"value".to_vec());
    }
    log.drop_table(2);
    disk.settle(&mut log);
    disk.crash(&mut chance(1));
    let mut log = disk.restore(config, Some(&[3, 1]));
    let sizes: Vec<_> = (1..=3).map(|table| scan(&mut log, table, 100, |_| {}).len()).collect();
    assert_eq!(sizes, [100, 0, 100]);
}

#[test]
fn memory_takes_as_much_as_it_says_and_survives_being_full() {
    let mut log = volatile(64 * MB);
    let mut count = 0;
    let full = loop {
        match log.put(1, &key(count), &[0; 100]) {
            Ok(_) => count += 1,
            Err(full) => break full,
        }
    };
    assert_eq!(full, Full::Memory);
    assert!(usize::try_from(log.stats().object_bytes).unwrap() + 150 > log.capacity());
    // Objects can still be overwritten and read.
    let mut chance = chance(3);
    for _ in 0..200_000 {
        log.put(1, &key(chance.index(count)), &[1; 100]).unwrap();
    }
    log.check_invariants();
    assert_eq!(log.put(1, b"one more", &[0; 100]), Err(Full::Memory));
    assert_eq!(log.put(1, &key(0), &[0; 5000]), Err(Full::Memory));
    for n in 0..100 {
        assert!(log.remove(1, &key(n)).unwrap().is_some());
    }
    log.put(1, b"one more", &[0; 5000]).unwrap();
}

#[test]
fn large_objects_fit_between_small_ones() {
    let mut log = volatile_with_long_segments();
    let mut chance = chance(5);
    // Fragments the memory: fills it with small objects, then removes most of them at random.
    let mut small = 0;
    while log.put(1, &key(small), &[0; 1000]).is_ok() {
        small += 1;
    }
    let kept: Vec<usize> = (0..small).filter(|_| chance.one_in(4)).collect();
    let gone: BTreeSet<usize> = (0..small)
        .collect::<BTreeSet<_>>()
        .difference(&kept.iter().copied().collect())
        .copied()
        .collect();
    for n in gone {
        log.remove(1, &key(n)).unwrap();
    }
    // Three quarters of the memory are free: large objects must fit there. Each large object is a
    // little longer than 16 seglets. If it lies in seglets of its own, up to a seventeenth of their
    // space is lost.
    let mut large = 0;
    let value = vec![7; MB];
    while usize::try_from(log.stats().object_bytes).unwrap() < log.capacity() / 10 * 9 {
        log.put(2, &key(large), &value).unwrap();
        large += 1;
    }
    log.check_invariants();
    for _ in 0..100 {
        log.put(2, &key(chance.index(large)), &value).unwrap();
        log.put(1, &key(kept[chance.index(kept.len())]), &[1; 1000]).unwrap();
    }
    log.check_invariants();
    assert!(kept.iter().all(|&n| log.find(1, &key(n)).is_some()));
}

#[test]
fn values_of_every_size_mix() {
    let mut log = volatile_with_long_segments();
    let mut chance = chance(9);
    let mut model = BTreeMap::new();
    let mut refused = 0;
    for _ in 0..6000 {
        let n = chance.index(600);
        let len = 1 << chance.index(21);
        let stamp = u8::try_from(chance.index(256)).unwrap();
        match log.put(1, &key(n), &vec![stamp; len]) {
            Ok(_) => drop(model.insert(n, (len, stamp))),
            Err(Full::Replication) => unreachable!(),
            Err(Full::Memory | Full::Disk) => {
                refused += 1;
                let live = usize::try_from(log.stats().object_bytes).unwrap();
                // Values as long as a 64th of the memory leave holes in which no other value fits.
                assert!(
                    live + len > log.capacity() / 100 * 85,
                    "{live} + {len} of {}",
                    log.capacity()
                );
                // Make room for further values.
                for _ in 0..40 {
                    let n = chance.index(600);
                    assert_eq!(
                        log.remove(1, &key(n)).unwrap().is_some(),
                        model.remove(&n).is_some()
                    );
                }
            }
        }
    }
    log.check_invariants();
    assert!(refused > 0, "the memory was never full");
    for (n, (len, stamp)) in model {
        let entry = log.entry(log.find(1, &key(n)).unwrap());
        assert_eq!(entry.value.len(), len);
        assert!(entry.value.iter().all(|&byte| byte == stamp));
    }
}

#[test]
fn versions_go_on_after_removal_and_restart() {
    let config = Config::new(MIN_MEMORY, Durability::Tracked);
    let mut log = Log::new(config.clone()).unwrap();
    let mut disk = Disk::default();
    let first = log.put(1, b"a", b"1").unwrap().version;
    let second = log.put(1, b"a", b"2").unwrap().version;
    assert_eq!(second, first + 1);
    assert_eq!(log.remove(1, b"a").unwrap(), Some(second));
    assert_eq!(log.remove(1, b"a").unwrap(), None);
    disk.settle(&mut log);
    disk.crash(&mut chance(1));
    let mut log = disk.restore(config, None);
    assert!(log.find(1, b"a").is_none());
    assert!(log.put(1, b"a", b"3").unwrap().version > second);
}

#[test]
fn durability_is_reported_entry_by_entry() {
    let mut log = Log::new(Config::new(MIN_MEMORY, Durability::Tracked)).unwrap();
    let a = log.put(1, b"a", b"1").unwrap().reference;
    let after_a = log.position();
    let pending = log.next_pending().unwrap();
    let (segment, up_to) = (pending.segment, pending.offset + pending.len);
    log.mark_submitted(segment, up_to, false);
    let b = log.put(1, b"b", b"2").unwrap().reference;
    assert!(!log.is_durable(a) && !log.is_durable(b));
    log.mark_durable(segment, up_to, false);
    assert!(log.is_durable(a) && !log.is_durable(b));
    assert_eq!(log.durable_position(), after_a);
    assert!(log.position() > after_a);
}

/// Returns an operation of a client in a request slot.
fn operation(client: u64, slot: u16) -> Operation<'static> {
    Operation { id: OperationId { client, slot, sequence: 1, resent: false }, result: &[] }
}

#[test]
fn completions_go_with_clients_that_are_not_heard_of() {
    let mut log = volatile(8 * MB);
    for slot in 0..1000 {
        log.put_once(1, &key(usize::from(slot)), b"value", &operation(1, slot)).unwrap();
    }
    log.put_once(2, b"key", b"value", &operation(2, 0)).unwrap();
    assert_eq!(
        (log.stats().objects, log.stats().completions, log.stats().clients),
        (1001, 1001, 2)
    );
    for generation in 0..2 {
        log.age_clients();
        while !log.clean(8).idle {}
        let kept = if generation == 0 { 1001 } else { 3 };
        assert_eq!(
            (log.stats().objects, log.stats().completions),
            (1001, kept),
            "generation {generation}"
        );
        log.put_once(2, b"key", b"value", &operation(2, 1 + generation)).unwrap();
        log.remove_once(2, b"key", &operation(2, 7 + generation)).unwrap();
        log.put(2, b"key", b"value").unwrap();
    }
    assert!(
        log.completion(1, &operation(1, 0).id).is_none()
            && log.completion(2, &operation(2, 1).id).is_some()
    );
    log.check_invariants();
}

#[test]
fn a_dropped_table_takes_its_completions_along() {
    let mut log = volatile(8 * MB);
    log.put_once(1, b"key", b"value", &operation(1, 0)).unwrap();
    log.remove(1, b"key").unwrap();
    assert_eq!(log.tables().collect::<Vec<_>>(), [1], "there are completions left");
    log.drop_table(1);
    assert!(log.completion(1, &operation(1, 0).id).is_none());
    assert!(log.is_dropped(1));
    while !log.clean(8).idle {}
    assert!(!log.is_dropped(1) && log.stats().completions == 0);
}

#[test]
fn a_completion_that_stands_alone_counts_at_the_end_of_a_head() {
    let config = Config::new(MIN_MEMORY, Durability::Tracked);
    let (mut log, mut disk) = (Log::new(config.clone()).unwrap(), Disk::default());
    let id = operation(1, 5).id;
    log.complete_alone((1, b"k"), &id, Status::Conflict, 3).unwrap();
    disk.settle(&mut log);
    let mut log = disk.restore(config.clone(), Some(&[1]));
    assert!(log.completion(1, &id).is_some());
    // A completion counts also in another log that adopts it, where the entry that followed it may
    // be absent.
    log.put_once(1, b"key", b"value", &operation(2, 0)).unwrap();
    let (mut other, mut elsewhere) = (Log::new(config.clone()).unwrap(), Disk::default());
    let joined = log.completion(1, &operation(2, 0).id).map(|found| log.entry(found)).unwrap();
    let (named, told) =
        ((joined.table, joined.key, joined.version), Completion::of(&joined).unwrap());
    assert_eq!(other.adopt_completion(named, &Completion::BEGUN), Ok(true));
    assert_eq!(
        other.adopt_completion(named, &told),
        Ok(true),
        "this completion says more than that the operation was begun"
    );
    assert_eq!(
        other.adopt_completion(named, &told),
        Ok(false),
        "the log has this completion already"
    );
    assert_eq!(
        other.adopt_completion(named, &Completion::BEGUN),
        Ok(false),
        "this completion says less"
    );
    elsewhere.settle(&mut other);
    let other = elsewhere.restore(config, Some(&[1]));
    assert!(other.completion(1, &operation(2, 0).id).is_some());
}

#[test]
fn a_revoked_completion_is_forgotten_and_earlier_ones_stay_over() {
    let config = Config::new(MIN_MEMORY, Durability::Tracked);
    let (mut log, mut disk) = (Log::new(config.clone()).unwrap(), Disk::default());
    let id = operation(1, 5).id;
    let (key, table) = (id.key(), 1 | COMPLETIONS);
    let told = Completion {
        joined: false,
        status: Status::Ok,
        version: 7,
        position: Some(3),
        result: b"result",
    };
    assert_eq!(log.adopt_completion((table, &key, id.sequence), &told), Ok(true));
    log.forget_completion((table, &key, id.sequence - 1)).unwrap();
    let known = |log: &Log| {
        let entry = log.entry(log.completion(1, &id).unwrap());
        (entry.version, Completion::of(&entry).unwrap().is_begun())
    };
    assert_eq!(known(&log), (id.sequence, false), "that was another operation");
    log.forget_completion((table, &key, id.sequence)).unwrap();
    assert_eq!(known(&log), (id.sequence, true));
    disk.settle(&mut log);
    // The operation may be executed now. The log then has its completion.
    log.put_once(1, b"key", b"value", &operation(1, 5)).unwrap();
    assert_eq!(known(&log), (id.sequence, false));
    let log = disk.restore(config, Some(&[1]));
    assert_eq!(log.entry(log.completion(1, &id).unwrap()).version, id.sequence);
}

#[test]
fn an_invalid_completion_is_left_out() {
    let config = Config::new(MIN_MEMORY, Durability::Tracked);
    let (mut log, mut disk) = (Log::new(config.clone()).unwrap(), Disk::default());
    log.put(1 | COMPLETIONS, b"short", b"value").unwrap();
    disk.settle(&mut log);
    let mut log = disk.restore(config, None);
    assert_eq!(log.stats().completions, 0);
    log.age_clients();
    while !log.clean(8).idle {}
}

#[test]
fn tombstones_die_with_the_segments_they_guard_against() {
    let mut log = Log::new(Config::new(MIN_MEMORY, Durability::Tracked)).unwrap();
    let mut disk = Disk::default();
    let mut chance = chance(11);
    // Some objects stay. Others are overwritten and removed, until 40 times the memory has been
    // written.
    for n in 0..10_000 {
        log.put(1, &key(n), &[0; 100]).unwrap();
    }
    let mut written = 0usize;
    while written < 40 * MIN_MEMORY {
        let n = 100_000 + chance.index(3000);
        let len = chance.index(500);
        let done = match chance.index(3) {
            0 => log.remove(1, &key(n)).map(|_| ()),
            _ => log.put(1, &key(n), &vec![1; len]).map(|_| ()),
        };
        match done {
            Ok(()) => written += 50 + len,
            Err(Full::Replication) => disk.settle(&mut log),
            Err(Full::Memory | Full::Disk) => panic!("{:?}", log.stats()),
        }
        if chance.one_in(50) {
            disk.submit(&mut log, 3);
            disk.flush(&mut log, 3);
        }
    }
    disk.settle(&mut log);
    log.check_invariants();
    assert!((0..10_000).all(|n| log.find(1, &key(n)).is_some()));
    let stats = log.stats();
    assert!(stats.cleaner.combined_segments > 0);
    assert!(stats.tombstone_bytes < stats.memory_bytes / 4, "{stats:?}");
}

#[test]
fn a_restart_copes_with_more_on_disk_than_memory_holds() {
    let config = Config::new(MIN_MEMORY, Durability::Tracked);
    let mut log = Log::new(config.clone()).unwrap();
    let mut disk = Disk::default();
    let mut chance = chance(13);
    let keys = log.capacity() * 3 / 4 / 250;
    let mut model = BTreeMap::new();
    for _ in 0..30 * keys {
        let n = chance.index(keys);
        let value = chance.draw().to_le_bytes().repeat(25);
        loop {
            match log.put(1, &key(n), &value) {
                Ok(_) => break,
                Err(Full::Replication) => disk.settle(&mut log),
                Err(Full::Memory | Full::Disk) => panic!("{:?}", log.stats()),
            }
        }
        model.insert(n, value);
    }
    disk.settle(&mut log);
    let on_disk: usize = disk.replicas.values().map(Vec::len).sum();
    assert!(on_disk > MIN_MEMORY, "{on_disk} bytes on disk make no test");
    disk.crash(&mut chance);
    // `restore` replays the segments in descending order, so that it meets newer versions first.
    let log = disk.restore(config, None);
    log.check_invariants();
    assert!(
        model.iter().all(|(&n, value)| log.entry(log.find(1, &key(n)).unwrap()).value == value)
    );
}

#[test]
fn restoring_refuses_unlisted_segments() {
    let config = Config::new(MIN_MEMORY, Durability::Tracked);
    let mut restore = Restore::new(config.clone(), &[3, 5], None).unwrap();
    restore.segment(4, 1, []).unwrap_err();
    restore.segment(5, 9, []).unwrap();
    restore.segment(5, 9, []).unwrap_err();
    restore.segment(3, 1, [(0, &b"no entry"[..])]).unwrap_err();
    let mut restore = Restore::new(config.clone(), &[3, 5], None).unwrap();
    restore.segment(5, 9, []).unwrap();
    assert!(restore.finish(5).is_err(), "segment 3 is missing");
    let mut restore = Restore::new(config, &[3], None).unwrap();
    restore.segment(3, 9, []).unwrap();
    let mut log = restore.finish(20).unwrap();
    assert_eq!(log.next_pending().unwrap().segment, 21);
    assert_eq!(log.put(1, b"new", b"").unwrap().version, 9);
}

#[test]
fn a_wrong_configuration_is_refused() {
    let good = Config::new(MIN_MEMORY, Durability::Tracked);
    assert!(Log::new(good.clone()).is_ok());
    assert!(Log::new(Config { memory: MIN_MEMORY / 2, ..good.clone() }).is_err());
    assert!(Log::new(Config { memory: usize::MAX, ..good.clone() }).is_err());
    assert!(Log::new(Config { segment_bytes: 1000, ..good.clone() }).is_err());
    assert!(Log::new(Config { segment_bytes: 9 * MB, ..good.clone() }).is_err());
    assert!(Log::new(Config { max_segments_on_disk: 3, ..good.clone() }).is_err());
    assert!(Log::new(Config { max_segments_on_disk: 1 << 30, ..good }).is_err());
    for memory in [MIN_MEMORY, 7 * MB, 64 * MB, 1000 * MB, 64 << 30] {
        assert!(Log::new(Config::new(memory, Durability::Volatile)).is_ok(), "{memory}");
    }
}

#[test]
fn longest_keys_and_values_are_kept() {
    let mut log = volatile(64 * MB);
    let (key, value) = (vec![1; sprat_wire::MAX_KEY], vec![2; sprat_wire::MAX_VALUE]);
    let written = log.put(u32::MAX, &key, &value).unwrap();
    let entry = log.entry(written.reference);
    assert_eq!(
        (entry.kind, entry.table, entry.key, entry.value),
        (Kind::Object, u32::MAX, &key[..], &value[..])
    );
    log.put(0, &[], &[]).unwrap();
    assert_eq!(log.entry(log.find(0, &[]).unwrap()).value, b"");
    let small = volatile(MIN_MEMORY).put(1, &key, &value);
    assert_eq!(small, Err(Full::Memory), "longer than a segment of so small a log");
}

#[test]
fn pinned_memory_is_not_reused() {
    let mut log = volatile(MIN_MEMORY);
    let mut chance = chance(17);
    let value = |n: usize| vec![u8::try_from(n % 251).unwrap(); 300];
    let keys = log.capacity() / 2 / 350;
    fill(&mut log, 1, 0..keys, value);
    let found: Ref = log.find(1, &key(123)).unwrap();
    let pin = log.pin(found);
    log.remove(1, &key(123)).unwrap();
    for _ in 0..20 * keys {
        let n = chance.index(keys);
        log.put(1, &key(n), &value(n)).unwrap();
    }
    assert_eq!(log.bytes(&pin), value(123));
    log.check_invariants();
    log.drop_table(1);
    while !log.clean(100).idle {}
    sweep(&mut log);
    assert!(sweep(&mut log) > 0);
    assert_eq!(log.bytes(&pin), value(123));
    log.unpin(pin);
    log.check_invariants();
    while !log.clean(100).idle {}
    sweep(&mut log);
    sweep(&mut log);
    log.put(1, b"still works", b"yes").unwrap();
    log.check_invariants();
}

/// Sweeps once; returns the bytes given back to the kernel.
fn sweep(log: &mut Log) -> usize {
    let mut given = 0;
    loop {
        let (bytes, is_over) = log.sweep_free_memory();
        given += bytes;
        if is_over {
            return given;
        }
    }
}

#[test]
fn memory_of_dead_objects_is_given_back() {
    let mut log = volatile(256 * MB);
    let value = |n: usize| vec![u8::try_from(n % 251).unwrap(); 1000];
    fill(&mut log, 1, 0..60_000, value);
    fill(&mut log, 2, 0..1000, value);
    for n in 0..60_000 {
        log.remove(1, &key(n)).unwrap();
    }
    assert!(log.stats().free_bytes < 200 * MB as u64);
    while !log.clean(100).idle {}
    log.check_invariants();
    let free = log.stats().free_bytes;
    assert!(free > 220 * MB as u64, "{free}");
    // What was used since the last sweep may be used again soon.
    assert_eq!(sweep(&mut log), 0);
    fill(&mut log, 3, 0..10_000, value);
    let given = sweep(&mut log);
    assert!((20 * MB..60 * MB).contains(&given), "{given}");
    assert_eq!(sweep(&mut log), 0);
    log.check_invariants();
    for (table, n) in [(2, 999), (3, 9999)] {
        let found = log.find(table, &key(n)).expect("it is there");
        assert_eq!(log.entry(found).value, value(n));
    }
    fill(&mut log, 4, 0..60_000, value);
    log.check_invariants();
}

/// Returns the key and version of each entry of an open segment except its header, and the segments
/// that the header lists.
fn entries(log: &Log, segment: u64, len: usize) -> (Vec<(Vec<u8>, u64)>, Vec<u64>) {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let pending = log.bytes_of(segment, bytes.len()..len, usize::MAX);
        pending.slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
    }
    let (mut entries, mut digest, mut rest) = (Vec::new(), Vec::new(), &bytes[..]);
    while !rest.is_empty() {
        let entry = Entry::parse_checked(rest).unwrap();
        rest = &rest[entry.encoded_len()..];
        match entry.kind {
            Kind::Segment => digest = SegmentHeader::parse(entry.value).unwrap().digest,
            Kind::Object | Kind::Tombstone => entries.push((entry.key.to_vec(), entry.version)),
        }
    }
    (entries, digest)
}

/// If replicas are on other servers, a head may become durable before its predecessor does. A
/// restart then finds only the head, and must still find the entries whose newer versions were in
/// the predecessor.
#[test]
fn a_head_does_not_need_the_head_before_it() {
    let mut log =
        Log::new(Config { segment_bytes: MB / 2, ..Config::new(MIN_MEMORY, Durability::Tracked) })
            .unwrap();
    let mut chance = chance(5);
    let mut stored: BTreeMap<u64, Vec<(Vec<u8>, u64)>> = BTreeMap::new();
    let mut durable: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut looks = 0;
    for _ in 0..20_000 {
        let len = 1000 + chance.index(20_000);
        let _ = log.put(1, &key(chance.index(150)), &vec![7; len]);
        log.clean(4);
        let open: Vec<_> = log.open_segments().collect();
        for survivor in open.iter().filter(|open| open.role == Role::Survivor && open.sealed) {
            stored.insert(survivor.segment, entries(&log, survivor.segment, survivor.appended).0);
            log.mark_submitted(survivor.segment, survivor.appended, true);
            log.mark_durable(survivor.segment, survivor.appended, true);
        }
        let heads: Vec<_> = open.iter().filter(|open| open.role == Role::Head).collect();
        let [before, next, ..] = heads[..] else { continue };
        let (_, digest) = entries(&log, next.segment, next.header);
        let listed = digest.iter().filter_map(|segment| stored.get(segment)).flatten();
        let mut found: BTreeMap<&[u8], u64> = BTreeMap::new();
        for (key, version) in listed {
            let known = found.entry(key).or_default();
            *known = (*known).max(*version);
        }
        for (key, version) in &durable {
            assert!(found.get(&key[..]) >= Some(version), "head {} lists {digest:?}", next.segment);
        }
        looks += 1;
        let (entries, _) = entries(&log, before.segment, before.appended);
        durable.extend(entries.iter().cloned());
        stored.insert(before.segment, entries);
        log.mark_submitted(before.segment, before.appended, true);
        log.mark_durable(before.segment, before.appended, true);
        log.mark_submitted(next.segment, next.header, false);
        log.mark_durable(next.segment, next.header, false);
        log.take_reclaimable();
    }
    assert!(
        looks > 20 && log.stats().cleaner.combined_segments > 20,
        "{looks} heads, {:?}",
        log.stats().cleaner
    );
}

/// A copy of a segment contains the entries that are current at the position that the copy states,
/// and counts once the log is durable up to that position.
#[test]
fn a_copy_counts_once_its_position_is_durable() {
    let mut log =
        Log::new(Config { segment_bytes: MB / 2, ..Config::new(MIN_MEMORY, Durability::Tracked) })
            .unwrap();
    let durable = |log: &mut Log| {
        for open in log.open_segments().collect::<Vec<_>>() {
            log.mark_submitted(open.segment, open.appended, open.sealed);
            log.mark_durable(open.segment, open.appended, open.sealed);
        }
    };
    fill(&mut log, 1, 0..40, |_| vec![1; 10_000]);
    assert!(log.begin_copy(1).is_none(), "the segment is open");
    assert!(log.roll_head());
    durable(&mut log);
    fill(&mut log, 1, 10..40, |_| vec![2; 3_000]);
    // The cleaner compacts nothing before memory is short.
    for n in 0.. {
        if log.put(2, &key(n % 200), &[3; 10_000]).is_err()
            || log.stats().cleaner.compacted_segments > 0
        {
            break;
        }
        log.clean(10);
    }
    assert!(log.stats().cleaner.compacted_segments > 0);
    let mut copy = log.begin_copy(1).expect("the segment is closed");
    assert!(log.durable_position() < copy.position(), "the newer versions are in memory only");
    let mut bytes = Vec::new();
    let mut pieces = 1;
    while log.continue_copy(&mut copy, 50_000, &mut bytes) {
        pieces += 1;
    }
    durable(&mut log);
    assert!(log.durable_position() >= copy.position());
    log.end_copy(copy);
    let header = Entry::parse_checked(&bytes).unwrap();
    assert!(SegmentHeader::parse(header.value).unwrap().is_copy());
    let mut rest = &bytes[header.encoded_len()..];
    let mut keys = BTreeSet::new();
    while !rest.is_empty() {
        let entry = Entry::parse_checked(rest).expect("whole entries, all with checksums");
        assert_eq!((entry.kind, entry.value), (Kind::Object, &[1; 10_000][..]));
        keys.insert(entry.key.to_vec());
        rest = &rest[entry.encoded_len()..];
    }
    assert!(
        (0..10).all(|n| keys.contains(&key(n))) && keys.len() < 40 && pieces > 1,
        "{} in {pieces}",
        keys.len()
    );
    log.check_invariants();
}
