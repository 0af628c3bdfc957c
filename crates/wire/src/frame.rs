//! How a backup frames a segment's bytes on disk.
//!
//! The log file is a [`FileHeader`] block followed by frames of [`FRAME_BYTES`], one a segment
//! replica. A frame is a run of chunks, one for each write of a group commit: a [`ChunkHeader`],
//! then that many bytes of the segment's log. The next chunk follows at once, so the last block of
//! a frame is written again as the frame fills; it then holds the same bytes as before and more
//! behind them, and a write torn at a sector's edge leaves the earlier bytes as they were.
