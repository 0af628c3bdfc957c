//! All integration tests of the crate in one program, since each program links the whole crate.
//! `cargo test -p sprat-rack --test rack NAME::` runs the tests of one file.

mod given;
mod real;
mod script;
mod units;
