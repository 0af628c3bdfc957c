//! Fences: which requests they refuse, and for how long.

use crate::replicas::support::{MEMBERS, bytes_of, id, open};
use sprat_disk::MemControl;
use sprat_store::replicas::{BACKUP_LEASE, Durability};
use sprat_wire::op::{BackupRequest, Status};

#[test]
fn a_fence_survives_restarts() {
    for (durability, power) in
        [(Durability::Sync, true), (Durability::Sync, false), (Durability::Buffered, false)]
    {
        let control = MemControl::new(1);
        let (mut world, _) = open(&control, durability);
        let (a, other) = (id(3, 1), id(4, 1));
        world.put(a, 0..900, false);
        world.put(other, 0..900, false);
        assert_eq!(world.fence(3).len(), 1);
        assert_eq!(world.fence(3).len(), 1, "a second fence does no harm");
        for life in 0..3 {
            assert_eq!(world.write(a, 900..1000, false).status, Status::Fenced, "life {life}");
            assert_eq!(
                world.write(a, 0..1000, false).status,
                Status::Fenced,
                "it would free what is to be recovered"
            );
            assert_eq!(world.write(id(3, 2), 0..10, false).status, Status::Fenced);
            world.put(id(4, 2 + life), 0..10, false);
            assert_eq!(world.read(a).unwrap(), bytes_of(a, 900));
            drop(world);
            if power {
                control.crash()
            } else {
                control.kill()
            }
            let (again, report) = open(&control, durability);
            world = again;
            assert_eq!(
                (&report.fenced[..], &report.damaged, &report.torn),
                (&[3][..], &vec![], &vec![])
            );
        }
        // When no replica is left to guard, the fence does not survive the next restart.
        world.free(a);
        assert_eq!(world.write(a, 0..900, false).status, Status::Fenced, "this one does");
        (0..10).for_each(|_| world.turn());
        drop(world);
        if power {
            control.crash()
        } else {
            control.kill()
        }
        let (world, report) = open(&control, durability);
        assert_eq!(report.fenced, [0; 0]);
        assert_eq!(world.figure("masters_fenced"), 0);
    }
}

#[test]
fn a_fence_is_acknowledged_when_it_is_durable() {
    let control = MemControl::new(1);
    let (mut world, _) = open(&control, Durability::Sync);
    world.put(id(3, 1), 0..900, true);
    control.fail(0, sprat_disk::Fault::Hang);
    let fence = world.begin(BackupRequest::Fence { master: 3 });
    let nothing_to_guard = world.begin(BackupRequest::Fence { master: 4 });
    for _ in 0..500 {
        world.turn();
    }
    assert_eq!(world.take(fence), None, "a restart now would forget it");
    assert!(world.take(nothing_to_guard).is_some());
    assert_eq!(
        world.write(id(3, 2), 0..10, false).status,
        Status::Fenced,
        "it is in force all the same"
    );
}

#[test]
fn a_fence_waits_until_the_masters_lease_has_ended() {
    let control = MemControl::new(1);
    let (mut world, _) = open(&control, Durability::Buffered);
    world.put(id(3, 1), 0..900, false);
    world.pass(2 * BACKUP_LEASE); // leases of an earlier run have ended
    let granted = world.ask(BackupRequest::Lease { master: 3 });
    let until = world.now + BACKUP_LEASE;
    assert_eq!(
        (granted.status, u128::from(granted.number)),
        (Status::Ok, BACKUP_LEASE.as_micros())
    );
    let fence = world.begin(BackupRequest::Fence { master: 3 });
    let other = world.begin(BackupRequest::Fence { master: 4 });
    assert_eq!(world.write(id(3, 1), 900..1000, false).status, Status::Fenced);
    assert_eq!(world.ask(BackupRequest::Lease { master: 3 }).status, Status::Fenced);
    while world.now < until {
        world.turn();
        assert_eq!(world.take(fence), None, "the master may still answer its clients");
    }
    assert_eq!(world.wait(fence).records().len(), 1);
    assert!(world.take(other).is_some(), "other masters have no lease");
    assert_eq!(world.figure("leases_granted_total"), 1);
}

#[test]
fn a_restarted_backup_waits_for_the_leases_that_it_has_granted() {
    let control = MemControl::new(1);
    let (mut world, _) = open(&control, Durability::Sync);
    world.put(id(3, 1), 0..900, false);
    world.ask(BackupRequest::Lease { master: 3 });
    let until = world.now + BACKUP_LEASE;
    drop(world);
    control.kill();
    let (mut world, _) = open(&control, Durability::Sync);
    let nothing_to_guard = world.begin(BackupRequest::Fence { master: 4 });
    let fence = world.begin(BackupRequest::Fence { master: 3 });
    while world.now < until {
        world.turn();
        assert_eq!(world.take(fence), None, "the master does not know that the backup restarted");
    }
    assert_eq!(world.wait(fence).records().len(), 1);
    assert!(world.take(nothing_to_guard).is_some());
}

#[test]
fn only_members_get_leases() {
    let control = MemControl::new(1);
    let (mut world, _) = open(&control, Durability::Sync);
    for (master, status) in [(3, Status::Ok), (MEMBERS, Status::Refused), (0, Status::Malformed)] {
        assert_eq!(world.ask(BackupRequest::Lease { master }).status, status, "server {master}");
    }
}

#[test]
fn fences_are_not_listed_as_replicas() {
    let control = MemControl::new(1);
    let (mut world, _) = open(&control, Durability::Sync);
    world.put(id(3, 1), 0..900, true);
    world.fence(3);
    assert_eq!(world.figure("replicas"), 1);
    assert_eq!(world.fence(3).len(), 1);
    for request in [
        BackupRequest::Read { replica: id(3, 0), offset: 0 },
        BackupRequest::Free { replica: id(3, 0) },
        BackupRequest::Write {
            replica: id(5, 0),
            offset: 0,
            sealed: false,
            replacement: false,
            edition: 0,
            bytes: b"x",
        },
    ] {
        assert_eq!(world.ask(request).status, Status::Malformed);
    }
}

#[test]
fn a_fence_is_freed_with_the_last_replica() {
    let control = MemControl::new(1);
    let (mut world, _) = open(&control, Durability::Sync);
    world.put(id(3, 1), 0..900, true);
    world.put(id(3, 2), 0..900, false);
    assert_eq!(world.figure("replica_frames_live"), 2);
    world.fence(3);
    world.free(id(3, 1));
    assert_eq!(world.figure("replica_frames_live"), 2, "the fence has one of these frames");
    world.free(id(3, 2));
    assert_eq!(world.figure("replica_frames_live"), 0);
}

#[test]
fn a_fence_that_outlived_its_replicas_is_dropped_at_the_next_start() {
    for seed in 0..8 {
        let control = MemControl::new(seed);
        let (mut world, _) = open(&control, Durability::Sync);
        world.put(id(3, 1), 0..900, true);
        world.fence(3);
        // The mark that frees the replica's frame is written. The write of the mark that frees the
        // fence's frame hangs, so the disk may or may not have it.
        control.fail(1, sprat_disk::Fault::Hang);
        world.free(id(3, 1));
        (0..10).for_each(|_| world.turn());
        control.crash();
        drop(world);
        let (mut world, report) = open(&control, Durability::Sync);
        assert_eq!((report.replicas, &report.fenced[..]), (0, &[][..]));
        assert_eq!((world.figure("masters_fenced"), world.figure("replica_frames_live")), (0, 0));
        world.put(id(3, 2), 0..900, true);
    }
}
