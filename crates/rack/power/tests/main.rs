//! All integration tests of the crate in one program, since each program links the whole crate.
//! `cargo test -p sprat-power --test power NAME::` runs the tests of one file.

mod devices;
mod energy;
mod parsing;
mod rack;
