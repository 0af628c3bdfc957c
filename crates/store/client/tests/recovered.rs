//! A client whose server has executed a write and is being recovered, so that it is unknown whether
//! the write counts.

use crate::world::{LIVELY, PATIENCE, RECOVERED, World};
use sprat_client::Error;
use sprat_wire::op::Status;
use std::time::Duration;

#[test]
fn the_server_that_takes_over_is_asked() {
    let mut world = World::new();
    world.learn(1, RECOVERED);
    assert_eq!(world.write(1, PATIENCE, Some(LIVELY)).expect("an answer"), Status::Ok);
    assert_eq!(world.writes(RECOVERED).first(), Some(&false));
    assert_eq!(world.writes(LIVELY), [true], "the client says that the write was sent before");
}

#[test]
fn a_write_that_no_server_takes_over_in_time_is_indeterminate() {
    let mut world = World::new();
    world.learn(1, RECOVERED);
    let written = world.write(1, Duration::from_millis(50), None);
    assert!(matches!(written, Err(Error::Indeterminate { .. })), "{written:?}");
}
