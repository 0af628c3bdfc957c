//! What an earlier attempt left of a file: its part and its journal, if they are for this file in this state.

use super::error::Trouble;
use super::options::buffers;
use super::shared::{State, bytes_of};
use super::{Copy, Error, Event};
use crate::file::{PlaceError, Sink};
use crate::group;
use crate::journal::{Identity, Journal, boot};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use sprat_disk::Access;
use std::collections::BTreeMap;
use std::path::Path;

/// The destination, and what of it is there, for a file of `length` bytes in the state that `validator` tells of.
pub(super) fn take_up(
    copy: &Copy,
    fresh: bool,
    (source, length, validator): (String, u64, Option<String>),
    tell: &mut dyn FnMut(&Event),
) -> Result<State, Trouble> {
    let Copy { place, options, .. } = copy;
    let buffers = buffers(options.streams);
    let empty = |sink, journal| State { sink, journal, values: BTreeMap::new(), journal_failed: None };
    if copy.is_for_nowhere() {
        return Ok(empty(Sink::discard(place.target(), Some(length), buffers), None));
    }
    let at_journal = |error| Error::file(place.journal(), error);
    match place.part().symlink_metadata() {
        Ok(meta) if !meta.is_file() => {
            let other = PlaceError::Exists(place.part().to_owned());
            return Err(Error::from(other).into());
        }
        Ok(_) => {}
        // A journal tells of a part that is gone: to be gone before there is another.
        Err(_) => place.discard().map_err(Error::from)?,
    }
    let mut sink = Sink::open(place.part(), Access::Direct, Some(length), buffers)?;
    if options.sync_bytes > 0 {
        sink.sync_every(options.sync_bytes);
    }
    let identity = Identity {
        source,
        length,
        validator: validator.unwrap_or_default(),
        part: part_id(place.part()),
        boot: boot(),
    };
    if !fresh && let Some((journal, parsed)) = Journal::resume(place.journal(), length).map_err(at_journal)? {
        match differs(&parsed.identity, &identity) {
            None => {
                let same_boot = parsed.identity.boot == identity.boot && !identity.boot.is_empty();
                let mut state = State { values: parsed.groups, ..empty(sink, Some(journal)) };
                if !same_boot || options.check {
                    reread(copy, &mut state, length, tell)?;
                }
                return Ok(state);
            }
            Some(why) => tell(&Event::StartsOver { why }),
        }
    }
    let journal = if identity.validator.is_empty() {
        tell(&Event::Note(
            "the server does not tell one state of the file from another: an interruption will cost all of it"
                .to_owned(),
        ));
        let _ = std::fs::remove_file(place.journal()); // it would tell of what is overwritten
        None
    } else {
        Some(Journal::begin(place.journal(), &identity).map_err(at_journal)?)
    };
    Ok(empty(sink, journal))
}

/// Reads what is there, and keeps what is right.
fn reread(copy: &Copy, state: &mut State, length: u64, tell: &mut dyn FnMut(&Event)) -> Result<(), Trouble> {
    let bytes = state.values.keys().map(|group| bytes_of(length, *group)).sum();
    tell(&Event::Checking { bytes });
    let mut wrong: Vec<u64> = Vec::new();
    let Some(mut buffer) = state.sink.buffer()? else { unreachable!("nobody else has one") };
    for (index, value) in &state.values {
        if copy.cancel.is_asked() {
            return Err(Error::Cancelled.into());
        }
        let len = usize::try_from(bytes_of(length, *index)).expect("a group is in memory");
        state.sink.read(*index, &mut buffer, len)?;
        if group::value(length, *index, &buffer[..len]) != *value {
            wrong.push(*index);
        }
    }
    state.sink.recycle(buffer);
    for index in &wrong {
        state.values.remove(index);
    }
    if !wrong.is_empty() {
        tell(&Event::Note(format!(
            "{} of the groups that were here are not what they were: fetched again",
            wrong.len()
        )));
    }
    Ok(())
}

/// Why a journal is not for this file; none: it is.
fn differs(had: &Identity, has: &Identity) -> Option<String> {
    if has.validator.is_empty() {
        return Some("the server does not tell one state of the file from another".to_owned());
    }
    if had.part != has.part {
        return Some("what is here is not what the journal is about".to_owned());
    }
    if had.source != has.source {
        return Some(format!("what is here came from {}", had.source));
    }
    if had.length != has.length || had.validator != has.validator {
        let (from, to) = ((had.length, &had.validator), (has.length, &has.validator));
        return Some(format!("the source has changed since: {} B, {} then; {} B, {} now", from.0, from.1, to.0, to.1));
    }
    None
}

/// What tells a part from another file that has come to its name: inode, and when that was made.
fn part_id(path: &Path) -> String {
    match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO | StatxFlags::BTIME) {
        Ok(stat) => format!("{}.{}.{}", stat.stx_ino, stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
        Err(errno) => format!("unknown ({errno})"),
    }
}
