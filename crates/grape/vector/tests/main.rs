//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on.
//! `cargo test -p sprat-vector --test vector NAME::` runs those of one file.

mod chance;
mod common;
mod gravity;
mod operations;
mod ready;
mod roots;
mod shapes;
