//! Transactions of which one operation was prepared and another one refused. If the table of the
//! refused one is dropped before the other is aborted, the servers may commit the transaction.

use crate::world::{LIVELY, OTHER, PATIENCE, World};
use sprat_client::Error;
use sprat_wire::tablet::position;
use sprat_wire::transaction::OperationState;
use std::time::Duration;

/// Longer than several attempts to abort take.
const LONG: Duration = Duration::from_millis(200);

/// Begins a transaction on a table of a server that prepares its operation, and on one of a server
/// that refuses.
fn begin() -> World {
    let mut world = World::new();
    world.learn(1, LIVELY);
    world.learn(2, OTHER);
    world.commit(&[(1, b"key"), (2, b"key")]);
    world
}

#[test]
fn a_transaction_is_aborted_when_its_servers_say_so() {
    let mut world = begin();
    assert_eq!(world.ended(LONG), None, "the server that has prepared it has not answered");
    world.answer_aborts(OperationState::Aborted);
    assert_eq!(world.ended(PATIENCE), Some(Err(Error::TransactionConflict)));
}

#[test]
fn a_transaction_that_its_servers_have_committed_is_not_aborted() {
    let mut world = begin();
    world.answer_aborts(OperationState::Committed);
    let ended = world.ended(PATIENCE).expect("it ends");
    assert!(matches!(ended, Err(Error::Indeterminate { .. })), "{ended:?}");
}

/// If all operations are on one table, they are dropped together, so nothing is left to commit.
#[test]
fn a_refusal_is_reported_at_once_within_a_table() {
    let mut world = World::new();
    world.learn_tablets(1, &[LIVELY, OTHER]);
    let keys = || (0..100_u8).map(|number| [number]);
    let is_first = |key: &[u8; 1]| position(1, 1, key) < 1 << 60;
    let [prepared, refused] = [true, false].map(|first| {
        keys().find(|key| is_first(key) == first).expect("a sixteenth of them is in the first")
    });
    world.commit(&[(1, &prepared), (1, &refused)]);
    assert_eq!(world.ended(LONG), Some(Err(Error::TransactionConflict)));
}
