//! Decides whether the existing destination is already the source's file.

use super::error::Error;
use super::event::{Event, Outcome, Progress};
use super::fetch::Fetch;
use crate::file::DestinationError;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the outcome for an existing destination, if it has the length and time of the source and
/// the given sums. Times are compared to the second if `exact` is false, or if the destination's
/// time has no fraction of a second.
///
/// # Errors
/// [`DestinationError::Exists`] if length or time differ, or if the destination is not a regular
/// file. [`Error::Corrupt`] if a sum differs. Other errors if the destination cannot be read, or
/// the caller cancels.
pub(super) fn unchanged(
    fetch: &Fetch,
    length: Option<u64>,
    modified: Option<SystemTime>,
    exact: bool,
    report: &mut dyn FnMut(&Event),
) -> Result<Outcome, Error> {
    let target = fetch.target().to_owned();
    let meta = target.symlink_metadata().map_err(|error| Error::file(&target, error))?;
    let same_time = modified
        .is_some_and(|theirs| meta.modified().is_ok_and(|ours| same_time(theirs, ours, exact)));
    if !meta.is_file() || length != Some(meta.len()) || !same_time {
        return Err(DestinationError::Exists(target).into());
    }
    let sums = &fetch.options.sums;
    let blake3 = if sums.any() {
        report(&Event::Checking { bytes: meta.len() });
        let has = sums.hash_file(&target, None, &fetch.cancel)?;
        sums.check(&target.display().to_string(), &has).map_err(|error| match error {
            Error::Corrupt { source_name, why } => {
                let why = format!(
                    "exists already with the source's length and time, but {why}; --force \
                     replaces it"
                );
                Error::Corrupt { source_name, why }
            }
            other => other,
        })?;
        Some(has.blake3)
    } else {
        None
    };
    let (length, progress) =
        (meta.len(), Progress { length: Some(meta.len()), ..Default::default() });
    let (verified, sources, time) = (blake3.is_some(), Vec::new(), Duration::ZERO);
    Ok(Outcome { target, length, blake3, verified, unchanged: true, progress, sources, time })
}

/// Returns whether two times are equal as far as both ends store them. Some ends store times only
/// to the second.
pub(super) fn same_time(theirs: SystemTime, ours: SystemTime, exact: bool) -> bool {
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).ok();
    let (Some(theirs), Some(ours)) = (since(theirs), since(ours)) else { return theirs == ours };
    theirs == ours || (theirs.as_secs() == ours.as_secs() && (!exact || ours.subsec_nanos() == 0))
}
