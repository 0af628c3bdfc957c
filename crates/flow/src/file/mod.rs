//! Files at the ends of a transfer: past the page cache, in groups.

mod place;
mod sink;

pub use place::{Attributes, Place, PlaceError};
pub use sink::{MAX_BUFFERS, Sink, SinkError};
