//! One set of files on several hosts: each has some of its pieces, and all have a list of which
//! host has which.
//!
//! A file, or a folder with its content, is sent as pieces of some megabytes, each an ordinary file
//! at a server that stores files, so that several machines receive it faster than the path to one
//! of them, or its disk, allows. With the list, the set is fetched as one again.
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
