//! What counts of a segment of a log that is gone, while it is read from a backup and replayed.

use super::plan::Source;
use sprat_wire::entry::{Entry, Kind, SegmentHeader};
use thiserror::Error;

/// Why what a backup sent is not the segment.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum BadReplica {
    /// An entry's checksum is wrong, or it is none.
    #[error("no valid entry at byte {0}")]
    Entry(usize),
    /// The first entry is not the segment's header.
    #[error("it does not begin with the segment's header")]
    Header,
    /// More or less came than was told.
    #[error("{0} B came that were to be {1}")]
    Length(usize, u64),
}

/// A segment under way.
pub(super) struct Loading {
    pub(super) source: Source,
    pub(super) bytes: Vec<u8>,
    /// A call for its next bytes is under way.
    pub(super) asked: bool,
    /// All has come, and is what it should be.
    whole: bool,
    /// Where the next entry to replay begins.
    pub(super) at: usize,
    /// Up to where entries were looked at that come later.
    ahead: usize,
}

impl Loading {
    /// Begins; `bytes` is a buffer that may have served before.
    pub(super) fn new(source: Source, mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self { source, bytes, asked: false, whole: false, at: 0, ahead: 0 }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// The segment's header, if that has been read; entries to replay begin behind it.
    pub(super) fn check_header(&mut self) -> Result<SegmentHeader, BadReplica> {
        let first = Entry::parse_checked(&self.bytes).map_err(|_| BadReplica::Entry(0))?;
        let header = Some(first).filter(|entry| entry.kind == Kind::Segment);
        let header = header.and_then(|entry| SegmentHeader::parse(entry.value));
        self.at = first.encoded_len();
        header.filter(|header| header.id == self.source.segment).ok_or(BadReplica::Header)
    }

    /// All has come: whether it is the `total` bytes that were told of, and each entry what it
    /// should be.
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

    /// The next entry to replay; `None` when there are no more.
    pub(super) fn next(&self) -> Option<Entry<'_>> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        Some(Entry::parse(rest).expect("checked when it came"))
    }

    /// Whether entries were looked at ahead of time.
    pub(super) fn is_begun(&self) -> bool {
        self.ahead > 0
    }

    /// The next entry that was not looked at ahead of time yet.
    pub(super) fn look_ahead(&mut self) -> Option<Entry<'_>> {
        let from = self.ahead.max(self.at);
        let rest = self.bytes.get(from..).filter(|rest| !rest.is_empty())?;
        let entry = Entry::parse(rest).expect("checked when it came");
        self.ahead = from + entry.encoded_len();
        Some(entry)
    }

    /// What a backup has sent is thrown away, and another asked; false when there is none left.
    pub(super) fn turn_to_another(&mut self) -> bool {
        self.source.servers.remove(0);
        self.bytes.clear();
        self.asked = false;
        if self.source.servers.is_empty()
            && let Some((server, len)) = self.source.copies.pop()
        {
            (self.source.servers, self.source.len) = (vec![server], len);
        }
        !self.source.servers.is_empty()
    }
}
