//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on.
//! `cargo test -p sprat-net --test net NAME::` runs those of one file.

mod bypass;
mod common;
mod count;
mod ether;
mod idle;
mod locator;
mod mem;
mod memif_peer;
mod raw;
mod tcp;
mod udp;
