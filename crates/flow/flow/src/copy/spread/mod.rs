//! One set of files on several hosts. Each host has some of the pieces, and every host has a list
//! that says which host has which piece.
//!
//! A file, or a folder with its content, is sent as pieces of some megabytes. Each piece is an
//! ordinary file on a server that stores files. Several machines together receive the set faster
//! than the path to one machine, or its disk, would allow. With the list, the set is fetched as one
//! again.
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
