//! The received part of a file, with its journal and the values of its groups. A fetch has a
//! [`Partial`], and the server's side of an upload has one too.

use crate::file::{Sink, SinkError};
use crate::group::{self, Value};
use crate::journal::Journal;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::collections::BTreeMap;
use std::path::Path;

/// The received part of a file.
pub(crate) struct Partial {
    pub(crate) sink: Sink,
    /// `None` if no groups are journaled, because there is no journal or it cannot be written.
    pub(crate) journal: Option<Journal>,
    pub(crate) values: BTreeMap<u64, Value>,
    /// Why the journal could not be written; `None` if there was no failure or it was reported.
    pub(crate) journal_failed: Option<String>,
}

impl Partial {
    /// Creates a `Partial` without groups.
    pub(crate) fn new(sink: Sink, journal: Option<Journal>) -> Self {
        Self { sink, journal, values: BTreeMap::new(), journal_failed: None }
    }

    /// Returns how many bytes were received of a file of `length` bytes.
    pub(crate) fn bytes(&self, length: u64) -> u64 {
        self.values.keys().map(|group| bytes_of(length, *group)).sum()
    }

    /// Journals the groups that have become durable. If the journal cannot be written, the transfer
    /// continues, but an interrupted transfer would lose the groups that arrive from now on.
    pub(crate) fn journal_durable(&mut self) {
        let durable = self.sink.take_durable();
        let Some(journal) = self.journal.as_mut().filter(|_| !durable.is_empty()) else { return };
        let groups = durable
            .into_iter()
            .filter_map(|group| Some((group, *self.values.get(&group)?)))
            .collect();
        if let Err(error) = journal.append(&groups) {
            self.journal = None;
            self.journal_failed = Some(format!(
                "the journal cannot be written ({error}): an interrupted transfer would lose what \
                 arrives from now on"
            ));
        }
    }

    /// Reads the groups that `is_selected` accepts, and forgets those that are corrupt. Returns the
    /// number of corrupt groups; `None` if `is_stopped` has returned true.
    pub(crate) fn check(
        &mut self,
        length: u64,
        is_selected: &dyn Fn(u64) -> bool,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Option<usize>, SinkError> {
        self.sink.flush()?;
        let mut wrong: Vec<u64> = Vec::new();
        let Some(mut buffer) = self.sink.buffer()? else {
            unreachable!("no other buffer is in use")
        };
        for (index, value) in self.values.iter().filter(|(index, _)| is_selected(**index)) {
            if is_stopped() {
                return Ok(None);
            }
            let len = usize::try_from(bytes_of(length, *index)).expect("a group is in memory");
            // A group that cannot be read counts as corrupt. To write it again may repair the disk
            // block.
            let right = self.sink.read(*index, &mut buffer, len).is_ok()
                && group::value(length, *index, &buffer[..len]) == *value;
            if !right {
                wrong.push(*index);
            }
        }
        self.sink.recycle(buffer);
        for index in &wrong {
            self.values.remove(index);
        }
        Ok(Some(wrong.len()))
    }
}

/// Returns the length of a group, in bytes.
pub(crate) fn bytes_of(length: u64, group: u64) -> u64 {
    let range = group::range(length, group);
    range.end - range.start
}

/// Returns a text that identifies a part by its inode and creation time, so that another file of
/// the same name is not mistaken for it.
pub(crate) fn part_id(path: &Path) -> String {
    match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO | StatxFlags::BTIME) {
        Ok(stat) => {
            format!("{}.{}.{}", stat.stx_ino, stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)
        }
        Err(errno) => format!("unknown ({errno})"),
    }
}
