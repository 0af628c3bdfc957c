//! All integration tests of the crate in one program, since each program links the whole crate.
//! `cargo test -p sprat-load --test load NAME::` runs the tests of one file.

mod cassandra;
mod pure;
mod running;
mod support;
mod windows;
