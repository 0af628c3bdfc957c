//! A log whose objects were all removed is recovered twice. Only the versions of the removed
//! objects are left, and new versions must be above them.

use crate::recovery::segment::{GONE, Segment};
use crate::recovery::world::{TABLE, World};
use sprat_wire::entry::Kind;
use sprat_wire::op::{Condition, RecoveryOrder, Request};
use sprat_wire::tablet::Tablet;

impl World {
    /// Sends a change to a server and returns its version.
    fn change(&mut self, server: u32, request: &Request<'_>) -> u64 {
        self.ask(server, request, None).expect("it is made").0
    }

    /// Stops the server `gone`, and lets the server `by` recover its table. `since` is the
    /// segment of the log of `gone` at which the table begins: only entries in this segment and
    /// later ones count. Returns this segment for the log of `by`.
    fn recover(&mut self, gone: u32, since: u64, by: u32) -> u64 {
        let min_open = self.stop(gone);
        let tablets = vec![(Tablet::whole(TABLE), since)];
        let order =
            RecoveryOrder { id: u64::from(gone), master: gone, min_open, askers: 1, tablets };
        self.assign(by, &[], &[order]);
        let since = self.recovered(by).expect("all is there");
        self.assign(by, &[Tablet::whole(TABLE)], &[]);
        since
    }
}

#[test]
fn versions_of_removed_objects_survive_two_recoveries() {
    // With some of the seeds the recovering server has its replicas on a server that stays. It then
    // has no reason to open another head.
    for seed in 1..=12 {
        let mut world = World::new(4, 1, seed * 7919);
        world.assign(1, &[Tablet::whole(TABLE)], &[]);
        let condition = Condition::None;
        let write =
            Request::Write { table: TABLE, key: b"key", value: b"value", condition, ttl: None };
        for _ in 0..10 {
            world.change(1, &write);
        }
        let removed = world.change(1, &Request::Remove { table: TABLE, key: b"key", condition });
        assert!(removed >= 10, "{removed}");
        let since = world.recover(1, 0, 2);
        world.recover(2, since, 3);
        let again = world.change(3, &write);
        assert!(again > removed, "seed {seed}: version {again} comes after {removed}");
    }
}

/// If the removal is in a later segment than the object, recovery writes neither the object nor the
/// removal.
#[test]
fn versions_of_objects_that_are_not_rewritten_survive() {
    for seed in 1..=12 {
        let mut world = World::new(4, 1, seed * 7919);
        world.assign(2, &[], &[]);
        let mut first = Segment::begin(1);
        first.push((Kind::Object, TABLE, 10), b"key", b"value");
        first.keep(&mut world, 4, 1, true);
        let mut head = Segment::begin(2);
        head.push((Kind::Tombstone, TABLE, 10), b"key", &1_u64.to_le_bytes());
        head.keep(&mut world, 4, 2, false);
        let whole = Tablet::whole(TABLE);
        let order = RecoveryOrder {
            id: 1,
            master: GONE,
            min_open: 2,
            askers: 1,
            tablets: vec![(whole, 0)],
        };
        world.assign(2, &[], &[order]);
        let since = world.recovered(2).expect("all is there");
        world.assign(2, &[whole], &[]);
        world.recover(2, since, 3);
        let write = Request::Write {
            table: TABLE,
            key: b"key",
            value: b"value",
            condition: Condition::None,
            ttl: None,
        };
        let again = world.change(3, &write);
        assert!(again > 10, "seed {seed}: version {again} comes after 10");
    }
}
