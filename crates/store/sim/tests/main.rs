//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate depends on. `cargo test -p sprat-sim --test sim NAME::` runs the tests of one file.

mod checker;
mod cluster;
mod random;
mod search;
mod seeds;
