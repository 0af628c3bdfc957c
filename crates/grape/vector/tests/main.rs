//! The integration tests of the crate are one program, because each program is linked with all
//! dependencies. `cargo test -p sprat-vector --test vector NAME::` runs the tests of one file.

mod chance;
mod common;
mod gravity;
mod operations;
mod ready;
mod roots;
mod shapes;
