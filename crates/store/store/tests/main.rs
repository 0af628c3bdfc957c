//! All integration tests of the crate, as one program, since each program is linked with everything
//! that the crate depends on. `cargo test -p sprat-store --test store NAME::` runs the tests in the
//! file `NAME.rs`, or in the directory `NAME`.

mod backup;
mod balance;
mod batches;
mod catalog;
mod clients;
mod common;
mod coordinators;
mod election;
mod etcd;
mod faults;
mod input;
mod lease;
mod moving;
mod nodes;
mod once;
mod questions;
mod ranges;
mod recovery;
mod redis;
mod replicas;
mod replication;
mod roles;
mod server;
mod transactions;
