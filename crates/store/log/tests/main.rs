//! All integration tests of the crate, as one program, so that the crate's dependencies are linked
//! only once. `cargo test -p sprat-log --test log NAME::` runs those of one file.

mod behaviour;
mod common;
mod model;
