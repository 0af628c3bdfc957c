//! All integration tests of the crate, as one program, since each program is linked with everything
//! that the crate depends on. `cargo test -p sprat-sim --test sim NAME::` runs those of one file.

mod checker;
mod cluster;
mod random;
mod search;
mod seeds;
