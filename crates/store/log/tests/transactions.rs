//! Operations of transactions in the log: what is prepared locks, also after a restart.

use crate::common::{Disk, chance};
use sprat_log::{Config, Content, Durability, Full, Log, MIN_MEMORY};
use sprat_wire::entry::{Entry, Kind};
use sprat_wire::expiry::{NEVER, Ttl};
use sprat_wire::once::OperationId;
use sprat_wire::tablet::{Range, Tablet};
use sprat_wire::transaction::{OperationState, PREPARED, Participant, Plan, TransactionAction};
use sprat_wire::value::ValueType;

const TABLE: u32 = 1;

fn log() -> Log {
    Log::new(Config::new(MIN_MEMORY, Durability::Tracked)).unwrap()
}

fn id(slot: u16) -> OperationId {
    OperationId { client: 9, slot, sequence: 1, resent: false }
}

fn participant(log: &Log, key: &[u8], slot: u16) -> Participant {
    Participant { table: TABLE, position: log.hash(TABLE, key).reverse_bits(), id: id(slot) }
}

fn prepare(log: &mut Log, key: &[u8], slot: u16, action: TransactionAction<'_>) -> Participant {
    let participant = participant(log, key, slot);
    let plan = Plan::encode(action, &[participant]);
    log.prepare((TABLE, key), &participant.id, &Plan::parse(&plan).unwrap()).unwrap();
    participant
}

fn value(log: &Log, key: &[u8]) -> Option<Vec<u8>> {
    log.find(TABLE, key).map(|found| log.entry(found).value.to_vec())
}

#[test]
fn an_object_is_locked_until_its_operation_is_decided() {
    let mut log = log();
    log.put(TABLE, b"a", b"old").unwrap();
    let write = prepare(&mut log, b"a", 0, TransactionAction::Write(b"new", None));
    assert!(log.is_locked(TABLE, b"a", false) && log.is_locked(TABLE, b"a", true));
    assert!(!log.is_locked(TABLE, b"b", true) && !log.is_locked(TABLE + 1, b"a", true));
    assert_eq!(value(&log, b"a").unwrap(), b"old");
    assert_eq!(log.operation_state(&write), OperationState::Prepared);
    assert_eq!(log.end(&write), Ok(()), "an operation that is not decided is not ended");
    assert_eq!(log.operation_state(&write), OperationState::Prepared);
    log.commit(&write).unwrap();
    assert_eq!(log.operation_state(&write), OperationState::Committed);
    assert!(!log.is_locked(TABLE, b"a", true));
    assert_eq!(value(&log, b"a").unwrap(), b"new");
    // Decisions come again, and late.
    log.put(TABLE, b"a", b"newer").unwrap();
    log.commit(&write).unwrap();
    log.abort(&write).unwrap();
    assert_eq!(value(&log, b"a").unwrap(), b"newer");
    assert_eq!(log.operation_state(&write), OperationState::Committed);
    assert_eq!(log.stats().prepared, 1);
    log.end(&write).unwrap();
    assert_eq!((log.stats().prepared, log.has_prepared()), (0, false));
    assert_eq!(log.operation_state(&write), OperationState::Committed, "its completion is here");
    // Operations that only depend on an object exclude those that change it.
    let check = prepare(&mut log, b"a", 1, TransactionAction::Check);
    assert!(!log.is_locked(TABLE, b"a", false) && log.is_locked(TABLE, b"a", true));
    log.commit(&check).unwrap();
    assert!(!log.is_locked(TABLE, b"a", true));
    assert_eq!(value(&log, b"a").unwrap(), b"newer");
    let remove = prepare(&mut log, b"a", 2, TransactionAction::Remove);
    let nothing = prepare(&mut log, b"none", 3, TransactionAction::Remove);
    log.commit(&remove).unwrap();
    log.commit(&nothing).unwrap();
    assert_eq!(value(&log, b"a"), None);
    assert_eq!(log.operation_state(&nothing), OperationState::Committed);
    let aborted = prepare(&mut log, b"a", 4, TransactionAction::Write(b"never", None));
    log.abort(&aborted).unwrap();
    log.commit(&aborted).unwrap();
    assert_eq!(log.operation_state(&aborted), OperationState::Aborted);
    assert_eq!(value(&log, b"a"), None);
    let never = participant(&log, b"b", 5);
    assert_eq!(log.operation_state(&never), OperationState::Ended);
    log.abort(&never).unwrap();
    assert_eq!(log.operation_state(&never), OperationState::Aborted);
    for participant in [check, remove, nothing, aborted, never] {
        log.end(&participant).unwrap();
    }
    assert!(!log.has_prepared());
    log.check_invariants();
}

#[test]
fn a_restored_log_has_the_same_locks() {
    let config = Config::new(MIN_MEMORY, Durability::Tracked);
    let (mut log, mut disk) = (Log::new(config.clone()).unwrap(), Disk::default());
    let prepared = prepare(&mut log, b"prepared", 0, TransactionAction::Write(b"1", None));
    let committed = prepare(&mut log, b"committed", 1, TransactionAction::Write(b"2", None));
    let ended = prepare(&mut log, b"ended", 2, TransactionAction::Write(b"3", None));
    log.commit(&committed).unwrap();
    log.commit(&ended).unwrap();
    log.end(&ended).unwrap();
    disk.settle(&mut log);
    let mut log = disk.restore(config, Some(&[TABLE]));
    log.check_invariants();
    assert_eq!(log.stats().prepared, 2);
    assert!(log.is_locked(TABLE, b"prepared", false));
    assert!(!log.is_locked(TABLE, b"committed", true) && !log.is_locked(TABLE, b"ended", true));
    assert_eq!(log.locked_key(&prepared), Some(&b"prepared"[..]));
    log.commit(&prepared).unwrap();
    assert_eq!(value(&log, b"prepared").unwrap(), b"1");
    assert_eq!(log.operation_state(&committed), OperationState::Committed);
    assert_eq!(log.tables().collect::<Vec<_>>(), [TABLE]);
    assert_eq!(log.table_stats(TABLE).objects, 3);
}

/// The completions of a client that is long gone must not be forgotten while one of its operations
/// is prepared: the operation would seem undecided.
#[test]
fn completions_stay_while_an_operation_is_not_ended() {
    let mut log = log();
    let write = prepare(&mut log, b"a", 0, TransactionAction::Write(b"1", None));
    log.commit(&write).unwrap();
    for _ in 0..5 {
        log.age_clients();
        while !log.clean(8).idle {}
        assert_eq!(log.operation_state(&write), OperationState::Committed);
    }
    log.end(&write).unwrap();
    for _ in 0..2 {
        log.age_clients();
        while !log.clean(8).idle {}
    }
    assert_eq!(log.operation_state(&write), OperationState::Ended);
}

#[test]
fn prepared_entries_go_with_their_tablet() {
    let mut log = log();
    let one = prepare(&mut log, b"one", 0, TransactionAction::Check);
    let other = prepare(&mut log, b"other", 1, TransactionAction::Check);
    let (first, last) = (one.position.min(other.position), one.position.max(other.position));
    let lower = Tablet { table: TABLE, range: Range { first: 0, last: first } };
    assert_eq!(log.prepared_keys(lower).count(), 1);
    log.drop_tablet(lower);
    let left = if one.position == last { one } else { other };
    assert_eq!(log.prepared().collect::<Vec<_>>(), [(TABLE, left.id)]);
    while !log.clean(8).idle {}
    assert!(!log.is_dropping(lower));
    log.check_invariants();
    log.drop_table(TABLE);
    assert!(!log.has_prepared());
    while !log.clean(8).idle {}
    assert!(!log.is_dropped(TABLE));
    assert_eq!(log.stats().prepared, 0);
    log.check_invariants();
}

#[test]
fn a_time_to_live_begins_when_the_operation_is_committed() {
    let mut log = log();
    let ttl = Ttl::of_millis(500).ok();
    log.set_time(1000);
    let write = prepare(&mut log, b"a", 0, TransactionAction::Write(b"1", ttl));
    log.set_time(3000);
    log.commit(&write).unwrap();
    assert_eq!(log.next_expiry(), Some(3500));
    let last = participant(&log, b"b", 1);
    log.commit_last(&last, b"b", TransactionAction::Write(b"2", ttl)).unwrap();
    log.set_time(3500);
    for key in [b"a", b"b"] {
        assert_eq!(log.expire(TABLE, key), Ok(true));
    }
}

/// An object on which a prepared transaction depends expires, and is left out at the restart. To
/// find none is to conclude that the transaction is over, so reads wait, too.
#[test]
fn a_missing_object_on_which_a_transaction_depends_is_locked() {
    let (mut log, mut disk) = (log(), Disk::default());
    log.set_time(1000);
    let content = Content { expires: 2000, ..Content::bytes(b"value") };
    log.put_content(TABLE, b"a", content, None).unwrap();
    let check = prepare(&mut log, b"a", 0, TransactionAction::Check);
    assert!(!log.is_locked(TABLE, b"a", false), "others may read it");
    disk.settle(&mut log);
    let mut log = disk.restore_at(log.config().clone(), None, 2000);
    assert_eq!(value(&log, b"a"), None);
    assert!(log.is_locked(TABLE, b"a", false));
    assert_eq!(log.first_locked(Tablet::whole(TABLE)), Some(check.position));
    assert_eq!(log.operation_state(&check), OperationState::Prepared);
    log.commit(&check).unwrap();
    assert!(!log.is_locked(TABLE, b"a", true));
    assert_eq!(log.first_locked(Tablet::whole(TABLE)), None);
}

/// A transaction that is committed must take effect, so the room for its changes is kept from the
/// moment at which it is prepared.
#[test]
fn a_prepared_change_has_room_however_full_the_log_is() {
    let config = Config::new(MIN_MEMORY, Durability::Tracked);
    let (mut log, mut disk) = (Log::new(config).unwrap(), Disk::default());
    let (mut chance, mut slot, mut prepared) = (chance(3), 0, Vec::new());
    for n in 0_u32.. {
        let key = n.to_le_bytes();
        let value = vec![7; 1000 + chance.index(20_000)];
        let full = if chance.one_in(2) {
            slot += 1;
            let participant = participant(&log, &key, slot);
            let plan = Plan::encode(TransactionAction::Write(&value, None), &[participant]);
            let plan = Plan::parse(&plan).unwrap();
            let done = log.prepare((TABLE, &key), &participant.id, &plan);
            prepared.extend(done.is_ok().then_some((participant, key, value)));
            done.err()
        } else {
            log.put(TABLE, &key, &value).err()
        };
        disk.settle(&mut log);
        match full {
            Some(Full::Memory) => break,
            Some(Full::Disk) => panic!("the disk is not limited"),
            Some(Full::Replication) | None => while !log.clean(8).idle {},
        }
    }
    assert!(prepared.len() > 50);
    for (participant, key, written) in prepared {
        while let Err(full) = log.commit(&participant) {
            assert_eq!(full, Full::Replication);
            disk.settle(&mut log);
            while !log.clean(8).idle {}
        }
        assert_eq!(value(&log, &key).unwrap(), written);
        disk.settle(&mut log);
    }
    log.check_invariants();
}

#[test]
fn what_is_no_prepared_entry_is_not_taken() {
    let mut log = log();
    let key = [0; 20];
    for key in [&key[..], &key[..3]] {
        let entry = Entry {
            kind: Kind::Object,
            successor: false,
            table: TABLE | PREPARED,
            version: 7,
            key,
            value: b"no plan",
            value_type: ValueType::Bytes,
            expires: NEVER,
        };
        assert_eq!(log.adopt(&entry), Ok(false));
    }
    assert!(!log.has_prepared());
}
