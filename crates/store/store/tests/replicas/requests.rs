//! Requests and their replies, without faults.

use crate::replicas::support::{SEGMENT, World, bytes_of, id, open, open_with, options};
use sprat_disk::{Latency, MemControl, MemDisk};
use sprat_net::Nanos;
use sprat_store::replicas::{Durability, FLUSH, Options};
use sprat_wire::op::{BackupRequest, ReplicaRecord, Request, Status};
use std::time::Duration;
use zerocopy::IntoBytes as _;

fn start(durability: Durability) -> (MemControl, World<MemDisk>) {
    let control = MemControl::new(1);
    let (world, report) = open(&control, durability);
    assert_eq!(report.replicas, 0);
    (control, world)
}

#[test]
fn written_bytes_are_read() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let (_, mut world) = start(durability);
        let (a, b) = (id(3, 1), id(4, 1));
        let room = world.put(a, 0..500, false);
        assert!(room > 15_000 && room < u64::from(SEGMENT), "{room}");
        world.put(b, 0..9000, false);
        assert!(world.put(a, 500..9000, false) < room - 8000);
        assert_eq!(world.put(a, 9000..9000, true), 0, "no room behind a seal");
        world.put(b, 9000..12_000, true);
        assert_eq!(world.read(a).unwrap(), bytes_of(a, 9000));
        assert_eq!(world.read(b).unwrap(), bytes_of(b, 12_000));
        assert_eq!(world.read(id(3, 2)).unwrap_err().status, Status::NotFound);
        let records = world.fence(3);
        assert_eq!(
            records,
            [ReplicaRecord { segment: 1, len: 9000, head: true, sealed: true, unsure: false }]
        );
        assert_eq!(world.fence(9), []);
    }
}

#[test]
fn repeated_requests_are_harmless() {
    let (_, mut world) = start(Durability::Sync);
    let a = id(3, 1);
    world.put(a, 0..1000, false);
    world.put(a, 0..1000, false);
    world.put(a, 0..1500, false);
    world.put(a, 700..2000, false);
    world.put(a, 1000..2000, true);
    world.put(a, 1000..2000, true);
    world.put(a, 2000..2000, true);
    world.put(a, 0..300, false);
    assert_eq!(world.read(a).unwrap(), bytes_of(a, 2000));
    world.free(a);
    world.free(a);
    assert_eq!(world.read(a).unwrap_err().status, Status::NotFound);
    // A freed replica can be begun again.
    world.put(a, 0..10, false);
    world.put(a, 10..700, true);
    assert_eq!(world.read(a).unwrap(), bytes_of(a, 700));
}

#[test]
fn a_replica_is_begun_again_while_it_is_freed() {
    let control = MemControl::new(1);
    control.set_latency(Latency { base: 300_000, durable: 300_000, jitter: 0 });
    let (mut world, _) = open(&control, Durability::Sync);
    let a = id(3, 1);
    world.put(a, 0..1000, false);
    for round in 0..5 {
        let write = world.begin_write(a, 1000..1200, false);
        // The write is on its way to the disk.
        (0..3).for_each(|_| world.turn());
        let free = world.begin(BackupRequest::Free { replica: a });
        let again = world.begin_write(a, 0..1000, false);
        assert_eq!(world.wait(write).status, Status::NotFound, "round {round}");
        assert_eq!(world.wait(free).status, Status::Ok);
        assert_eq!(world.wait(again).status, Status::Ok);
    }
    drop(world);
    control.kill();
    let (mut world, report) = open(&control, Durability::Sync);
    assert_eq!((report.replicas, &report.damaged, &report.torn), (1, &vec![], &vec![]));
    assert_eq!(world.read(a).unwrap(), bytes_of(a, 1000));
}

#[test]
fn writes_that_do_not_fit_are_refused() {
    let (_, mut world) = start(Durability::Sync);
    let a = id(3, 1);
    assert_eq!(world.write(a, 100..200, false).status, Status::NotFound, "not begun");
    world.put(a, 0..1000, false);
    assert_eq!(world.write(a, 1001..1100, false).status, Status::NotFound, "a gap");
    world.put(a, 1000..2000, true);
    assert_eq!(world.write(a, 1500..2001, false).status, Status::NotFound, "the replica has ended");
    let reply = world.write(a, 500..1999, true);
    assert!(reply.status == Status::Refused && reply.text().contains("2000 B"), "{reply:?}");
    for (replica, offset, sealed) in
        [(id(0, 1), 0, true), (id(1, 0), 0, true), (id(1, 1), 0, true), (a, 5, false)]
    {
        let reply = world.ask(BackupRequest::Write {
            replica,
            offset,
            sealed,
            replacement: false,
            edition: 0,
            bytes: &[],
        });
        assert_eq!(reply.status, Status::Malformed, "{}", reply.text());
    }
    assert_eq!(world.ask(BackupRequest::Fence { master: 0 }).status, Status::Malformed);
    let reply = world.ask(BackupRequest::Read { replica: a, offset: 2001 });
    assert!(reply.status == Status::Refused && reply.text().contains("2000 B"), "{reply:?}");
    let reply = world.ask(BackupRequest::Read { replica: a, offset: 2000 });
    assert!(reply.status == Status::Ok && reply.body.is_empty() && !reply.more, "{reply:?}");
    let (header, key, _) = Request::Read { table: 1, key: b"k" }.parts();
    let call = world.begin_raw(&[header.as_bytes(), key].concat());
    assert_eq!(world.wait(call).status, Status::WrongRole);
    let call = world.begin_raw(b"?");
    assert_eq!(world.wait(call).status, Status::Malformed);
    assert_eq!(world.read(a).unwrap(), bytes_of(a, 2000));
}

#[test]
fn a_full_frame_is_reported() {
    let (_, mut world) = start(Durability::Sync);
    let a = id(3, 1);
    let mut len = 300;
    let mut room = usize::try_from(world.put(a, 0..len, false)).unwrap();
    let reply = world.write(a, len..len + room + 200, false);
    assert!(reply.status == Status::Refused && reply.text().contains("B left here"), "{reply:?}");
    // The reported room can be used in two writes.
    world.put(a, len..len + room - 1, false);
    len += room - 1;
    world.put(a, len..len + 1, true);
    assert_eq!(world.read(a).unwrap(), bytes_of(a, len + 1));
    // Many small writes fill the frame before they fill the segment.
    let b = id(3, 2);
    let mut len = 0;
    room = 1;
    while room > 0 {
        let step = room.min(20);
        room = usize::try_from(world.put(b, len..len + step, false)).unwrap();
        len += step;
    }
    assert!(len < 12_000, "{len}");
    world.put(b, len..len, true);
    assert_eq!(world.read(b).unwrap(), bytes_of(b, len));
}

#[test]
fn a_full_file_reserves_frames_for_fences() {
    let control = MemControl::new(1);
    let (mut world, _) =
        open_with(&control, &Options { max_frames: 6, ..options(Durability::Sync) });
    for segment in 1..=4 {
        world.put(id(3, segment), 0..100, segment % 2 == 0);
    }
    let reply = world.write(id(4, 1), 0..100, false);
    assert!(reply.status == Status::Refused && reply.text().contains("all 4 frames"), "{reply:?}");
    world.free(id(3, 2));
    world.put(id(4, 1), 0..100, false);
    assert_eq!((world.fence(3).len(), world.fence(4).len()), (3, 1));
    drop(world);
    control.crash();
    let (_, report) = open_with(&control, &Options { max_frames: 6, ..options(Durability::Sync) });
    assert_eq!(report.fenced, [3, 4]);
}

#[test]
fn at_most_256_replicas_are_open_at_once() {
    let control = MemControl::new(1);
    let options = Options { max_frames: 300, ..options(Durability::Buffered) };
    let (mut world, _) = open_with(&control, &options);
    for segment in 1..=256 {
        world.put(id(7, segment), 0..50, false);
    }
    let reply = world.write(id(8, 1), 0..50, false);
    assert!(
        reply.status == Status::Refused && reply.text().contains("256 replicas are open"),
        "{reply:?}"
    );
    world.put(id(7, 9), 50..50, true);
    world.put(id(8, 1), 0..50, false);
    assert_eq!(world.fence(7).len(), 256);
    for segment in 1..=256 {
        assert_eq!(world.read(id(7, segment)).unwrap(), bytes_of(id(7, segment), 50));
    }
}

#[test]
fn sync_acknowledges_what_is_on_disk_and_buffered_flushes_soon() {
    let (control, mut world) = start(Durability::Sync);
    control.set_latency(Latency { base: 0, durable: 10_000_000, jitter: 0 });
    let write = world.begin_write(id(3, 1), 0..100, false);
    for _ in 0..150 {
        world.turn();
        assert_eq!(world.take(write), None);
    }
    assert_eq!(world.wait(write).status, Status::Ok);

    let (control, mut world) = start(Durability::Buffered);
    let before = control.operations();
    world.put(id(3, 1), 0..100, false);
    let deadline = world.next_deadline();
    assert!(
        deadline <= world.now + FLUSH && control.operations() == before,
        "it is not with the kernel yet"
    );
    while control.operations() == before {
        assert!(world.now <= deadline + Duration::from_millis(1), "nothing went to the kernel");
        world.turn();
    }
    // From then on the replica survives a kill. After another second it also survives a power
    // failure.
    world.pass(Duration::from_millis(1));
    world.pass(Duration::from_millis(1100));
    world.pass(Duration::from_millis(1));
    drop(world);
    control.crash();
    let (mut world, report) = open(&control, Durability::Buffered);
    assert_eq!((report.replicas, report.unsure), (1, 1));
    assert_eq!(world.read(id(3, 1)).unwrap(), bytes_of(id(3, 1), 100));
}

#[test]
fn open_replicas_are_read_once_their_master_is_fenced() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let (control, mut world) = start(durability);
        control.set_latency(Latency { base: 400_000, durable: 0, jitter: 0 });
        let a = id(3, 1);
        world.put(a, 0..5000, false);
        let reply = world.read(a).unwrap_err();
        assert!(
            reply.status == Status::Refused && reply.text().contains("fence its master"),
            "{reply:?}"
        );
        // A write may still be under way when the master is fenced.
        let late = world.begin_write(a, 5000..6000, false);
        let records = world.fence(3);
        assert_eq!(
            records,
            [ReplicaRecord { segment: 1, len: 6000, head: true, sealed: false, unsure: false }]
        );
        assert_eq!(world.read(a).unwrap(), bytes_of(a, 6000), "acknowledged or about to be");
        assert_eq!(world.wait(late).status, Status::Ok);
        assert_eq!(world.write(a, 6000..6100, false).status, Status::Fenced);
    }
}

#[test]
fn an_idle_node_has_no_deadline_soon() {
    let (_, mut world) = start(Durability::Buffered);
    world.put(id(3, 1), 0..100, true);
    world.fence(3);
    for _ in 0..40 {
        world.pass(Duration::from_millis(100));
    }
    assert!(
        world.next_deadline() > world.now + Duration::from_millis(100),
        "{:?}",
        world.next_deadline()
    );
    assert_ne!(world.now, Nanos(0));
}

/// A delayed write to one edition of a replica never changes another edition.
#[test]
fn an_edition_replaces_the_one_before() {
    let control = MemControl::new(1);
    let (mut world, _) = open(&control, Durability::Sync);
    let (a, other) = (id(3, 1), bytes_of(id(3, 2), 3000));
    world.put(a, 0..2000, false);
    let mut write = |offset: usize, end: usize, sealed, edition| {
        let bytes = &other[offset..end];
        let offset = u32::try_from(offset).unwrap();
        world
            .ask(BackupRequest::Write {
                replica: a,
                offset,
                sealed,
                replacement: !sealed,
                edition,
                bytes,
            })
            .status
    };
    assert_eq!(write(1000, 2500, false, 1), Status::NotFound, "an edition begins at its beginning");
    assert_eq!(write(0, 1000, false, 1), Status::Ok);
    assert_eq!(write(1000, 3000, false, 0), Status::NotFound, "late");
    assert_eq!(write(0, 3000, true, 0), Status::NotFound, "late");
    assert_eq!(write(1000, 2500, false, 1), Status::Ok);
    assert_eq!(write(2500, 2500, true, 1), Status::Ok);
    let records = world.fence(3);
    assert_eq!(records.len(), 1);
    assert!(records[0].sealed && records[0].len == 2500 && records[0].head, "{records:?}");
    assert_eq!(world.read(a).unwrap(), other[..2500]);
}

/// A master that re-replicates does not know which replicas a restarted backup has. If the backup
/// freed a whole replica for a copy that is never completed, the last whole replica could be lost.
#[test]
fn a_whole_replica_is_not_replaced() {
    let control = MemControl::new(1);
    let (mut world, _) = open(&control, Durability::Sync);
    let (a, part, other) = (id(3, 1), id(3, 4), bytes_of(id(3, 2), 3000));
    world.put(a, 0..2000, true);
    world.put(part, 0..2000, false);
    let again = |world: &mut World<_>, replica, edition| {
        let (bytes, sealed) = (&other[..1000], false);
        let reply = world.ask(BackupRequest::Write {
            replica,
            offset: 0,
            sealed,
            replacement: true,
            edition,
            bytes,
        });
        (reply.status, reply.more)
    };
    assert_eq!(again(&mut world, a, 1), (Status::Ok, true));
    assert_eq!(again(&mut world, part, 1), (Status::Ok, false), "a part is none");
    drop(world);
    control.crash();
    let (mut world, _) = open(&control, Durability::Sync);
    // The master sent a write of edition 0 to the server that this one was before, and it is late.
    for edition in [0, 1] {
        assert_eq!(again(&mut world, a, edition), (Status::Ok, true));
    }
    assert_eq!(world.read(a).unwrap(), bytes_of(a, 2000));
    assert_eq!(again(&mut world, part, 2), (Status::Ok, false));
}
