//! A tablet is about to leave a server while a client watches it.

use crate::recovery::world::{TABLE, World};
use sprat_rpc::CallId;
use sprat_wire::expiry::Ttl;
use sprat_wire::op::{
    Condition, MoveCursor, MoveOrder, MoveStage, Request, WATCH_WAIT, WatchCursor, WatchHead,
};
use sprat_wire::tablet::Tablet;
use std::time::Duration;
use zerocopy::FromBytes as _;

/// Begins to watch the table of server 1, or goes on, from a change of a feed on.
fn watch(world: &mut World, (feed, next): (u64, u64)) -> CallId {
    let from = WatchCursor { feed: feed.into(), next: next.into() };
    world.begin(1, &Request::Watch { table: TABLE, position: 0, from: &from }, None)
}

/// Waits for what a watch gets. Returns where it goes on, and the bytes of the changes.
fn watched(world: &mut World, call: CallId) -> ((u64, u64), usize) {
    let (next, body) = world.end(call).expect("the tablet is there");
    let (head, changes) = WatchHead::ref_from_prefix(&body).expect("a head");
    ((head.feed.get(), next), changes.len())
}

/// A regression test, found by the simulator (seed 110000096, 10,000 operations). While a tablet
/// stood still for its move, a watch reported that an object had expired. The target, whose clock
/// was behind, still showed the object.
#[test]
fn a_watch_does_not_report_what_expires_while_its_tablet_stands_still() {
    const LIFE: Duration = Duration::from_millis(100);
    let mut world = World::new(2, 1, 1);
    let tablet = Tablet::whole(TABLE);
    world.assign(1, &[tablet], &[]);
    let (condition, ttl) = (Condition::None, Some(Ttl::of(LIFE).unwrap()));
    let write = Request::Write { table: TABLE, key: b"key", value: b"value", condition, ttl };
    world.ask(1, &write, None).expect("it is made");
    let call = watch(&mut world, (0, 0));
    let (at, _) = watched(&mut world, call);
    // The server answers after twice the object's life, if there is nothing to report.
    const { assert!(WATCH_WAIT.as_millis() >= 2 * LIFE.as_millis()) };
    let call = watch(&mut world, at);
    world.assign_leaving(1, MoveOrder { id: 1, tablet, from: 1, to: 2 });
    let from = MoveCursor { after: MoveCursor::FROM_START.into(), batch: 1.into() };
    let rest = Request::Collect { order: 1, stage: MoveStage::Rest, from: &from };
    world.ask(1, &rest, None).expect("the tablet leaves");
    assert_eq!(watched(&mut world, call), (at, 0));
    // The move is called off.
    world.assign(1, &[tablet], &[]);
    let call = watch(&mut world, at);
    assert!(watched(&mut world, call).1 > 0, "the object has expired");
}
