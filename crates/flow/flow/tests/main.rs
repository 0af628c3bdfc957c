//! All integration tests of the crate as one program, because each program links all of the crate's
//! dependencies. `cargo test -p sprat-flow --test flow NAME::` runs the tests of one file.

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
