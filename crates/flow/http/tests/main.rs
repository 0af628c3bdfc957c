//! The integration tests of the crate are one program, because each program is linked with all
//! dependencies. `cargo test -p sprat-http --test http NAME::` runs the tests of one file.

mod address;
mod head;
