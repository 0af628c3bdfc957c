//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on.
//! `cargo test -p sprat-formula --test formula NAME::` runs those of one file.

mod cases;
mod language;
mod properties;
mod ready;
mod simplified;
