//! A segment of a log that is gone, while it is read from a backup and replayed.

use super::plan::Source;
use sprat_wire::entry::{Entry, Kind, SegmentHeader};
use sprat_wire::once::Completion;
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
}

/// A segment under way.
pub(super) struct Loading {
    pub(super) source: Source,
    pub(super) bytes: Vec<u8>,
    /// A call for its next bytes is under way.
    pub(super) asked: bool,
    /// Where the next entry to replay begins.
    pub(super) at: usize,
    /// Where entries that count end, once that is known.
    end: usize,
}

impl Loading {
    pub(super) fn new(source: Source) -> Self {
        let bytes = Vec::with_capacity(source.len as usize);
        Self { source, bytes, asked: false, at: 0, end: 0 }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.bytes.len() == self.source.len as usize
    }

    /// The segment's header, if that has been read; entries to replay begin behind it.
    pub(super) fn check_header(&mut self) -> Result<SegmentHeader, BadReplica> {
        let first = Entry::parse_checked(&self.bytes).map_err(|_| BadReplica::Entry(0))?;
        let header = Some(first).filter(|entry| entry.kind == Kind::Segment);
        let header = header.and_then(|entry| SegmentHeader::parse(entry.value));
        self.at = first.encoded_len();
        header.filter(|header| header.id == self.source.segment).ok_or(BadReplica::Header)
    }

    /// Whether all of it is what it should be.
    pub(super) fn check(&mut self) -> Result<SegmentHeader, BadReplica> {
        let header = self.check_header()?;
        let mut at = self.at;
        self.end = at;
        while at < self.bytes.len() {
            let entry = Entry::parse_checked(&self.bytes[at..]).map_err(|_| BadReplica::Entry(at))?;
            if entry.kind == Kind::Segment {
                return Err(BadReplica::Entry(at));
            }
            let next = at + entry.encoded_len();
            let is_cut = next == self.bytes.len() && Completion::is_cut(&entry, header.role);
            self.end = if is_cut { at } else { next };
            at = next;
        }
        Ok(header)
    }

    /// The next entry to replay; `None` when there are no more.
    pub(super) fn next(&self) -> Option<Entry<'_>> {
        let rest = self.bytes.get(self.at..self.end).filter(|rest| !rest.is_empty())?;
        Some(Entry::parse(rest).expect("checked when it came"))
    }

    /// What a backup has sent is thrown away, and another asked; false when there is none left.
    pub(super) fn turn_to_another(&mut self) -> bool {
        self.source.servers.remove(0);
        self.bytes.clear();
        self.asked = false;
        !self.source.servers.is_empty()
    }
}
