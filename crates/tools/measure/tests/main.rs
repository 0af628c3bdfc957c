//! All integration tests of the crate as one program, because each program links all of the crate's
//! dependencies. `cargo test -p sprat-measure --test measure NAME::` runs those of one file.

mod keys;
mod load;
mod over_time;
