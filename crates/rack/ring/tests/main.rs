//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on.
//! `cargo test -p sprat-ring --test ring NAME::` runs those of one file.
//! Changes of real rings are tested in `cli`: `rack_ring.rs` and `rack_change.rs`.

mod refusals;
