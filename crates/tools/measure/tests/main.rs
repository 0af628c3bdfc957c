//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on. `cargo test -p sprat-measure --test measure NAME::` runs those of one file.

mod keys;
mod load;
mod over_time;
