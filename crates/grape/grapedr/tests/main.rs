//! All integration tests of the crate as one program, which links the dependencies only once.
//! `cargo test -p sprat-grapedr --test grapedr NAME::` runs those of one file.

mod assembler;
mod kernels;
mod machine;
mod matrices;
mod programs;
mod words;
