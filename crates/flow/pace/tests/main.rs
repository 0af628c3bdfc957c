//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on. `cargo test -p sprat-pace --test pace NAME::` runs those of one file.

mod doctor;
mod pacer;
mod support;
mod weir;
mod window;
