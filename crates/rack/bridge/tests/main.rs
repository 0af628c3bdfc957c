//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on.
//! `cargo test -p sprat-bridge --test bridge NAME::` runs those of one file.

mod backlog;
mod model;
mod pretend;
mod resp;
