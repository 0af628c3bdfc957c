//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on.
//! `cargo test -p sprat-grapedr --test grapedr NAME::` runs those of one file.

mod assembler;
mod kernels;
mod machine;
mod matrices;
mod programs;
mod words;
