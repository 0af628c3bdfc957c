//! The packet logger: what passes, in pcapng files with stamps of nanoseconds.
//!
//! A [`Recorder`] stands on the way of the packets and copies each into a block of memory that was
//! made beforehand; a thread of its own writes blocks to files. The way of the packets never waits:
//! what finds no memory is counted, and the count stands in the statistics at the end of each file.
//!
//! A super-packet is written as it passed, in one piece, with a comment that says what it is on a
//! wire: every byte and every time is that of a packet that was there, where one cut up would be a
//! guess about the card that cuts it. Lanes write blocks of their own, so packets are in order for
//! each interface and not between them; a stable sort by time (`reordercap`) puts them in one.

mod block;
mod recorder;
mod writer;

pub use recorder::{FLUSH_NANOS, Recorder, Seen};
pub use writer::{
    Capture, CaptureError, DEFAULT_MEMORY, DEFAULT_SNAP, MAX_CAPTURE_INTERFACES, MAX_FILES,
    MAX_SNAP, MIN_FILE_BYTES, Settings, Summary, Totals,
};
