//! All integration tests of the crate as one program, which links the dependencies only once.
//! `cargo test -p sprat-vector --test vector NAME::` runs those of one file.

mod chance;
mod common;
mod gravity;
mod operations;
mod ready;
mod roots;
mod shapes;
