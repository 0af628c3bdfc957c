//! All integration tests of the crate, as one program, so that the crate's dependencies are linked
//! only once. `cargo test -p sprat-log --test log NAME::` runs the tests in the file `NAME.rs`.

mod behaviour;
mod common;
mod elements;
mod evict;
mod expiry;
mod group;
mod model;
mod order;
mod transactions;
