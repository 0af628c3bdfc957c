//! All integration tests of the crate, as one program: each program is linked with all that the crate stands on.
//! `cargo test -p sprat-provision --test provision NAME::` runs those of one file.

mod guest;
mod guests;
mod jobs;
mod real;
mod units;
