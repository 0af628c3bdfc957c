//! A server recovers tablets while the replicas of its head are nearly full.

use crate::recovery::segment::{GONE, Segment};
use crate::recovery::world::{TABLE, World};
use sprat_wire::entry::Kind;
use sprat_wire::op::{Condition, RecoveryOrder, Request};
use sprat_wire::tablet::Tablet;

/// A table that the recovering server serves already.
const OWN: u32 = TABLE + 1;

/// Number of the recovering server's own writes. Each is a chunk of its own on the backups, whose
/// header takes room in the frame.
const WRITES: u64 = 400;

/// Segments of the dead master: more than the recovering server's head has room for.
const SEGMENTS: u64 = 2;

/// Objects in each of these segments.
const OBJECTS: u64 = 350;

/// The head must not grow by more than its replicas have room for. Otherwise both backups would
/// refuse the rest of the head, and there is no third backup.
#[test]
fn recovered_entries_fit_into_the_replicas() {
    let mut world = World::new(3, 2, 1);
    world.assign(1, &[Tablet::whole(OWN)], &[]);
    let condition = Condition::None;
    for _ in 0..WRITES {
        let write =
            Request::Write { table: OWN, key: b"key", value: b"value", condition, ttl: None };
        world.ask(1, &write, None).expect("it is made");
    }
    for id in 1..=SEGMENTS {
        let mut segment = Segment::begin(id);
        for number in 0..OBJECTS {
            let key = (id * OBJECTS + number).to_le_bytes();
            segment.push((Kind::Object, TABLE, 1), &key, &[7; 1000]);
        }
        segment.keep(&mut world, 2, id, id < SEGMENTS);
    }
    let tablets = vec![(Tablet::whole(TABLE), 0)];
    let order = RecoveryOrder { id: 1, master: GONE, min_open: SEGMENTS, askers: 1, tablets };
    world.assign(1, &[Tablet::whole(OWN)], &[order]);
    world.recovered(1).expect("all is there");
}
