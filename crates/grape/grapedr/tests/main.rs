//! The integration tests of the crate are one program, because each program is linked with all
//! dependencies. `cargo test -p sprat-grapedr --test grapedr NAME::` runs the tests of one file.

mod assembler;
mod kernels;
mod machine;
mod matrices;
mod programs;
mod words;
