//! What there is of a file that is arriving: its part, the journal of it, and the values of its
//! groups. Who fetches has one, and who is sent to.

use crate::file::{Sink, SinkError};
use crate::group::{self, Value};
use crate::journal::Journal;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::collections::BTreeMap;
use std::path::Path;

/// What has arrived of a file.
pub(crate) struct Partial {
    pub(crate) sink: Sink,
    /// None: an interruption costs everything.
    pub(crate) journal: Option<Journal>,
    pub(crate) values: BTreeMap<u64, Value>,
    /// Why the journal could not be written any more: told once.
    pub(crate) journal_failed: Option<String>,
}

impl Partial {
    /// One of which nothing has arrived.
    pub(crate) fn new(sink: Sink, journal: Option<Journal>) -> Self {
        Self { sink, journal, values: BTreeMap::new(), journal_failed: None }
    }

    /// Bytes that are here of a file of `length`.
    pub(crate) fn bytes(&self, length: u64) -> u64 {
        self.values.keys().map(|group| bytes_of(length, *group)).sum()
    }

    /// Writes groups down that have become durable. A journal that cannot be written costs time
    /// after an interruption, no more.
    pub(crate) fn write_down(&mut self) {
        let durable = self.sink.take_durable();
        let Some(journal) = self.journal.as_mut().filter(|_| !durable.is_empty()) else { return };
        let groups = durable
            .into_iter()
            .filter_map(|group| Some((group, *self.values.get(&group)?)))
            .collect();
        if let Err(error) = journal.append(&groups) {
            self.journal = None;
            self.journal_failed = Some(format!(
                "the journal cannot be written ({error}): an interruption would cost what comes from here on"
            ));
        }
    }

    /// Reads those groups that are here and meant, forgets those that are not what they were, and
    /// returns how many. None: it was stopped.
    pub(crate) fn check(
        &mut self,
        length: u64,
        which: &dyn Fn(u64) -> bool,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Option<usize>, SinkError> {
        self.sink.flush()?;
        let mut wrong: Vec<u64> = Vec::new();
        let Some(mut buffer) = self.sink.buffer()? else { unreachable!("nobody else has one") };
        for (index, value) in self.values.iter().filter(|(index, _)| which(**index)) {
            if is_stopped() {
                return Ok(None);
            }
            let len = usize::try_from(bytes_of(length, *index)).expect("a group is in memory");
            // What cannot be read is not what it was either; to be written again may help the disk.
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

/// Bytes of a group.
pub(crate) fn bytes_of(length: u64, group: u64) -> u64 {
    let range = group::range(length, group);
    range.end - range.start
}

/// What tells a part from another file that has come to its name: inode, and when that was made.
pub(crate) fn part_id(path: &Path) -> String {
    match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO | StatxFlags::BTIME) {
        Ok(stat) => {
            format!("{}.{}.{}", stat.stx_ino, stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)
        }
        Err(errno) => format!("unknown ({errno})"),
    }
}
