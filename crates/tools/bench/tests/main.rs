//! All integration tests of the crate in one program, since each test program links all
//! dependencies. `cargo test -p sprat-bench --test bench NAME::` runs the tests of one file.

mod codecs;
mod distribution;
mod grape;
mod ours;
mod peers;
mod printing;
