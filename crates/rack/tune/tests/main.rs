//! All integration tests of the crate in one program, since each program links the whole crate.
//! `cargo test -p sprat-tune --test tune NAME::` runs the tests of one file.

mod advice;
mod search;
