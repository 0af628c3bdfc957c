//! The integration tests of the crate are one program, because each program is linked with the
//! whole crate. `cargo test -p sprat-grape --test grape NAME::` runs the tests of one file.

mod arrays;
mod matrices;
mod nbody;
