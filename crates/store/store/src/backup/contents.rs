//! A replica that was read from disk. The bytes of its log are taken out of the chunks only as far
//! as they are requested.

use super::stored::{Damage, Stored};
use super::walk::ChunkReader;
use sprat_disk::AlignedBuf;
use sprat_wire::frame::{CHUNK_HEADER_BYTES, Seal};

/// A run of log bytes in a frame.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Offset in the log at which the run begins, in bytes.
    log: usize,
    /// Offset in the frame at which the run begins, in bytes.
    frame: usize,
    len: usize,
}

/// The contents of a replica. Its chunks are checked when their bytes, or bytes after them, are
/// requested. So a node that reads a replica from its beginning checks only a piece of it in each
/// loop iteration.
#[derive(Debug)]
pub struct Contents {
    buffer: AlignedBuf,
    chunks: ChunkReader,
    /// Number of log bytes that the replica must have.
    len: usize,
    file: String,
    /// Offset in the file at which the frame begins, in bytes.
    offset: u64,
    stored: Stored,
    /// The end of what was checked so far, in the frame and in the log.
    position: usize,
    log_end: usize,
    extents: Vec<Extent>,
}

impl Contents {
    pub(super) fn new(
        buffer: AlignedBuf,
        chunks: ChunkReader,
        stored: &Stored,
        file: String,
        offset: u64,
    ) -> Self {
        let (len, stored) = (stored.len as usize, stored.clone());
        Self {
            buffer,
            chunks,
            len,
            file,
            offset,
            stored,
            position: 0,
            log_end: 0,
            extents: Vec::new(),
        }
    }

    /// Returns the number of log bytes in the replica.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the replica has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends the log's bytes from `offset` on to `out`, at most `most` of them, and returns
    /// whether more follow.
    ///
    /// # Errors
    /// [`Damage`] when the requested bytes, or bytes before them, differ from what was written. In
    /// this case `out` is unchanged.
    pub fn copy(&mut self, offset: usize, most: usize, out: &mut Vec<u8>) -> Result<bool, Damage> {
        let end = self.len.min(offset.saturating_add(most));
        self.check(end)?;
        let first = self.extents.partition_point(|extent| extent.log + extent.len <= offset);
        let mut at = offset;
        for extent in &self.extents[first..] {
            if at >= end {
                break;
            }
            let skip = at - extent.log;
            let len = (extent.len - skip).min(end - at);
            out.extend_from_slice(&self.buffer[extent.frame + skip..][..len]);
            at += len;
        }
        Ok(end < self.len)
    }

    /// Checks chunks until `end` bytes of log are checked.
    fn check(&mut self, end: usize) -> Result<(), Damage> {
        let frame = &self.buffer[..self.stored.framed as usize];
        while self.log_end < end {
            let bad = match self.chunks.step(&frame[self.position..], self.log_end) {
                Ok((header, payload)) if header.seal != Seal::Cut => {
                    self.position += CHUNK_HEADER_BYTES;
                    let extent =
                        Extent { log: self.log_end, frame: self.position, len: payload.len() };
                    self.extents.push(extent);
                    self.position += payload.len();
                    self.log_end += payload.len();
                    continue;
                }
                Ok(_) => "a cut, which no replica has".to_owned(),
                Err((bad, _)) => bad.to_string(),
            };
            return Err(Damage {
                file: self.file.clone(),
                offset: self.offset + self.position as u64,
                replica: Some(self.stored.replica),
                expected: format!(
                    "{} B of the segment, going on at byte {}",
                    self.len, self.log_end
                ),
                found: bad,
            });
        }
        Ok(())
    }

    pub(super) fn into_buffer(self) -> AlignedBuf {
        self.buffer
    }
}
