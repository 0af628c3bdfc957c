//! All integration tests of the crate in one program, since each program links the whole crate.
//! `cargo test -p sprat-ring --test ring NAME::` runs the tests of one file. Changes of real rings
//! are tested in `cli`: `rack_ring.rs` and `rack_change.rs`.

mod refusals;
