//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on.
//! `cargo test -p sprat-load --test load NAME::` runs those of one file.

mod cassandra;
mod pure;
mod running;
mod support;
mod windows;
