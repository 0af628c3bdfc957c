//! Runs operations of all kinds, many in flight, and checks each answer as `sprat check` does.

use std::time::{Duration, Instant};

use sprat_check::{Run, SHARED_EVERY, Work};
use sprat_client::{Client, Options, Table};

/// Number of operations in flight.
const DEPTH: usize = 16;

/// Limit on the length of values, in bytes: some dozens of frames.
const LONGEST: usize = 40_000;

/// Makes a client of the cluster at `coordinator`, over its own device.
pub(crate) fn client(coordinator: &str, local: &str) -> Client {
    let coordinator = coordinator.to_owned();
    let timeout = Duration::from_secs(30);
    Client::connect(&Options {
        coordinator,
        local: Some(local.to_owned()),
        timeout,
        ..Options::default()
    })
    .expect("a client")
}

/// The operations that were done.
pub(crate) struct Load {
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
}

/// Runs `operations` operations in a table that no other client uses.
#[track_caller]
pub(crate) fn mixed(client: &mut Client, table: Table, operations: u64, seed: u64) -> Load {
    let start = Instant::now();
    let mut run = Run::new(client, table, Work::new(seed).up_to(LONGEST), DEPTH);
    let judged = run.execute(operations, &mut |_| {}).unwrap_or_else(|broken| panic!("{broken}"));
    judged.unwrap_or_else(|disagreement| panic!("{disagreement}"));
    let counts = run.counts();
    assert_eq!((counts.operations(), counts.shared), (operations, operations / SHARED_EVERY));
    Load { operations, elapsed: start.elapsed() }
}
