//! All integration tests of the crate in one program, since each program links the whole crate.
//! `cargo test -p sprat-plan --test plan NAME::` runs the tests of one file.

mod fabrics;
mod plans;
mod rings;
mod simulations;
