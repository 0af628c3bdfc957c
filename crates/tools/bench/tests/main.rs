//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on.
//! `cargo test -p sprat-bench --test bench NAME::` runs those of one file.

mod codecs;
mod distribution;
mod grape;
mod ours;
mod peers;
mod printing;
