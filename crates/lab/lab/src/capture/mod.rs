//! Captures packets in pcapng files, with time stamps in nanoseconds.
//!
//! A worker gives each packet to its [`Recorder`], which copies the packet into memory that was
//! allocated at the start. A separate thread writes full slabs of this memory to files. A worker
//! never waits for that thread: packets that find no memory are counted as dropped. The counts are
//! in the statistics at the end of each file.
//!
//! A super-packet is written whole, as it passed, with a comment that states how many frames it
//! would be on a wire. To cut it up, the capture would have to guess what the network card does.
//! Each worker fills slabs of its own, so packets are in order for each interface, but not across
//! interfaces. `reordercap` sorts the packets of all interfaces by time.

mod block;
mod recorder;
mod writer;

pub use recorder::{CapturedPacket, FLUSH_NANOS, Recorder};
pub use writer::{
    Capture, CaptureError, CaptureSettings, CaptureSummary, DEFAULT_MEMORY, DEFAULT_SNAP,
    MAX_CAPTURE_INTERFACES, MAX_FILES, MAX_SNAP, MIN_FILE_BYTES, Totals,
};
