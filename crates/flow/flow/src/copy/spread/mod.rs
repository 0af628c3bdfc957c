//! One set of files on several hosts. Each host has some of the pieces, and every host has a list
//! that says which host has which piece.
//!
//! A file, or a folder with its content, is sent as pieces of up to 64 MiB, or longer pieces of a
//! file above 256 GiB. Each piece is an ordinary file on a server that stores files. Several
//! machines together receive the set faster than the path to one machine, or its disk, would allow.
//! A [`Gather`] reads the list and fetches the pieces back into the files of the set.
//!
//! ```text
//! NAME.sprat-spread                     the list, at every host, once all pieces are stored
//! NAME.sprat-pieces/STATE.NUMBER        piece NUMBER of the file whose state has the name STATE
//! ```

mod gather;
mod lane;
pub mod manifest;
mod pieces;
mod send;
mod talk;

pub use gather::Gather;
pub use send::{Spread, SpreadOutcome};
