//! Failing disks: nothing more is acknowledged, and bytes that are on the disk are still read.

use crate::replicas::support::{bytes_of, id, open};
use sprat_disk::{Fault, Latency, MemControl};
use sprat_store::replicas::{Durability, OpenError, Replicas};
use sprat_wire::op::{BackupRequest, Status};

#[test]
fn a_disk_that_fails_ends_writing_and_not_reading() {
    for fault in [Fault::Io, Fault::NoSpace] {
        let control = MemControl::new(1);
        control.set_latency(Latency { base: 20_000, durable: 20_000, jitter: 0 });
        let (mut world, _) = open(&control, Durability::Sync);
        let (a, b) = (id(3, 1), id(3, 2));
        world.put(a, 0..900, true);
        world.put(b, 0..500, false);
        control.fail(0, fault);
        let failing = world.begin_write(b, 500..900, false);
        let reply = world.wait(failing);
        assert!(reply.status == Status::Refused && reply.text().contains("memory"), "{reply:?}");
        let reply = world.write(id(4, 1), 0..10, false);
        assert!(
            reply.status == Status::Refused && reply.text().contains("refused until"),
            "{reply:?}"
        );
        assert_eq!(world.figure("replica_writes_stopped"), 1);
        assert_eq!(world.read(a).unwrap(), bytes_of(a, 900));
        // The bytes of an open replica that are on the disk could be read. The bytes that were
        // received since are lost.
        let records = world.fence(3);
        assert_eq!(records.len(), 2);
        let reply = world.read(b).unwrap_err();
        assert!(
            reply.status == Status::Refused && reply.text().contains("500 B of 900 are on disk"),
            "{reply:?}"
        );
        drop(world);
        control.kill();
        control.clear_faults();
        let (mut world, report) = open(&control, Durability::Sync);
        assert_eq!(report.damaged, []);
        let len = usize::try_from(report.bytes).unwrap() - 900;
        assert!(len == 500 || len == 900);
        assert_eq!(world.read(b).unwrap(), bytes_of(b, len));
        world.put(id(4, 1), 0..10, false);
    }
}

#[test]
fn a_failed_read_is_refused_and_can_be_repeated() {
    let control = MemControl::new(1);
    let (mut world, _) = open(&control, Durability::Sync);
    let a = id(3, 1);
    world.put(a, 0..900, true);
    control.fail(0, Fault::Io);
    let reply = world.read(a).unwrap_err();
    assert!(
        reply.status == Status::Refused
            && reply.text().contains("cannot read segment 1 of server 3"),
        "{reply:?}"
    );
    assert_eq!(world.figure("replica_reads_failed_total"), 1);
    assert_eq!(world.read(a).unwrap(), bytes_of(a, 900));
    world.put(id(4, 1), 0..10, true);
}

#[test]
fn a_hanging_read_does_not_delay_others() {
    let control = MemControl::new(1);
    let (mut world, _) = open(&control, Durability::Sync);
    for segment in 1..=20 {
        world.put(id(3, segment), 0..900, true);
    }
    control.fail(0, Fault::Hang);
    let hangs = world.begin(BackupRequest::Read { replica: id(3, 1), offset: 0 });
    for _ in 0..10 {
        world.turn();
    }
    for segment in 2..=20 {
        assert_eq!(world.read(id(3, segment)).unwrap(), bytes_of(id(3, segment), 900));
    }
    assert_eq!(world.take(hangs), None);
    // The replica's frame is not reused while it may still be read.
    world.free(id(3, 1));
    assert_eq!(world.wait(hangs).status, Status::NotFound);
    world.put(id(4, 1), 0..10, true);
}

#[test]
fn a_disk_without_room_opens_for_reading() {
    let control = MemControl::new(1);
    let (mut world, _) = open(&control, Durability::Sync);
    let a = id(3, 1);
    world.put(a, 0..900, true);
    world.put(id(3, 2), 0..900, true);
    drop(world);
    control.kill();
    control.set_capacity(control.contents().len() as u64);
    let (mut world, report) = open(&control, Durability::Sync);
    assert_eq!(report.replicas, 2);
    assert_eq!(world.read(a).unwrap(), bytes_of(a, 900));
    assert_eq!(world.fence(3).len(), 2);
}

#[test]
fn another_kind_of_file_or_another_servers_is_refused() {
    let control = MemControl::new(1);
    let (world, _) = open(&control, Durability::Sync);
    drop(world);
    let options = crate::replicas::support::options(Durability::Sync);
    let other = sprat_store::replicas::Options { server: 6, ..options.clone() };
    let error = Replicas::open(control.open().unwrap(), &other).err().unwrap();
    assert!(matches!(error, OpenError::Foreign { field: "server", .. }), "{error}");
    assert!(
        error.to_string().contains("not this server's file of replicas: its server differs"),
        "{error}"
    );
    let as_log = sprat_store::backup::Backup::open(
        control.open().unwrap(),
        &options,
        |_, _| 0,
        |_| std::ops::ControlFlow::Continue(()),
    );
    assert!(matches!(as_log, Err(OpenError::Foreign { field: "server", .. })));
    let log = MemControl::new(2);
    let opened = sprat_store::backup::Backup::open(
        log.open().unwrap(),
        &options,
        |_, _| 0,
        |_| std::ops::ControlFlow::Continue(()),
    );
    drop(opened.ok().unwrap());
    let error = Replicas::open(log.open().unwrap(), &options).err().unwrap();
    assert!(matches!(error, OpenError::Foreign { field: "server", .. }), "{error}");
}
