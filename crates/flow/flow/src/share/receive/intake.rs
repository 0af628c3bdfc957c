//! Reads the body of a request. Every wait has a time limit, and no byte after the body is read.

use super::super::socket::Channel;
use crate::group::{GROUP_BYTES, GroupHasher, Value};
use std::io;
use std::time::{Duration, Instant};

/// Time limit for a group to arrive. It allows a rate of 1.7 kB/s.
const GROUP_TIME: Duration = Duration::from_secs(600);

/// Number of bytes received at a time, and hashed while they are in the cache. It is a multiple of
/// BLAKE3's chunk.
const PIECE: usize = 256 << 10;

/// A body that is being received.
pub(super) struct BodyReader<'a> {
    channel: &'a mut Channel,
    /// Bytes that were received together with the head.
    early: &'a mut Vec<u8>,
    /// Number of bytes of the body that were not read yet.
    left: u64,
    /// Number of bytes of the group that was begun last, including those that had arrived in an
    /// earlier request, and of everything received after that group.
    group_bytes: usize,
    patience: Duration,
}

impl<'a> BodyReader<'a> {
    pub(super) fn new(
        channel: &'a mut Channel,
        early: &'a mut Vec<u8>,
        length: u64,
        patience: Duration,
    ) -> Self {
        Self { channel, early, left: length, group_bytes: 0, patience }
    }

    /// Returns how many bytes of the body were not read yet.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Sends the interim response 100, after which the client sends the body.
    pub(super) fn send_continue(&mut self) -> io::Result<()> {
        self.channel.send(&[b"HTTP/1.1 100 Continue\r\n\r\n"])
    }

    /// Reads a group into `into`, after its first `have` bytes, which are already there. Returns
    /// the group's value.
    pub(super) fn group(
        &mut self,
        file: u64,
        index: u64,
        into: &mut [u8],
        have: usize,
    ) -> io::Result<Value> {
        let until = Instant::now() + GROUP_TIME;
        let mut hasher = GroupHasher::begin(file, index);
        hasher.add(&into[..have]);
        self.group_bytes = have;
        for piece in into[have..].chunks_mut(PIECE) {
            self.fill(piece, until)?;
            hasher.add(piece);
        }
        Ok(hasher.value())
    }

    /// Returns how many bytes of the group that was begun last have arrived, in this or an earlier
    /// request, also if reading it failed. Later bytes, such as the group's value, count too.
    pub(super) fn group_bytes(&self) -> usize {
        self.group_bytes
    }

    /// Reads the value that the sender states for a group.
    pub(super) fn value(&mut self) -> io::Result<Value> {
        let mut value = [0; 32];
        self.fill(&mut value, Instant::now() + self.patience)?;
        Ok(value)
    }

    /// Discards the remaining body if it has at most `most` bytes or the length of one group. The
    /// body must arrive within the time that a client has to make progress. Returns whether nothing
    /// is left.
    pub(super) fn skip(&mut self, most: u64) -> bool {
        let until = Instant::now() + self.patience;
        let mut room = vec![0; usize::try_from(self.left.min(PIECE as u64)).expect("a piece")];
        while self.left > 0 && self.left <= most.max(GROUP_BYTES) {
            let count = room.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            if self.fill(&mut room[..count], until).is_err() {
                return false;
            }
        }
        self.left == 0
    }

    fn fill(&mut self, into: &mut [u8], until: Instant) -> io::Result<()> {
        debug_assert!(into.len() as u64 <= self.left, "a body is read to its end");
        let early = into.len().min(self.early.len());
        into[..early].copy_from_slice(&self.early[..early]);
        self.early.drain(..early);
        self.group_bytes += early;
        let mut done = early;
        while done < into.len() {
            match self
                .channel
                .read_until(until.min(Instant::now() + self.patience), &mut into[done..])?
            {
                0 => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "it ended in the middle",
                    ));
                }
                count => {
                    done += count;
                    self.group_bytes += count;
                }
            }
        }
        self.left -= into.len() as u64;
        Ok(())
    }
}
