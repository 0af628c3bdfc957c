//! All integration tests of the crate as one program, because each program links all of the crate's
//! dependencies. `cargo test -p sprat-net --test net NAME::` runs those of one file.

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
