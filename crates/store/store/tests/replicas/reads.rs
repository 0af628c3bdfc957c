//! Many servers that read replicas at once, and the limits of their reads.

use crate::replicas::support::{bytes_of, id, open, open_with};
use sprat_chance::Chance;
use sprat_disk::{Fault, Latency, MemControl};
use sprat_rpc::CallId;
use sprat_store::replicas::{Durability, HOLD, MAX_STAGED, Options};
use sprat_wire::SEGMENT_BYTES;
use sprat_wire::op::{BackupRequest, REPLICA_BYTES, ReplicaId, Status};

/// A reader of a replica, piece by piece.
struct Reader {
    replica: ReplicaId,
    bytes: Vec<u8>,
    call: Option<CallId>,
}

#[test]
fn many_readers_read_many_replicas_at_once() {
    let control = MemControl::new(1);
    control.set_latency(Latency { base: 100_000, durable: 0, jitter: 300_000 });
    let options = Options { max_frames: 40, ..Options::new(*b"the test cluster", 5, 40) };
    let (mut world, _) = open_with(&control, &options);
    let mut random = Chance::new(1);
    let mut lens = Vec::new();
    for segment in 1..=14 {
        let len = 1 + random.index(3 * REPLICA_BYTES);
        let mut at = 0;
        while at < len {
            let next = len.min(at + 1 + random.index(REPLICA_BYTES));
            world.put(id(3, segment), at..next, next == len);
            at = next;
        }
        lens.push(len);
    }
    // Each replica has several readers, and the readers proceed in random order. There are more
    // replicas than the server holds in memory.
    let mut readers: Vec<Reader> = (0..42)
        .map(|at| Reader { replica: id(3, 1 + at % 14), bytes: Vec::new(), call: None })
        .collect();
    let mut turns = 0;
    while !readers.is_empty() {
        turns += 1;
        assert!(turns < 100_000, "the readers never end");
        readers.retain_mut(|reader| {
            let Some(call) = reader.call else {
                let offset = u32::try_from(reader.bytes.len()).unwrap();
                reader.call =
                    Some(world.begin(BackupRequest::Read { replica: reader.replica, offset }));
                return true;
            };
            let Some(reply) = world.take(call) else { return true };
            assert_eq!(reply.status, Status::Ok, "{}", reply.text());
            assert!(reply.body.len() <= REPLICA_BYTES);
            reader.bytes.extend_from_slice(&reply.body);
            reader.call = None;
            if !reply.more {
                let len = lens[usize::try_from(reader.replica.segment).unwrap() - 1];
                assert!(reader.bytes == bytes_of(reader.replica, len), "{}", reader.replica);
            }
            reply.more
        });
        world.turn();
    }
}

#[test]
fn an_idle_reader_loses_its_place_in_memory() {
    let control = MemControl::new(1);
    let options = Options { max_frames: 40, ..Options::new(*b"the test cluster", 5, 40) };
    let (mut world, _) = open_with(&control, &options);
    let len = REPLICA_BYTES + 100;
    for segment in 1..=9 {
        world.put(id(3, segment), 0..REPLICA_BYTES, false);
        world.put(id(3, segment), REPLICA_BYTES..len, true);
    }
    for segment in 1..=8 {
        let reply = world.ask(BackupRequest::Read { replica: id(3, segment), offset: 0 });
        assert!(reply.status == Status::Ok && reply.more);
    }
    let ninth = world.begin(BackupRequest::Read { replica: id(3, 9), offset: 0 });
    (0..20).for_each(|_| world.turn());
    assert_eq!(world.take(ninth), None, "the others may read on");
    assert!(world.next_deadline() <= world.now + HOLD);
    let until = world.next_deadline();
    while world.now < until {
        world.turn();
    }
    assert_eq!(world.wait(ninth).status, Status::Ok);
    assert_eq!(world.read(id(3, 1)).unwrap(), bytes_of(id(3, 1), len));
}

#[test]
fn a_disk_that_lags_turns_writes_away() {
    let control = MemControl::new(1);
    let options =
        Options { durability: Durability::Buffered, ..Options::new(*b"the test cluster", 5, 40) };
    let (mut world, _) = open_with(&control, &options);
    control.fail(0, Fault::Hang);
    let mut segment = 1;
    let mut at = 0;
    loop {
        let write = world.begin_write(id(3, segment), at..at + REPLICA_BYTES, false);
        let reply = (0..200).find_map(|_| {
            world.turn();
            world.take(write)
        });
        let Some(reply) = reply else { break };
        assert_eq!(reply.status, Status::Ok);
        at += REPLICA_BYTES;
        if at + REPLICA_BYTES >= SEGMENT_BYTES {
            (segment, at) = (segment + 1, 0);
        }
        assert!(segment < 20, "no write was turned away");
    }
    assert!(world.figure("replica_requests_turned_away_total") > 0);
    assert!(world.figure("replica_staged_bytes") < (MAX_STAGED + REPLICA_BYTES) as u64);
}

#[test]
fn a_replica_is_freed_while_it_is_read() {
    let control = MemControl::new(1);
    control.set_latency(Latency { base: 500_000, durable: 0, jitter: 0 });
    let (mut world, _) = open(&control, Durability::Sync);
    let a = id(3, 1);
    for round in 0..6 {
        world.put(a, 0..5000, true);
        let read = world.begin(BackupRequest::Read { replica: a, offset: 0 });
        (0..round).for_each(|_| world.turn());
        world.free(a);
        let reply = world.wait(read);
        assert!(reply.status == Status::NotFound || reply.body == bytes_of(a, 5000), "{reply:?}");
    }
}
