//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on.
//! `cargo test -p sprat-plan --test plan NAME::` runs those of one file.

mod fabrics;
mod plans;
mod rings;
mod simulations;
