//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate depends on. `cargo test -p sprat-transfer --test transfer NAME::` runs the tests of one
//! file.

mod rows;
mod table;
mod tree;
