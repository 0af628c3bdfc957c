//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on.
//! `cargo test -p sprat-power --test power NAME::` runs those of one file.

mod devices;
mod energy;
mod parsing;
mod rack;
