//! Groups: entries that count together or not at all. See [`sprat_wire::group`].
//!
//! [`Log::begin_group`] takes room for all entries of the group, so that writes of the group cannot
//! fail for want of room. [`Log::end_group`] gives back what they did not need. Until then no bytes
//! of the group are handed to the disk, because owners take bytes only between two groups.

use crate::Durability;
use crate::log::{Appender, Full, Log};
use sprat_wire::group::{MARK_BYTES, encode_mark};

/// A group that is being written.
#[derive(Debug)]
pub(crate) struct OpenGroup {
    /// Where the group's mark belongs.
    begin: usize,
    /// Where the group's next entry belongs.
    at: usize,
    /// Where the group's room ends.
    end: usize,
}

impl Log {
    /// Returns the largest number of bytes of the entries in a group.
    #[must_use]
    pub fn max_group(&self) -> usize {
        // A new head has room for a group of this length, also in a frame on disk, where the log
        // needs some bytes more.
        self.config.segment_bytes / 8 * 7 - self.config.header_bytes_max() - MARK_BYTES
    }

    /// Begins a group: what is written from now on, in entries of at most `len` bytes together,
    /// counts together or not at all once [`end_group`](Self::end_group) was called. If `removes`,
    /// the group only removes objects, which is possible in a full log.
    ///
    /// The owner takes no [bytes](Self::next_pending) of the log before the group has ended.
    ///
    /// # Errors
    /// [`Full`] when memory or the disk has no room for the group, perhaps only until more of the
    /// log is durable or until pins are released. The log is unchanged then.
    ///
    /// # Panics
    /// When a group has begun already, or `len` is above [`max_group`](Self::max_group).
    pub fn begin_group(&mut self, len: usize, removes: bool) -> Result<(), Full> {
        assert!(self.group.is_none() && len <= self.max_group());
        let room = MARK_BYTES + len;
        let begin = match removes {
            true => self.make_room(room, Appender::Remover),
            // No object has this key, so the group is admitted as if all its objects were new.
            false => self.make_room_for_object((0, 0, &[]), room),
        }?;
        self.position -= room as u64;
        self.group = Some(OpenGroup { begin, at: begin, end: begin + room });
        Ok(())
    }

    /// Returns whether a group has begun that has not ended.
    #[must_use]
    pub fn is_in_group(&self) -> bool {
        self.group.is_some()
    }

    /// Takes room for an entry of the open group.
    ///
    /// # Errors
    /// The group has no room for the entry.
    pub(crate) fn room_in_group(&mut self, len: usize) -> Result<usize, Full> {
        let group = self.group.as_mut().expect("a group has begun");
        let begins = group.at == group.begin;
        let (mark, at) = if begins { (MARK_BYTES, group.at + MARK_BYTES) } else { (0, group.at) };
        if at + len > group.end {
            return Err(Full::Memory);
        }
        group.at = at + len;
        self.position += (mark + len) as u64;
        Ok(at)
    }

    /// Ends the group that has begun.
    ///
    /// # Panics
    /// When no group has begun.
    pub fn end_group(&mut self) {
        let OpenGroup { begin, at, end } = self.group.take().expect("a group has begun");
        self.memory.shorten(self.head, end - at);
        if at == begin {
            return;
        }
        encode_mark(at - begin - MARK_BYTES, &mut self.memory.bytes[begin..begin + MARK_BYTES]);
        if self.config.durability == Durability::Tracked {
            self.groups.push_back((self.position - (at - begin) as u64, self.position));
        }
    }

    /// Returns the position before the first group of which only a part is durable, given the
    /// position up to which the bytes of the log are durable.
    pub(crate) fn whole_groups(&self, durable: u64) -> u64 {
        match self.groups.iter().find(|(_, end)| *end > durable) {
            Some((begin, _)) => durable.min(*begin),
            None => durable,
        }
    }

    /// Forgets the groups that are durable.
    pub(crate) fn forget_groups(&mut self) {
        let durable = self.durable_bytes();
        while self.groups.front().is_some_and(|(_, end)| *end <= durable) {
            self.groups.pop_front();
        }
    }

    /// Returns whether an entry of a head is in no group of which a part is not durable. `end` is
    /// the position of its end.
    pub(crate) fn is_in_whole_group(&self, end: u64) -> bool {
        self.groups.is_empty() || end <= self.durable_position()
    }
}
