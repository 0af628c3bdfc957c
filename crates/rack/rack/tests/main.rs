//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on.
//! `cargo test -p sprat-rack --test rack NAME::` runs those of one file.

mod given;
mod real;
mod units;
