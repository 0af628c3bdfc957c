//! Groups of entries, which count together or not at all.

use crate::common::Disk;
use sprat_log::{Config, Durability, Full, Log, MIN_MEMORY};
use sprat_wire::SEGLET_BYTES;

const TABLE: u32 = 1;

fn log() -> Log {
    Log::new(Config::new(MIN_MEMORY, Durability::Tracked)).unwrap()
}

fn value(log: &Log, key: &[u8]) -> Option<Vec<u8>> {
    log.find(TABLE, key).map(|found| log.entry(found).value.to_vec())
}

#[test]
fn a_log_that_ends_within_a_group_ends_before_it() {
    let mut log = log();
    let mut disk = Disk::default();
    log.put(TABLE, b"a", b"old").unwrap();
    log.put(TABLE, b"gone", b"old").unwrap();
    disk.settle(&mut log);
    let before = log.position();
    log.begin_group(1000, false).unwrap();
    log.put(TABLE, b"a", b"new").unwrap();
    log.remove(TABLE, b"gone").unwrap();
    log.put(TABLE, b"b", b"new").unwrap();
    log.end_group();
    log.put(TABLE, b"c", b"last").unwrap();
    let whole = log.position();
    disk.settle(&mut log);
    let bytes = disk.replicas.clone();
    let id = *bytes.keys().next_back().unwrap();
    for lost in 0..=usize::try_from(whole - before).unwrap() {
        let mut disk = Disk::default();
        disk.replicas.clone_from(&bytes);
        let head = disk.replicas.get_mut(&id).unwrap();
        head.truncate(head.len() - lost);
        let log = disk.restore(log.config().clone(), None);
        let found = [&b"a"[..], b"gone", b"b"].map(|key| value(&log, key));
        let (old, new) = (Some(b"old".to_vec()), Some(b"new".to_vec()));
        let is_whole = found == [new.clone(), None, new];
        assert!(is_whole || found == [old.clone(), old, None], "without {lost} bytes: {found:?}");
        let last = "c".len() + "last".len() + sprat_wire::entry::HEADER_BYTES;
        assert_eq!(is_whole, lost <= last, "without {lost} bytes");
        assert_eq!(value(&log, b"c").is_some(), lost == 0);
    }
}

#[test]
fn no_entry_of_a_group_is_durable_before_all_are() {
    let mut log = log();
    let before = log.position();
    log.begin_group(1000, false).unwrap();
    let first = log.put(TABLE, b"a", b"1").unwrap().reference;
    let last = log.put(TABLE, b"b", b"2").unwrap().reference;
    log.end_group();
    let (whole, segment) = (log.position(), log.head_pending().0);
    let next = log.put(TABLE, b"c", b"3").unwrap().reference;
    let len = log.next_pending().unwrap().len;
    log.mark_submitted(segment, len, false);
    for durable in 1..=len {
        log.mark_durable(segment, durable, false);
        let position = durable as u64;
        let expected = if (before..whole).contains(&position) { before } else { position };
        assert_eq!(log.durable_position(), expected);
        assert_eq!(log.is_durable(first), position >= whole);
        assert_eq!(log.is_durable(last), position >= whole);
        assert_eq!(log.is_durable(next), durable == len);
    }
}

#[test]
fn a_group_takes_as_much_of_the_log_as_it_needs() {
    let (mut log, mut disk) = (log(), Disk::default());
    let empty = log.position();
    log.begin_group(log.max_group(), false).unwrap();
    assert!(log.is_in_group());
    log.end_group();
    assert_eq!(log.position(), empty, "nothing was written");
    // A group of the largest length always has room, wherever the head is.
    let big = vec![7; SEGLET_BYTES / 2];
    for round in 0..40u32 {
        log.begin_group(log.max_group(), false).unwrap();
        log.put(TABLE, &round.to_le_bytes(), &big).unwrap();
        log.end_group();
        log.put(TABLE, b"other", &big).unwrap();
        disk.settle(&mut log);
    }
    log.check_invariants();
    for round in 0..40u32 {
        assert_eq!(value(&log, &round.to_le_bytes()).unwrap(), big);
    }
    // A group has no more room than it has asked for.
    log.begin_group(100, false).unwrap();
    log.put(TABLE, b"a", &[0; 50]).unwrap();
    assert_eq!(log.put(TABLE, b"b", &[0; 50]), Err(Full::Memory));
    log.end_group();
    assert_eq!((value(&log, b"a").unwrap().len(), value(&log, b"b")), (50, None));
}

#[test]
fn a_full_log_is_emptied_by_groups() {
    let mut log = Log::new(Config::new(MIN_MEMORY, Durability::Volatile)).unwrap();
    let mut keys = 0u32;
    while log.put(TABLE, &keys.to_le_bytes(), &[1; 1000]).is_ok() {
        keys += 1;
    }
    assert_eq!(log.begin_group(10_000, false), Err(Full::Memory));
    for key in 0..keys {
        log.begin_group(100, true).unwrap();
        log.remove(TABLE, &key.to_le_bytes()).unwrap();
        log.end_group();
    }
    assert_eq!(log.stats().objects, 0);
    log.check_invariants();
}
