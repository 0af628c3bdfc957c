//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate stands on. `cargo test -p sprat-flow --test flow NAME::` runs those of one file.

mod copy;
mod group;
mod hosts;
mod interrupted;
mod journal;
mod lies;
mod pair;
mod plan;
mod share;
mod sink;
mod source;
mod support;
mod upload;
mod xattrs;
