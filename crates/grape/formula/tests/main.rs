//! All integration tests of the crate in one program, since each program links the whole crate.
//! `cargo test -p sprat-formula --test formula NAME::` runs those of one file.

mod cases;
mod language;
mod properties;
mod ready;
mod simplified;
