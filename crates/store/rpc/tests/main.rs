//! All integration tests of the crate, as one program: each program is linked with all that the
//! crate depends on. `cargo test -p sprat-rpc --test rpc NAME::` runs the tests of one file.

mod calls;
mod channels;
mod net;
mod paths;
mod robustness;
