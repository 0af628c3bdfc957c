//! The files at both ends of a transfer. They are read and written past the page cache, one group
//! at a time.

mod place;
mod regular;
mod sink;
pub mod source;
mod xattrs;

pub(crate) use place::umask;
pub use place::{Attributes, Destination, DestinationError, sync_directory};
pub use regular::{RegularError, irregular, open_regular};
pub use sink::{MAX_BUFFERS, Sink, SinkError};
pub use source::{Piece, Source, SourceError};
pub(crate) use xattrs::xattrs_of;
