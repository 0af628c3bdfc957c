//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate depends on. `cargo test -p sprat-wire --test wire NAME::` runs the tests of one file.

mod certificate;
mod entry;
mod frame;
mod index;
mod op;
mod packet;
mod tablet;
mod transaction;
