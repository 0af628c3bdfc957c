//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate depends on. `cargo test -p sprat-wire --test wire NAME::` runs those of one file.

mod certificate;
mod entry;
mod frame;
mod op;
mod packet;
mod tablet;
