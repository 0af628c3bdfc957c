//! All integration tests of the crate in one program, since each program links the whole crate.
//! `cargo test -p sprat-provision --test provision NAME::` runs the tests of one file.

#![allow(
    clippy::disallowed_methods,
    reason = "tests that wait for other processes, and for guests"
)]

mod guest;
mod guests;
mod jobs;
mod real;
mod units;
