//! Cuts of the log for a backup: what is written after a cut is not revealed before its release.

use crate::faults::world::{Reply, TABLE, World, master};
use sprat_disk::{MemControl, MemDisk};
use sprat_log::{Config, Log};
use sprat_store::backup::Durability;
use sprat_store::master::{Command, Master, MasterAssignment, inbox};
use sprat_wire::entry::{Entry, Kind};
use sprat_wire::op::{
    COPY_IDLE, Condition, CopyCursor, CopySegment, CopyStep, MAX_HOLD, Request, Status,
};
use std::collections::BTreeSet;
use zerocopy::FromBytes as _;

fn durable() -> (World<Master<MemDisk>>, sprat_store::master::Outbox) {
    let control = MemControl::new(1);
    let (master, outbox) = master(&control, Durability::Sync).expect("it opens");
    (World::new(master, Some(control)), outbox)
}

fn volatile() -> (World<Master<MemDisk>>, sprat_store::master::Outbox) {
    let (outbox, inbox) = inbox();
    assert!(outbox.send(Command::Assign(Box::new(MasterAssignment::tables(1, vec![TABLE])))));
    let log = Log::new(Config::new(8 << 20, sprat_log::Durability::Volatile)).expect("a log");
    (World::new(Master::new(log, None, inbox), None), outbox)
}

fn put(key: &[u8]) -> Request<'_> {
    Request::Write { table: TABLE, key, value: b"value", condition: Condition::None, ttl: None }
}

fn step(world: &mut World<Master<MemDisk>>, step: CopyStep<'_>) -> Reply {
    world.ask(&Request::CopyLog { step })
}

fn segments(reply: &Reply) -> Vec<u64> {
    let list = <[CopySegment]>::ref_from_bytes(&reply.body).expect("a list of segments");
    list.iter().map(|segment| segment.id.get()).collect()
}

/// Reads a segment of a cut, or of no cut; returns the keys of its objects.
fn keys(world: &mut World<Master<MemDisk>>, cut: u64, segment: u64) -> BTreeSet<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let from = u32::try_from(bytes.len()).unwrap();
        let cursor = CopyCursor { cut: cut.into(), segment: segment.into(), from: from.into() };
        let reply = step(world, CopyStep::Read(&cursor));
        assert_eq!(reply.status, Status::Ok);
        bytes.extend(&reply.body);
        assert_eq!(reply.number, bytes.len() as u64);
        if !reply.more {
            break;
        }
    }
    let (mut keys, mut rest) = (BTreeSet::new(), &bytes[..]);
    while !rest.is_empty() {
        let entry = Entry::parse_checked(rest).expect("whole entries");
        if entry.kind == Kind::Object && entry.table == TABLE {
            keys.insert(entry.key.to_vec());
        }
        rest = &rest[entry.encoded_len()..];
    }
    keys
}

#[test]
fn what_is_written_after_a_cut_is_revealed_after_the_release() {
    let (mut world, _outbox) = durable();
    world.ask(&put(b"before"));
    let cut = step(&mut world, CopyStep::Cut);
    let write = world.begin(&put(b"after"));
    (0..100).for_each(|_| world.turn());
    assert_eq!(world.take(write), None, "the write is held back");
    let reads = [&b"after"[..], b"before"].map(|key| Request::Read { table: TABLE, key });
    let reads = reads.map(|read| world.begin(&read));
    let scan = world.begin(&Request::Scan { table: TABLE, after: None });
    (0..100).for_each(|_| world.turn());
    assert_eq!(world.take(reads[0]), None, "the object is not revealed");
    assert_eq!(world.take(scan), None, "nor by a scan");
    let listed = segments(&cut);
    let wanted: Vec<_> = listed.iter().map(|&id| id.into()).collect();
    let released = step(&mut world, CopyStep::Release { cut: cut.number, wanted: &wanted }).status;
    assert_eq!(released, Status::Ok, "it was held until now");
    assert_eq!(world.wait(write).status, Status::Ok);
    for read in reads {
        assert_eq!(world.wait(read).body, b"value");
    }
    assert_eq!(world.wait(scan).status, Status::Ok);
    let found: BTreeSet<_> =
        listed.iter().flat_map(|&id| keys(&mut world, cut.number, id)).collect();
    assert_eq!(found, BTreeSet::from([b"before".to_vec()]));
    let again = CopyStep::Release { cut: cut.number, wanted: &[] };
    assert_eq!(step(&mut world, again).status, Status::NotFound);
    assert_eq!(step(&mut world, CopyStep::End).status, Status::Ok);
    let cursor = CopyCursor { cut: cut.number.into(), segment: listed[0].into(), from: 0.into() };
    assert_eq!(step(&mut world, CopyStep::Read(&cursor)).status, Status::NotFound);
}

#[test]
fn a_log_without_a_disk_is_not_copied() {
    let (mut world, _outbox) = volatile();
    for asked in [CopyStep::List, CopyStep::Cut] {
        let refused = step(&mut world, asked);
        assert_eq!(refused.status, Status::Refused);
        let reason = String::from_utf8(refused.body).expect("text");
        assert!(reason.contains("--durability none"), "{reason}");
    }
}

#[test]
fn a_cut_that_nobody_releases_is_void() {
    let (mut world, _outbox) = durable();
    world.ask(&put(b"before"));
    let cut = step(&mut world, CopyStep::Cut);
    let write = world.begin(&put(b"after"));
    (0..10).for_each(|_| world.turn());
    assert_eq!(world.take(write), None);
    world.pass(u64::try_from(MAX_HOLD.as_millis()).unwrap());
    assert_eq!(world.wait(write).status, Status::Ok);
    let release = CopyStep::Release { cut: cut.number, wanted: &[] };
    assert_eq!(step(&mut world, release).status, Status::NotFound);
    // Another cut has another number, and its segments are given up if they are not read.
    let again = step(&mut world, CopyStep::Cut);
    assert!(again.number > cut.number);
    let listed = segments(&again);
    let wanted: Vec<_> = listed.iter().map(|&id| id.into()).collect();
    let release = CopyStep::Release { cut: again.number, wanted: &wanted };
    assert_eq!(step(&mut world, release).status, Status::Ok);
    world.pass(u64::try_from(COPY_IDLE.as_millis()).unwrap() + 1);
    let cursor = CopyCursor { cut: again.number.into(), segment: listed[0].into(), from: 0.into() };
    assert_eq!(step(&mut world, CopyStep::Read(&cursor)).status, Status::NotFound);
}

#[test]
fn a_segment_is_read_from_where_the_last_answer_ended() {
    let (mut world, _outbox) = durable();
    for number in 0..3000_u32 {
        let (key, value) = (&number.to_le_bytes()[..], &[7; 300][..]);
        let condition = Condition::None;
        world.ask(&Request::Write { table: TABLE, key, value, condition, ttl: None });
    }
    let listed = segments(&step(&mut world, CopyStep::List));
    let first = listed[0];
    let all = keys(&mut world, 0, first);
    assert!(all.len() > 100, "{}", all.len());
    let read = |world: &mut World<Master<MemDisk>>, from: u32| {
        let cursor = CopyCursor { cut: 0.into(), segment: first.into(), from: from.into() };
        step(world, CopyStep::Read(&cursor))
    };
    let piece = read(&mut world, 0);
    assert!(piece.more);
    // Begun again, the segment has the same entries.
    assert_eq!(read(&mut world, 0).body, piece.body);
    assert_eq!(read(&mut world, 1).status, Status::NotFound);
    let next = u32::try_from(piece.number).unwrap();
    assert_eq!(read(&mut world, next).status, Status::Ok);
    assert_eq!(read(&mut world, next).status, Status::NotFound, "that was answered");
    assert_eq!(keys(&mut world, 0, first), all);
    let none = CopyCursor { cut: 0.into(), segment: 999_999.into(), from: 0.into() };
    assert_eq!(step(&mut world, CopyStep::Read(&none)).status, Status::NotFound);
}

#[test]
fn an_object_is_restored_with_its_version_unless_there_is_a_later_one() {
    let (mut world, _outbox) = durable();
    let restore = |version: u64, value| Request::Restore {
        table: TABLE,
        key: b"key",
        value,
        value_type: Some(sprat_wire::value::ValueType::Bytes),
        version,
        ttl: None,
    };
    assert_eq!(world.ask(&restore(70, b"seventy")).number, 70);
    assert_eq!(world.ask(&restore(69, b"older")).number, 70);
    assert_eq!(world.ask(&restore(70, b"same")).number, 70);
    let read = Request::Read { table: TABLE, key: b"key" };
    assert_eq!((world.ask(&read).body, world.ask(&read).number), (b"seventy".to_vec(), 70));
    assert_eq!(world.ask(&put(b"key")).number, 71);
    assert_eq!(world.ask(&restore(72, b"newer")).number, 72);
    assert_eq!(world.ask(&read).body, b"newer");
}
