//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on.
//! `cargo test -p sprat-provision --test provision NAME::` runs those of one file.

#![allow(
    clippy::disallowed_methods,
    reason = "tests that wait for other processes, and for guests"
)]

mod guest;
mod guests;
mod jobs;
mod real;
mod units;
