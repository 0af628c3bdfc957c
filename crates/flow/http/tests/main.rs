//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on. `cargo test -p sprat-http --test http NAME::` runs those of one file.

mod address;
mod head;
