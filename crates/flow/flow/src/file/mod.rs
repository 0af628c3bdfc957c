//! The files at both ends of a transfer. They are read and written in groups, past the page cache
//! where the filesystem supports that and the file is not cached already.

mod place;
mod regular;
mod sink;
pub mod source;
mod xattrs;

pub(crate) use place::folder_mode;
pub use place::{Attributes, Destination, DestinationError, sync_directory};
pub use regular::{RegularError, irregular, open_regular};
pub use sink::{MAX_BUFFERS, Sink, SinkError};
pub use source::{Piece, Source, SourceError};
pub(crate) use xattrs::xattrs_of;
