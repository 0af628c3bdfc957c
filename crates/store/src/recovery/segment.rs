//! A segment of a log that is gone, while it is read from a backup and replayed.

use super::plan::Source;
use sprat_wire::entry::{Entry, Kind, Role, SegmentHeader};
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
    /// Up to where entries were looked at that come later.
    ahead: usize,
    /// Where entries that count end, once that is known.
    end: usize,
}

impl Loading {
    /// Begins; `bytes` is a buffer that may have served before.
    pub(super) fn new(source: Source, mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        bytes.reserve(source.len as usize);
        Self { source, bytes, asked: false, at: 0, ahead: 0, end: 0 }
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
        // Like what the cleaner writes, a copy has only what counts.
        let role = if header.is_copy() { Role::Survivor } else { header.role };
        let mut at = self.at;
        self.end = at;
        while at < self.bytes.len() {
            let entry = Entry::parse_checked(&self.bytes[at..]).map_err(|_| BadReplica::Entry(at))?;
            if entry.kind == Kind::Segment {
                return Err(BadReplica::Entry(at));
            }
            let next = at + entry.encoded_len();
            let is_cut = next == self.bytes.len() && Completion::is_cut(&entry, role);
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

    /// Whether entries were looked at ahead of time.
    pub(super) fn is_begun(&self) -> bool {
        self.ahead > 0
    }

    /// The next entry that was not looked at ahead of time yet.
    pub(super) fn look_ahead(&mut self) -> Option<Entry<'_>> {
        let from = self.ahead.max(self.at);
        let rest = self.bytes.get(from..self.end).filter(|rest| !rest.is_empty())?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use sprat_wire::once::{COMPLETIONS, MAX_COMPLETION, OperationId};
    use sprat_wire::op::Status;

    fn push(bytes: &mut Vec<u8>, entry: &Entry<'_>) {
        let at = bytes.len();
        bytes.resize(at + entry.encoded_len(), 0);
        entry.encode(&mut bytes[at..]);
    }

    /// Entries that count of a segment with two completions, the second with nothing behind it.
    fn counted(role: Role, digest: &[u64], joined: bool) -> usize {
        let header = SegmentHeader { id: 7, safe_version: 1, role, digest: digest.to_vec() }.encode();
        let mut value = [0; MAX_COMPLETION];
        let len = Completion { joined, status: Status::Ok, version: 1, result: &[] }.encode(&mut value);
        let key = OperationId { client: 1, lane: 2, sequence: 3, again: false }.key();
        let object = Entry { kind: Kind::Object, successor: false, table: 1, version: 1, key: b"key", value: b"value" };
        let completion = Entry { table: 1 | COMPLETIONS, version: 3, key: &key, value: &value[..len], ..object };
        let first = Entry { kind: Kind::Segment, table: 0, key: &[], value: &header, ..object };
        let mut bytes = Vec::new();
        [first, completion, object, completion].iter().for_each(|entry| push(&mut bytes, entry));
        let len = u32::try_from(bytes.len()).expect("few");
        let mut loading = Loading::new(Source { segment: 7, len, servers: vec![1], copies: Vec::new() }, Vec::new());
        loading.bytes = bytes;
        loading.check().expect("a segment");
        let mut count = 0;
        while let Some(len) = loading.next().map(|entry| entry.encoded_len()) {
            loading.at += len;
            count += 1;
        }
        count
    }

    #[test]
    fn a_completion_counts_with_what_it_came_with() {
        assert_eq!(counted(Role::Head, &[7], true), 2, "what it came with never arrived");
        assert_eq!(counted(Role::Head, &[7], false), 3, "it stands alone");
        assert_eq!(counted(Role::Survivor, &[], true), 3, "the cleaner knew that it counts");
        assert_eq!(counted(Role::Head, &[], true), 3, "whoever copied it knew that it counts");
    }
}
