//! Objects of some tablets give way when memory is full: those that were not used lately.

use crate::common::{Disk, chance};
use sprat_log::{Config, Durability, EVICTED_AT_ONCE, Full, Log, MIN_MEMORY};
use sprat_wire::once::OperationId;
use sprat_wire::tablet::{Range, Tablet};
use sprat_wire::transaction::{Participant, Plan, TransactionAction};
use std::collections::{BTreeMap, BTreeSet};

/// The tables of a cache and of objects that stay.
const CACHE: u32 = 1;
const KEPT: u32 = 2;

const VALUE: [u8; 900] = [7; 900];

fn log(durability: Durability) -> Log {
    let mut log = Log::new(Config::new(MIN_MEMORY, durability)).unwrap();
    log.set_evictable(vec![Tablet::whole(CACHE)]);
    log
}

fn key(number: usize) -> [u8; 8] {
    number.to_le_bytes()
}

/// Writes an object, and waits for the disk and for the hand as a client does that tries again.
fn put(log: &mut Log, disk: &mut Disk, table: u32, key: &[u8]) -> Result<(), Full> {
    for _ in 0..1000 {
        match log.put(table, key, &VALUE) {
            Ok(_) => return Ok(()),
            Err(Full::Replication) => disk.settle(log),
            Err(full) => return Err(full),
        }
    }
    panic!("neither room nor an end: {:?}", log.stats())
}

/// Reads an object as a master does; returns whether it is there.
fn get(log: &mut Log, table: u32, key: &[u8]) -> bool {
    let found = log.find(table, key);
    if let Some(found) = found {
        log.note_used(table, found);
    }
    found.is_some()
}

#[test]
fn objects_give_way_that_were_not_used_lately() {
    let (mut log, mut disk) = (log(Durability::Volatile), Disk::default());
    let (objects, hot) = (40_000, 40);
    let (mut evicted, mut hits) = (BTreeSet::new(), 0);
    for number in 0..objects {
        put(&mut log, &mut disk, CACHE, &key(number)).unwrap();
        evicted.extend(log.take_evicted().into_iter().map(|(table, key)| {
            assert_eq!(table, CACHE);
            key
        }));
        if number >= hot && get(&mut log, CACHE, &key(number % hot)) {
            hits += 1;
        }
    }
    for number in 0..objects {
        let is_there = log.find(CACHE, &key(number)).is_some();
        assert_eq!(is_there, !evicted.contains(&key(number)[..]), "{number}");
    }
    assert!(evicted.len() > objects / 2 && evicted.len() < objects * 95 / 100, "{}", evicted.len());
    // By chance alone a hot object would be there as seldom as any other: one in ten.
    assert!(hits > objects * 3 / 4, "{hits} of {objects} reads found their object");
    log.check_invariants();
}

#[test]
fn nothing_that_was_evicted_comes_back_after_a_crash() {
    for seed in 0..8 {
        let mut chance = chance(seed);
        let (mut log, mut disk) = (log(Durability::Tracked), Disk::default());
        let mut gone = BTreeMap::new();
        for number in 0..12_000 {
            let key = key(chance.index(8000));
            put(&mut log, &mut disk, CACHE, &key).unwrap();
            for (_, key) in log.take_evicted() {
                gone.insert(key, log.position());
            }
            gone.remove(&key[..]);
            if number % 50 == 0 {
                disk.submit(&mut log, 4);
                disk.flush(&mut log, 4);
            }
        }
        assert!(gone.len() > 2000, "{}", gone.len());
        let durable = log.durable_position();
        disk.crash(&mut chance);
        let log = disk.restore(log.config().clone(), None);
        log.check_invariants();
        for (key, position) in gone {
            assert!(position > durable || log.find(CACHE, &key).is_none(), "{key:?}");
        }
    }
}

#[test]
fn only_objects_of_named_tablets_give_way() {
    let (mut log, mut disk) = (log(Durability::Tracked), Disk::default());
    let mut kept = Vec::new();
    for number in 0..1000 {
        put(&mut log, &mut disk, CACHE, &key(number)).unwrap();
    }
    let full = loop {
        let next = key(kept.len());
        match put(&mut log, &mut disk, KEPT, &next) {
            Ok(()) => kept.push(next),
            Err(full) => break full,
        }
    };
    assert_eq!(full, Full::Memory, "nothing is left that gives way");
    assert_eq!(log.table_stats(CACHE).objects, 0);
    assert_eq!(log.take_evicted().len(), 1000);
    assert!(kept.iter().all(|key| log.find(KEPT, key).is_some()));
    // A part of the table gives way, and one object in it does not: a transaction depends on it.
    let half = Range { first: 0, last: u64::MAX / 2 };
    let is_within = |log: &Log, key: &[u8]| half.contains(log.hash(KEPT, key).reverse_bits());
    let locked = *kept.iter().find(|key| is_within(&log, &key[..])).unwrap();
    let id = OperationId { client: 9, slot: 0, sequence: 1, resent: false };
    let position = log.hash(KEPT, &locked).reverse_bits();
    let participant = Participant { table: KEPT, position, id };
    let plan = Plan::encode(TransactionAction::Check, &[participant]);
    log.remove(KEPT, kept.iter().find(|key| !is_within(&log, &key[..])).unwrap()).unwrap();
    disk.settle(&mut log);
    log.prepare((KEPT, &locked), &id, &Plan::parse(&plan).unwrap()).unwrap();
    log.set_evictable(vec![Tablet { table: KEPT, range: half }]);
    for number in 0.. {
        if let Err(full) = put(&mut log, &mut disk, CACHE, &key(number)) {
            assert_eq!(full, Full::Memory);
            break;
        }
    }
    let there = |key: &&[u8; 8]| log.find(KEPT, &key[..]).is_some();
    let left = kept.iter().filter(there).filter(|key| is_within(&log, &key[..]));
    assert_eq!(left.collect::<Vec<_>>(), [&locked]);
    assert!(kept.iter().filter(there).count() > kept.len() / 3);
    log.check_invariants();
}

/// A large object needs the room of more small ones than one write evicts.
#[test]
fn a_large_object_gets_room_after_some_tries() {
    let (mut log, mut disk) = (log(Durability::Tracked), Disk::default());
    for number in 0..5000 {
        put(&mut log, &mut disk, CACHE, &key(number)).unwrap();
    }
    log.take_evicted();
    let mut tries = 0;
    while let Err(full) = log.put(KEPT, b"large", &vec![7; 200_000]) {
        assert_eq!(full, Full::Replication, "the client is to try again");
        assert!(log.take_evicted().len() <= EVICTED_AT_ONCE);
        disk.settle(&mut log);
        tries += 1;
        assert!(tries < 20, "{tries}");
    }
    assert!(tries > 1);
    // What can never fit evicts nothing.
    let objects = log.table_stats(CACHE).objects;
    assert_eq!(log.put(KEPT, b"too large", &vec![7; 1 << 19]), Err(Full::Memory));
    assert_eq!(log.table_stats(CACHE).objects, objects);
    log.check_invariants();
}
