//! The integration tests of the crate are one program, because each program is linked with all
//! dependencies. `cargo test -p sprat-pace --test pace NAME::` runs the tests of one file.

mod doctor;
mod pacer;
mod support;
mod weir;
mod window;
