//! A segment of a dead master's log while it is read from a backup and replayed.

use super::plan::SegmentSource;
use sprat_wire::entry::{Entry, Kind, SegmentHeader};
use thiserror::Error;

/// Why the bytes that a backup sent are not the segment.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum BadReplica {
    /// An entry is malformed, its checksum is wrong, or a segment's header is not the first entry.
    #[error("no valid entry at byte {0}")]
    Entry(usize),
    /// The first entry is not the segment's header.
    #[error("it does not start with the segment's header")]
    Header,
    /// The number of bytes received differs from the length that the backup stated.
    #[error("received {0} B, expected {1} B")]
    Length(usize, u64),
}

/// A segment that is being read or replayed.
pub(super) struct Loading {
    pub(super) source: SegmentSource,
    pub(super) bytes: Vec<u8>,
    /// Whether a call for the segment's next bytes is under way.
    pub(super) under_way: bool,
    /// Whether all of the segment has arrived and is valid.
    whole: bool,
    /// The offset at which the next entry to replay begins.
    pub(super) at: usize,
    /// The offset up to which entries were prefetched.
    ahead: usize,
}

impl Loading {
    /// Begins to load. `bytes` is a buffer to reuse.
    pub(super) fn new(source: SegmentSource, mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self { source, bytes, under_way: false, whole: false, at: 0, ahead: 0 }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Parses the segment's header from its first bytes. Entries to replay begin after it.
    pub(super) fn check_header(&mut self) -> Result<SegmentHeader, BadReplica> {
        let first = Entry::parse_checked(&self.bytes).map_err(|_| BadReplica::Entry(0))?;
        let header = Some(first).filter(|entry| entry.kind == Kind::Segment);
        let header = header.and_then(|entry| SegmentHeader::parse(entry.value));
        self.at = first.encoded_len();
        header.filter(|header| header.id == self.source.segment).ok_or(BadReplica::Header)
    }

    /// Checks the bytes once all have arrived: that they are `total` bytes, and that each entry is
    /// valid.
    pub(super) fn check(&mut self, total: u64) -> Result<SegmentHeader, BadReplica> {
        if self.bytes.len() as u64 != total {
            return Err(BadReplica::Length(self.bytes.len(), total));
        }
        let header = self.check_header()?;
        let mut at = self.at;
        while at < self.bytes.len() {
            let entry =
                Entry::parse_checked(&self.bytes[at..]).map_err(|_| BadReplica::Entry(at))?;
            if entry.kind == Kind::Segment {
                return Err(BadReplica::Entry(at));
            }
            at += entry.encoded_len();
        }
        self.whole = true;
        Ok(header)
    }

    /// Returns the next entry to replay; `None` at the end.
    pub(super) fn next(&self) -> Option<Entry<'_>> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        Some(Entry::parse(rest).expect("checked when it came"))
    }

    /// Returns whether any entries were prefetched.
    pub(super) fn has_prefetched(&self) -> bool {
        self.ahead > 0
    }

    /// Returns the next entry to prefetch.
    pub(super) fn next_ahead(&mut self) -> Option<Entry<'_>> {
        let from = self.ahead.max(self.at);
        let rest = self.bytes.get(from..).filter(|rest| !rest.is_empty())?;
        let entry = Entry::parse(rest).expect("checked when it came");
        self.ahead = from + entry.encoded_len();
        Some(entry)
    }

    /// Drops the bytes that a backup has sent, so that the segment is read from another backup.
    /// Returns false if no backup is left.
    pub(super) fn try_next_backup(&mut self) -> bool {
        self.source.servers.remove(0);
        self.bytes.clear();
        self.under_way = false;
        if self.source.servers.is_empty()
            && let Some((server, len)) = self.source.copies.pop()
        {
            (self.source.servers, self.source.len) = (vec![server], len);
        }
        !self.source.servers.is_empty()
    }
}
