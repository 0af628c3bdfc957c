//! Replicas in real files.

use crate::replicas::support::{World, bytes_of, disk, id, options};
use sprat_store::replicas::{Durability, Options, Replicas};
use sprat_wire::SEGMENT_BYTES;
use sprat_wire::op::REPLICA_BYTES;

#[test]
fn replicas_in_a_file_survive_restarts() {
    for (durability, ring) in
        [(Durability::Sync, true), (Durability::Buffered, true), (Durability::Sync, false)]
    {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("replicas.sprat");
        for life in 0..4u64 {
            let mut disk = disk(&path, durability);
            if !ring {
                disk.without_ring();
            }
            let (replicas, report) = Replicas::open(disk, &options(durability)).unwrap();
            assert_eq!((report.replicas, report.clean), (4 * life, life > 0));
            assert_eq!((report.torn, report.damaged), (vec![], vec![]));
            let mut world = World::new(replicas, None);
            for segment in 1..=4 * life {
                let replica = id(9, segment);
                assert_eq!(world.read(replica).unwrap(), bytes_of(replica, 4000));
            }
            for segment in 4 * life + 1..=4 * life + 5 {
                let replica = id(9, segment);
                for part in 0..8 {
                    world.put(replica, part * 500..(part + 1) * 500, part == 7);
                }
            }
            world.free(id(9, 4 * life + 5));
            world.close();
        }
    }
}

#[test]
fn full_size_segments_are_read_piece_by_piece() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("replicas.sprat");
    let options = Options::new(*b"the test cluster", 5, 8);
    let (replicas, _) = Replicas::open(disk(&path, Durability::Sync), &options).unwrap();
    let mut world = World::new(replicas, None);
    let a = id(9, 1);
    let mut len = 0;
    let steps = SEGMENT_BYTES / REPLICA_BYTES;
    for step in 0..steps {
        let next = len + REPLICA_BYTES - 1000 * step;
        world.put(a, len..next, step == steps - 1);
        len = next;
    }
    assert_eq!(world.read(a).unwrap(), bytes_of(a, len));
    drop(world);
    let (replicas, report) = Replicas::open(disk(&path, Durability::Sync), &options).unwrap();
    assert_eq!((report.replicas, report.bytes), (1, len as u64));
    let mut world = World::new(replicas, None);
    assert_eq!(world.read(a).unwrap(), bytes_of(a, len));
    assert_eq!(world.figure("replica_read_bytes_total"), len as u64);
}
