//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on. `cargo test -p sprat-log --test log NAME::` runs those of one file.

mod behaviour;
mod common;
mod model;
