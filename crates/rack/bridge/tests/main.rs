//! All integration tests of the crate in one program, since each program links the whole crate.
//! `cargo test -p sprat-bridge --test bridge NAME::` runs the tests of one file.

mod backlog;
mod model;
mod pretend;
mod resp;
