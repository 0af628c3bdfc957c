//! All integration tests of the crate, in one program, since every test program is linked with all
//! dependencies. `cargo test -p sprat-bench --test bench NAME::` runs those of one file.

mod codecs;
mod distribution;
mod grape;
mod ours;
mod peers;
mod printing;
