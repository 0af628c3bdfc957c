//! All integration tests of the crate in one program, since each program links the whole crate.
//! `cargo test -p sprat-grape --test grape NAME::` runs those of one file.

mod arrays;
mod matrices;
mod nbody;
