//! A client whose server is silent: how long it waits before it asks the coordinator for the new
//! servers of that server's tables.

use crate::world::{FOREIGN, LIVELY, TABLES, World};
use sprat_wire::op::Request;
use std::time::Duration;

#[test]
fn a_silent_server_delays_one_table_and_not_all() {
    let mut world = World::new();
    world.place(&[LIVELY]);
    let first = world.read(0);
    assert!(
        first >= Duration::from_millis(400),
        "{first:?}: too short: the server may only have been slow"
    );
    for table in 1..TABLES {
        let next = world.read(table);
        assert!(next < Duration::from_millis(10), "{next:?} for table {table}");
    }
    assert_eq!(world.coordinator_was_asked(), TABLES, "once for each table");
}

#[test]
fn an_unreplaced_silent_server_is_retried_with_short_timeouts() {
    let mut world = World::new();
    // At first the coordinator knew no other server; then another took over.
    let request = Request::Read { table: 0, key: b"key" };
    world
        .core
        .submit(world.now, 1, &request, world.now + Duration::from_millis(450))
        .expect("the client knows the table");
    let mut ended = false;
    while !ended {
        world.step();
        world.core.poll(world.now, &mut |_, _| ended = true).expect("the driver works");
    }
    world.place(&[LIVELY]);
    let next = world.read(0);
    assert!(next < Duration::from_millis(150), "{next:?}");
}

#[test]
fn a_server_that_answers_again_is_trusted_again() {
    let mut world = World::new();
    world.place(&[LIVELY]);
    world.read(0);
    let asked = world.coordinator_was_asked();
    world.read(0);
    assert_eq!(world.coordinator_was_asked(), asked, "the table's present server answers");
}

#[test]
fn a_locator_that_cannot_be_used_fails_only_its_table() {
    let mut world = World::new();
    world.place(&[FOREIGN]);
    let request = Request::Read { table: 0, key: b"key" };
    let deadline = world.now + Duration::from_secs(2);
    world.core.submit(world.now, 1, &request, deadline).expect("the client knows the table");
    while world.coordinator_was_asked() == 0 {
        world.step();
        world.core.poll(world.now, &mut |_, _| ()).expect("the driver works");
    }
    world.place(&[LIVELY]);
    world.read(1);
    world.read(0);
}
