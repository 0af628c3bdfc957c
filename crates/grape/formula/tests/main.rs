//! The integration tests of the crate are one program, because each program is linked with the
//! whole crate. `cargo test -p sprat-formula --test formula NAME::` runs the tests of one file.

mod cases;
mod language;
mod properties;
mod ready;
mod simplified;
