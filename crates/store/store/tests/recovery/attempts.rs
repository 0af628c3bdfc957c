//! One replica of a head may have the end of the log, and another may not. A failed attempt that
//! has read the longer replica must leave nothing behind for the next attempt, which reads the
//! shorter one.

use crate::recovery::segment::{GONE, Segment};
use crate::recovery::world::{TABLE, World, key_position};
use sprat_wire::entry::Kind;
use sprat_wire::once::OperationId;
use sprat_wire::op::{Condition, RecoveryOrder, Request, Status};
use sprat_wire::tablet::{Range, Tablet};

/// Id of the newest head. The log has more segments than a recovery reads at once.
const HEAD: u64 = 6;

/// The backup that has the end of the log.
const LONG: u32 = 2;
/// The backup that lacks the end of the log.
const SHORT: u32 = 3;
/// The only backup with an undamaged replica of the first segment.
const WHOLE: u32 = 4;

fn operation(slot: u16, resent: bool) -> OperationId {
    OperationId { client: 7, slot, sequence: 3, resent }
}

/// The two halves of the table.
fn halves() -> [Tablet; 2] {
    let halves = Range::ALL.parts(2).into_iter().map(|range| Tablet { table: TABLE, range });
    halves.collect::<Vec<_>>().try_into().expect("two")
}

/// The keys of a counter and an object, both in the first half.
fn keys() -> [Vec<u8>; 2] {
    let keys = (0..100_u64).map(|number| number.to_le_bytes().to_vec());
    let keys = keys.filter(|key| halves()[0].range.contains(key_position(key))).take(2);
    keys.collect::<Vec<_>>().try_into().expect("every other")
}

/// Writes the replicas of a log. All replicas of the log have a counter at 5 and an object. Only
/// one replica of the head also has the counter at 6 and the removal of the object.
fn keep(world: &mut World) {
    let [counter, object] = keys();
    let mut first = Segment::begin(1);
    first.push((Kind::Object, TABLE, 1), &counter, &5_u64.to_le_bytes());
    first.push((Kind::Object, TABLE, 1), &object, b"value");
    first.keep(world, WHOLE, 1, true);
    let at = first.0.len() - 3;
    first.0[at] ^= 1;
    first.keep(world, SHORT, 1, true);
    for between in 2..HEAD {
        Segment::begin(between).keep(world, SHORT, between, true);
    }
    let mut head = Segment::begin(HEAD);
    head.keep(world, SHORT, HEAD, false);
    head.complete(operation(1, false), 2, &6_u64.to_le_bytes());
    head.push((Kind::Object, TABLE, 2), &counter, &6_u64.to_le_bytes());
    head.complete(operation(2, false), 1, &[]);
    head.push((Kind::Tombstone, TABLE, 1), &object, &1_u64.to_le_bytes());
    head.keep(world, LONG, HEAD, false);
}

fn order(tablets: &[Tablet]) -> RecoveryOrder {
    let tablets = tablets.iter().map(|&tablet| (tablet, 0)).collect();
    RecoveryOrder { id: 1, master: GONE, min_open: HEAD, askers: 1, tablets }
}

/// Sends those operations again that are only in the end of the log. Their clients would do so,
/// because they got no reply. Each operation must be executed once, and the replies must be right.
fn ask_again(world: &mut World, server: u32) {
    let [counter, object] = keys();
    let read = |world: &mut World, key: &[u8]| {
        world.ask(server, &Request::Read { table: TABLE, key }, None)
    };
    let increment = Request::IncrementI64 { table: TABLE, key: &counter, delta: 1 };
    let (_, sum) =
        world.ask(server, &increment, Some(operation(1, true))).expect("it is a counter");
    assert_eq!(sum, 6_u64.to_le_bytes());
    assert_eq!(read(world, &counter).expect("it is there").1, sum);
    assert_eq!(read(world, &object).expect("no reply said that it was removed").1, b"value");
    let remove = Request::Remove { table: TABLE, key: &object, condition: Condition::None };
    world.ask(server, &remove, Some(operation(2, true))).expect("it is there");
    assert_eq!(read(world, &object), Err(Status::NotFound));
}

#[test]
fn a_failed_attempt_leaves_no_completions() {
    for tablets in [vec![Tablet::whole(TABLE)], halves().to_vec()] {
        let mut world = World::new(5, 1, 1);
        world.assign(1, &[], &[]);
        keep(&mut world);
        world.cut(WHOLE, true);
        world.assign(1, &[], &[order(&tablets)]);
        let failure = world.recovered(1).unwrap_err();
        assert!(
            failure.contains("segment 1,"),
            "the attempt read all segments except the first: {failure}"
        );
        world.cut(WHOLE, false);
        world.cut(LONG, true);
        world.assign(1, &[], &[order(&tablets)]);
        while world.recovered(1).is_err() {}
        world.assign(1, &tablets, &[]);
        ask_again(&mut world, 1);
    }
}

/// The coordinator dies before it has recorded the recovery. The next coordinator divides the
/// tablets in another way.
#[test]
fn a_void_order_leaves_no_completions() {
    for tablets in [vec![Tablet::whole(TABLE)], halves().to_vec()] {
        let mut world = World::new(5, 1, 1);
        world.assign(1, &[], &[]);
        keep(&mut world);
        world.assign(1, &[], &[order(&tablets)]);
        world.recovered(1).expect("all is there");
        world.cut(LONG, true);
        let first = &halves()[..1];
        world.assign(1, &[], &[order(first)]);
        while world.recovered(1).is_err() {}
        world.assign(1, first, &[]);
        ask_again(&mut world, 1);
    }
}

/// The recovering server dies before its recovery is recorded. Another server recovers its other
/// tablets, and reads the table's completions from the dead server's log.
#[test]
fn an_unconfirmed_recovery_of_a_dead_server_leaves_no_completions() {
    let mut world = World::new(5, 2, 1);
    let [first, second] = halves();
    world.assign(1, &[second], &[]);
    keep(&mut world);
    world.assign(1, &[second], &[order(&[first])]);
    world.recovered(1).expect("all is there");
    let min_open = world.stop(1);
    world.cut(LONG, true);
    let others =
        RecoveryOrder { id: 2, master: 1, min_open, askers: 1, tablets: vec![(second, 0)] };
    world.assign(5, &[], &[others]);
    while world.recovered(5).is_err() {}
    world.assign(5, &[second], &[order(&[first])]);
    while world.recovered(5).is_err() {}
    world.assign(5, &halves(), &[]);
    ask_again(&mut world, 5);
}

/// A recovery that was recorded is final, including the operations that are only in the end of the
/// log.
#[test]
fn a_confirmed_recovery_keeps_its_completions() {
    let mut world = World::new(5, 2, 1);
    let [first, second] = halves();
    world.assign(1, &[second], &[]);
    keep(&mut world);
    world.assign(1, &[second], &[order(&[first])]);
    let since = world.recovered(1).expect("all is there");
    world.assign(1, &halves(), &[]);
    let min_open = world.stop(1);
    world.cut(LONG, true);
    let order = RecoveryOrder {
        id: 2,
        master: 1,
        min_open,
        askers: 1,
        tablets: vec![(first, since), (second, 0)],
    };
    world.assign(5, &[], &[order]);
    while world.recovered(5).is_err() {}
    world.assign(5, &halves(), &[]);
    let [counter, object] = keys();
    let increment = Request::IncrementI64 { table: TABLE, key: &counter, delta: 1 };
    let (_, sum) = world.ask(5, &increment, Some(operation(1, true))).expect("it was done");
    assert_eq!(sum, 6_u64.to_le_bytes());
    let (_, sum) = world.ask(5, &increment, Some(operation(3, false))).expect("it is a counter");
    assert_eq!(sum, 7_u64.to_le_bytes());
    assert_eq!(
        world.ask(5, &Request::Read { table: TABLE, key: &object }, None),
        Err(Status::NotFound)
    );
    let remove = Request::Remove { table: TABLE, key: &object, condition: Condition::None };
    assert_eq!(world.ask(5, &remove, Some(operation(2, true))).expect("it was done").0, 1);
}
