//! Resumes from the part and the journal of an earlier attempt. They are used if they belong to the
//! current state of the file, or if the source confirms the values of their groups.

use super::client::Client;
use super::error::{Error, Trouble};
use super::event::Event;
use super::fetch::Fetch;
use super::host::RemoteFile;
use super::options::buffers;
use super::vouch::differing;
use crate::file::{DestinationError, Sink, irregular};
use crate::group::Value;
use crate::journal::{Identity, Journal, boot};
use crate::partial::{Partial, part_id};
use sprat_disk::Access;
use std::collections::{BTreeMap, BTreeSet};

/// The file that a journal must belong to.
pub(super) struct Wanted<'a> {
    /// The source, without credentials.
    pub(super) source: String,
    pub(super) length: u64,
    pub(super) validator: Option<String>,
    /// The client and the source from which to request values of groups, if the source states
    /// values.
    pub(super) values: Option<(&'a Client, &'a RemoteFile)>,
    /// Whether the received bytes must belong to this file. If so, a source that has another file
    /// is an error, and the bytes stay.
    pub(super) strict: bool,
    /// Number of streams that will write.
    pub(super) streams: usize,
}

/// Opens the part of the destination. Resumes from an earlier attempt if possible; otherwise begins
/// again.
pub(super) fn resume_or_begin(
    fetch: &Fetch,
    fresh: bool,
    wanted: Wanted<'_>,
    report: &mut dyn FnMut(&Event),
) -> Result<Partial, Trouble> {
    let Fetch { destination, options, .. } = fetch;
    let (length, buffers) = (wanted.length, buffers(wanted.streams));
    let empty = Partial::new;
    if fetch.is_discarding() {
        return Ok(empty(Sink::discard(destination.target(), Some(length), buffers), None));
    }
    let at_journal = |error| Error::file(destination.journal(), error);
    match destination.part().symlink_metadata() {
        Ok(meta) => {
            if let Some(kind) = irregular(meta.file_type()) {
                let path = destination.part().to_owned();
                return Err(Error::from(DestinationError::Other { path, kind }).into());
            }
        }
        // The part does not exist. Remove its journal before there is another part, which the
        // journal would not describe.
        Err(_) => destination.discard().map_err(Error::from)?,
    }
    let mut sink = Sink::open(destination.part(), Access::Direct, Some(length), buffers)?;
    if options.sync_bytes > 0 {
        sink.sync_every(options.sync_bytes);
    }
    let identity = Identity {
        source: wanted.source,
        length,
        validator: wanted.validator.unwrap_or_default(),
        part: part_id(destination.part()),
        boot: boot(),
    };
    if !fresh
        && let Some((journal, parsed)) =
            Journal::resume(destination.journal(), length).map_err(at_journal)?
    {
        let (journal, values) = match differs(&parsed.identity, &identity) {
            None => (Some(journal), Some(parsed.groups)),
            Some(why) => {
                let may_be = may_be_same(&parsed.identity, &identity);
                let same = match wanted.values.filter(|_| may_be) {
                    Some((client, source)) => same(fetch, client, source, length, &parsed.groups)?,
                    None => None,
                };
                let all = same.as_ref().is_some_and(|same| same.len() == parsed.groups.len());
                if wanted.strict && !all {
                    let why = format!("has another file than the one received here ({why})");
                    return Err(Error::Corrupt { source_name: identity.source, why }.into());
                }
                match same.filter(|same| !same.is_empty()) {
                    Some(same) => {
                        report(&Event::Note(same_groups_note(same.len(), parsed.groups.len())));
                        let mut journal =
                            Journal::begin(destination.journal(), &identity).map_err(at_journal)?;
                        journal.append(&same).map_err(at_journal)?;
                        (Some(journal), Some(same))
                    }
                    None => {
                        report(&Event::StartsOver { why });
                        (None, None)
                    }
                }
            }
        };
        if let Some(values) = values {
            let mut state = Partial { values, ..empty(sink, journal) };
            reread(fetch, &mut state, length, report)?;
            return Ok(state);
        }
    }
    let journal = if identity.validator.is_empty() {
        report(&Event::Note(
            "the server does not state the file's version: an interrupted transfer starts from \
             the beginning"
                .to_owned(),
        ));
        let _ = std::fs::remove_file(destination.journal()); // describes bytes to be overwritten
        None
    } else {
        Some(Journal::begin(destination.journal(), &identity).map_err(at_journal)?)
    };
    Ok(empty(sink, journal))
}

/// Returns those of `groups` that have the same value at the source. `None` if the source states no
/// values.
fn same(
    fetch: &Fetch,
    client: &Client,
    source: &RemoteFile,
    length: u64,
    groups: &BTreeMap<u64, Value>,
) -> Result<Option<BTreeMap<u64, Value>>, Trouble> {
    let Some(others) = differing(client, source, length, groups, &fetch.cancel)? else {
        return Ok(None);
    };
    let others: BTreeSet<u64> = others.into_iter().collect();
    Ok(Some(
        groups
            .iter()
            .filter(|(group, _)| !others.contains(group))
            .map(|(group, value)| (*group, *value))
            .collect(),
    ))
}

fn same_groups_note(same: usize, all: usize) -> String {
    let what = "the data here came from another source or version, but its hashes match";
    if same == all {
        what.to_owned()
    } else {
        format!("{what} in {same} of {all} groups; fetching the others again")
    }
}

/// Verifies the groups on the disk, and forgets corrupt groups. The disk, or a program that wrote
/// to the part, may have damaged them. To read a group costs little compared with fetching it.
fn reread(
    fetch: &Fetch,
    state: &mut Partial,
    length: u64,
    report: &mut dyn FnMut(&Event),
) -> Result<(), Trouble> {
    if state.values.is_empty() {
        return Ok(());
    }
    report(&Event::Checking { bytes: state.bytes(length) });
    let wrong =
        state.check(length, &|_| true, &|| fetch.cancel.is_cancelled())?.ok_or(Error::Cancelled)?;
    if wrong > 0 {
        report(&Event::Note(format!(
            "{wrong} of the groups received earlier are corrupt on disk: fetching them again"
        )));
    }
    Ok(())
}

/// Returns why a journal does not belong to this file; `None` if it does.
fn differs(had: &Identity, has: &Identity) -> Option<String> {
    if has.validator.is_empty() {
        return Some("the server does not state the file's version".to_owned());
    }
    if had.part != has.part {
        return Some("the journal describes another part file".to_owned());
    }
    if had.source != has.source {
        return Some(format!("the data here came from {}", had.source));
    }
    if had.length != has.length || had.validator != has.validator {
        let (from, to) = ((had.length, &had.validator), (has.length, &has.validator));
        return Some(format!(
            "the source has changed since: {} B, {} then; {} B, {} now",
            from.0, from.1, to.0, to.1
        ));
    }
    None
}

/// Returns whether a journal of another source or state may describe bytes of this file.
fn may_be_same(had: &Identity, has: &Identity) -> bool {
    had.part == has.part && had.length == has.length && !has.validator.is_empty()
}
