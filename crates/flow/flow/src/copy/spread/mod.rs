//! One set of files on several hosts: each has pieces of it, and all have the list of what lies
//! where.
//!
//! A file, or a folder with all that is in it, is sent as pieces of some megabytes, each an
//! ordinary file at a server that takes files: so that a set of machines takes it faster than the
//! path to one of them, or its disk, allows. Whoever has the list fetches it as one again.
//!
//! ```text
//! NAME.sprat-spread                     the list, at every host, when all pieces are where it says
//! NAME.sprat-pieces/STATE.NUMBER        a piece of the file whose state goes by that name
//! ```

mod gather;
mod lane;
pub mod manifest;
mod pieces;
mod send;
mod talk;

pub use gather::Gather;
pub use send::{Spread, SpreadOutcome};
