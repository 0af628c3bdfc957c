//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate depends on. `cargo test -p sprat-transfer --test transfer NAME::` runs those of one file.

mod rows;
mod table;
mod tree;
