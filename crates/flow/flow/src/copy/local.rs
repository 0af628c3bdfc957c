//! A copy of a local file, for example from another disk. It bypasses the page cache where it can,
//! and keeps a journal like a fetch.

use super::error::{Error, Trouble};
use super::event::{Event, Outcome, PROGRESS_INTERVAL, Progress, Served};
use super::fetch::Fetch;
use super::finish::EndedTransfer;
use super::plan::{Assignment, Plan};
use super::resume::{Wanted, resume_or_begin};
use super::unchanged::unchanged;
use crate::file::{Attributes, Source, SourceError, open_regular, xattrs_of};
use crate::group::{self, GROUP_BYTES};
use crate::partial::{Partial, bytes_of};
use sprat_http::xattrs::Xattrs;
use std::fs::Metadata;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// Attempts once to copy the file at `path`.
pub(super) fn attempt(
    fetch: &Fetch,
    path: &Path,
    fresh: bool,
    report: &mut dyn FnMut(&Event),
) -> Result<Outcome, Trouble> {
    let source_name = path.display().to_string();
    let failed = |error: std::io::Error| Error::file(path, error);
    let (file, meta) = open_regular(path).map_err(Error::from)?;
    let (length, destination) = (meta.len(), &fetch.destination);
    if destination
        .target()
        .metadata()
        .is_ok_and(|target| (target.dev(), target.ino()) == (meta.dev(), meta.ino()))
    {
        return Err(Error::Usage(format!(
            "{source_name}: source and destination are the same file"
        ))
        .into());
    }
    if !fetch.options.force
        && !fetch.is_discarding()
        && destination.target().symlink_metadata().is_ok()
    {
        return Ok(unchanged(fetch, Some(length), meta.modified().ok(), true, report)?);
    }
    let validator_now = Some(validator(&meta));
    let wanted = Wanted {
        source: source_name.clone(),
        length,
        validator: validator_now,
        values: None,
        strict: false,
        streams: 1,
    };
    let mut state = resume_or_begin(fetch, fresh, wanted, report)?;
    let resumed: u64 = state.values.keys().map(|group| bytes_of(length, *group)).sum();
    report(&Event::Opened {
        source: source_name.clone(),
        target: destination.target().to_owned(),
        length: Some(length),
        verified: false,
        resumed,
        streams: 1,
        written: state.sink.describe().to_owned(),
    });
    let mut progress = Progress { done: resumed, length: Some(length), ..Progress::default() };
    let copied = missing(&state, group::count(length)).into_iter().try_for_each(|run| {
        let bytes = run.start * GROUP_BYTES..length.min(run.end * GROUP_BYTES);
        let again = file.try_clone().map_err(failed)?;
        groups(fetch, Source::new(again, path, bytes), run, &mut state, &mut progress, report)
    });
    // A file that changed while it was read may be a mix of two states.
    let now = file.metadata().map_err(failed)?;
    let same = validator(&now) == validator(&meta);
    let xattrs =
        if fetch.options.xattrs { xattrs_of(&file).map_err(failed)? } else { Xattrs::default() };
    let attributes = Attributes {
        mode: Some(meta.permissions().mode()),
        modified: meta.modified().ok(),
        xattrs,
    };
    let sources = vec![Served { source: source_name.clone(), bytes: progress.received }];
    let ready = EndedTransfer {
        fetch,
        source_name,
        verified: false,
        attributes,
        length,
        progress,
        sources,
    };
    match copied {
        Ok(()) if same => Ok(ready.publish(&mut state, report)?),
        Ok(()) => Err(Trouble::Changed("it was written to while it was read".to_owned())),
        Err(trouble) => {
            ready.keep(&mut state);
            Err(trouble)
        }
    }
}

/// Copies a run of groups.
fn groups(
    fetch: &Fetch,
    mut source: Source,
    run: Range<u64>,
    state: &mut Partial,
    progress: &mut Progress,
    report: &mut dyn FnMut(&Event),
) -> Result<(), Trouble> {
    let mut last_report = Instant::now();
    for index in run {
        if fetch.cancel.is_cancelled() {
            return Err(Error::Cancelled.into());
        }
        let Some(mut buffer) = state.sink.buffer()? else {
            unreachable!("no other buffer is in use")
        };
        let block = source.next_block().map_err(|error| match error {
            SourceError::Short { .. } => Trouble::Changed(error.to_string()),
            SourceError::Io { path, source, .. } => Error::file(path, source).into(),
        })?;
        let block = block.expect("a block for each group of the range");
        buffer[..block.len()].copy_from_slice(block);
        let (bytes, len) = (block.len() as u64, block.len());
        let length = progress.length.expect("a file has a length");
        state.values.insert(index, group::value(length, index, &buffer[..len]));
        state.sink.write(index, buffer, len)?;
        state.journal_durable();
        if let Some(why) = state.journal_failed.take() {
            report(&Event::Note(why));
        }
        (progress.done, progress.received) = (progress.done + bytes, progress.received + bytes);
        if last_report.elapsed() >= PROGRESS_INTERVAL {
            last_report = Instant::now();
            report(&Event::Progress(*progress));
        }
    }
    Ok(())
}

/// Returns the runs of groups that are missing.
fn missing(state: &Partial, count: u64) -> Vec<Range<u64>> {
    let mut plan = Plan::new(count, &state.values, 1);
    let mut runs = Vec::new();
    while let Assignment::Run(run) = plan.take(0, Duration::ZERO) {
        for group in run.clone() {
            plan.done(0, group, Duration::ZERO);
        }
        runs.push(run);
    }
    runs
}

/// Returns a text that identifies this state of a file.
fn validator(meta: &Metadata) -> String {
    let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
    format!("{}.{}.{}.{times:?}", meta.dev(), meta.ino(), meta.len())
}
