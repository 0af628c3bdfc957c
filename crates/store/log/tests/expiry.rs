//! Objects that expire: what was found missing stays missing, whatever the clock says later.

use crate::common::{Disk, chance};
use proptest::prelude::*;
use sprat_log::{Config, Content, Durability, Full, Log, MIN_MEMORY, RECORD_AHEAD};
use sprat_wire::expiry::{NEVER, Time};
use sprat_wire::value::ValueType;
use std::collections::BTreeMap;

const TABLE: u32 = 1;

fn config() -> Config {
    Config { seed: 5, ..Config::new(MIN_MEMORY, Durability::Tracked) }
}

fn log() -> Log {
    Log::new(config()).unwrap()
}

fn put(log: &mut Log, key: &[u8], value: &[u8], expires: Time) -> Result<u64, Full> {
    let content = Content { value, value_type: ValueType::Bytes, expires };
    log.put_content(TABLE, key, content, None).map(|written| written.version)
}

/// Reads an object as a master does.
fn read(log: &mut Log, key: &[u8]) -> Option<Vec<u8>> {
    log.expire(TABLE, key).unwrap();
    log.find(TABLE, key).map(|found| log.entry(found).value.to_vec())
}

fn expire_all(log: &mut Log) -> usize {
    log.prefetch_due();
    std::iter::from_fn(|| log.expire_due().unwrap().then_some(())).count()
}

#[test]
fn an_object_exists_until_it_expires() {
    let mut log = log();
    log.set_time(1000);
    put(&mut log, b"brief", b"1", 2000).unwrap();
    put(&mut log, b"long", b"2", 3000).unwrap();
    put(&mut log, b"permanent", b"3", NEVER).unwrap();
    assert_eq!(log.next_expiry(), Some(2000));
    log.set_time(1999);
    assert_eq!(read(&mut log, b"brief").unwrap(), b"1");
    assert!(log.due().is_none());
    log.set_time(2000);
    log.set_time(500);
    assert_eq!(log.time(), 2000, "the time never goes back");
    assert_eq!(log.due().unwrap().key, b"brief");
    assert_eq!(read(&mut log, b"brief"), None);
    assert!(log.due().is_none());
    // A write without expiry makes the object permanent.
    put(&mut log, b"long", b"4", NEVER).unwrap();
    log.set_time(10_000);
    assert_eq!(expire_all(&mut log), 0);
    assert_eq!(read(&mut log, b"long").unwrap(), b"4");
    assert_eq!(read(&mut log, b"permanent").unwrap(), b"3");
    assert!(!log.has_expiring());
    log.check_invariants();
}

#[test]
fn a_version_is_never_used_again() {
    let mut log = log();
    let first = put(&mut log, b"key", b"1", 1000).unwrap();
    log.set_time(1000);
    assert_eq!(read(&mut log, b"key"), None);
    assert!(put(&mut log, b"key", b"2", NEVER).unwrap() > first);
}

#[test]
fn a_table_gets_few_time_records() {
    let mut log = log();
    let objects = 1000;
    for n in 0..objects {
        put(&mut log, format!("{n}").as_bytes(), b"value", 1 + n).unwrap();
    }
    let before = log.position();
    for now in 1..=objects {
        log.set_time(now);
        assert_eq!(expire_all(&mut log), 1);
    }
    let records = objects / RECORD_AHEAD;
    assert!(log.position() - before <= 60 * records, "{} bytes", log.position() - before);
    for (now, is_new) in [(5000, true), (5000 + RECORD_AHEAD, false), (5001 + RECORD_AHEAD, true)] {
        log.set_time(now);
        assert_eq!(log.record_time(TABLE), Ok(is_new));
    }
    assert_eq!(log.stats().tombstone_bytes, 0, "no older version is left elsewhere");
}

#[test]
fn memory_of_what_has_expired_is_free_again() {
    let mut log = log();
    let mut disk = Disk::default();
    for round in 1..=3 {
        let mut objects = 0u64;
        loop {
            let key = objects.to_le_bytes();
            match put(&mut log, &key, &[round; 400], u64::from(round) * 1000) {
                Ok(_) => objects += 1,
                Err(Full::Replication) => disk.settle(&mut log),
                Err(Full::Memory | Full::Disk) => break,
            }
        }
        assert!(objects > 5000, "{objects}");
        log.set_time(u64::from(round) * 1000);
        assert_eq!(expire_all(&mut log) as u64, objects);
        assert_eq!(log.table_stats(TABLE).objects, 0);
        disk.settle(&mut log);
        log.check_invariants();
    }
}

#[test]
fn objects_of_a_dropped_table_do_not_expire_any_more() {
    let mut log = log();
    for n in 0..100u8 {
        put(&mut log, &[n], b"value", 1000).unwrap();
    }
    log.set_time(1000);
    log.drop_table(TABLE);
    let position = log.position();
    expire_all(&mut log);
    assert_eq!(log.position(), position, "nothing is written to a dropped table");
    while !log.clean(8).idle {}
    assert!(!log.is_dropped(TABLE) && !log.has_expiring());
    log.check_invariants();
}

#[test]
fn what_has_expired_needs_no_memory_after_a_restart() {
    let mut log = log();
    let mut disk = Disk::default();
    let value = [7; 1000];
    // Four times the memory's objects, in segments that the cleaner leaves on disk as they are.
    let objects = 4 * config().memory / value.len();
    for n in 0..objects {
        log.set_time(n as u64);
        expire_all(&mut log);
        while put(&mut log, &n.to_le_bytes(), &value, n as u64 + 2000).is_err() {
            disk.settle(&mut log);
        }
    }
    disk.settle(&mut log);
    let now = log.time();
    let mut log = disk.restore_at(config(), None, now);
    assert!(log.stats().objects <= 2000, "{:?}", log.stats());
    assert!(!log.record_time(TABLE).unwrap(), "the time is recorded");
    assert_eq!(read(&mut log, &(objects - 1).to_le_bytes()).unwrap(), value);
    assert_eq!(read(&mut log, &0usize.to_le_bytes()), None);
    log.check_invariants();
    // Nothing that was left out comes back when the next start's clock is slow.
    disk.settle(&mut log);
    let mut log = disk.restore_at(config(), None, 0);
    assert!(log.stats().objects <= 2000, "{:?}", log.stats());
    assert_eq!(read(&mut log, &0usize.to_le_bytes()), None);
}

#[test]
fn an_older_version_does_not_come_back_after_a_restart() {
    let mut log = log();
    let mut disk = Disk::default();
    put(&mut log, b"key", b"old", NEVER).unwrap();
    assert!(log.roll_head());
    put(&mut log, b"key", b"new", 1000).unwrap();
    disk.settle(&mut log);
    let mut log = disk.restore_at(config(), None, 1000);
    assert_eq!(read(&mut log, b"key"), None);
    assert!(log.stats().tombstone_bytes > 0);
    log.check_invariants();
    disk.settle(&mut log);
    let mut log = disk.restore_at(config(), None, 0);
    assert_eq!(read(&mut log, b"key"), None);
}

/// What the model knows of an object.
#[derive(Clone, Debug)]
struct Known {
    version: u64,
    value: Vec<u8>,
    expires: Time,
    /// Whether the object was found missing, or was removed.
    is_gone: bool,
}

/// Runs a random history: objects are written, overwritten and removed, expire, are read and
/// cleaned; now and then the log is restored with a clock that may be slow.
fn history(seed: u64, steps: usize) {
    let mut chance = chance(seed);
    let mut log = log();
    let mut disk = Disk::default();
    let mut model: BTreeMap<Vec<u8>, Known> = BTreeMap::new();
    let mut now = 1_000_000;
    log.set_time(now);
    for step in 0..steps {
        let key = format!("key {}", chance.index(60)).into_bytes();
        match chance.index(100) {
            0..50 => {
                let value = vec![u8::try_from(step % 251).unwrap(); chance.index(6000)];
                let brief = chance.one_in(2);
                let ttl = if brief { 1 + chance.index(300) as u64 } else { 1_000_000 };
                let expires = if chance.one_in(3) { NEVER } else { log.time() + ttl };
                match put(&mut log, &key, &value, expires) {
                    Ok(version) => {
                        let known = Known { version, value, expires, is_gone: false };
                        if let Some(old) = model.insert(key, known) {
                            assert!(version > old.version);
                        }
                    }
                    Err(_) => disk.settle(&mut log),
                }
            }
            50..55 => {
                log.expire(TABLE, &key).unwrap();
                log.remove(TABLE, &key).unwrap();
                if let Some(known) = model.get_mut(&key) {
                    known.is_gone = true;
                }
            }
            55..75 => {
                let found = read(&mut log, &key);
                let known = model.get_mut(&key);
                let lives = known
                    .as_ref()
                    .filter(|known| !known.is_gone)
                    .filter(|known| known.expires == NEVER || known.expires > log.time());
                assert_eq!(found, lives.map(|known| known.value.clone()), "step {step}");
                if let Some(known) = known.filter(|_| found.is_none()) {
                    known.is_gone = true;
                }
            }
            75..80 => {
                log.expire_due().unwrap();
            }
            80..85 => {
                now += chance.index(200) as u64;
                log.set_time(now);
            }
            85..95 => {
                disk.submit(&mut log, chance.index(6));
                disk.flush(&mut log, chance.index(6));
            }
            95..98 => {
                log.clean(chance.index(20));
            }
            _ if chance.one_in(4) => {
                // Every start takes a segment.
                for _ in 0..20 {
                    log.clean(20);
                    disk.settle(&mut log);
                }
                log.check_invariants();
                // The system's clock may be far back.
                now = now.saturating_sub(chance.index(100_000) as u64);
                log = disk.restore_at(config(), None, now);
                now = log.time();
            }
            _ => {}
        }
    }
    log.check_invariants();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 24 }))]
    #[test]
    fn what_was_found_missing_stays_missing(seed: u64) {
        history(seed, if cfg!(miri) { 300 } else { 6000 });
    }
}
