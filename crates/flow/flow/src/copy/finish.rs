//! The end of a transfer: a whole file gets its name; what is not whole is kept for the next
//! attempt.

use super::error::Error;
use super::event::{Event, Outcome, Progress, Served};
use super::fetch::Fetch;
use super::sums::Summed;
use crate::file::Attributes;
use crate::group::{self, Value};
use crate::partial::Partial;
use std::time::Duration;

/// A transfer whose streams have ended.
pub(super) struct Ready<'a> {
    pub(super) fetch: &'a Fetch,
    /// Where it came from, to be told.
    pub(super) source_name: String,
    /// Whether each group was verified on the way.
    pub(super) verified: bool,
    pub(super) attributes: Attributes,
    pub(super) length: u64,
    pub(super) progress: Progress,
    /// What came from where.
    pub(super) sources: Vec<Served>,
}

impl Ready<'_> {
    /// Gives the whole file its name.
    pub(super) fn publish(
        self,
        state: &mut Partial,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, Error> {
        let values: Vec<Value> = state.values.values().copied().collect();
        let blake3 = group::root(&values);
        self.hold_against_sums(state, &blake3)?;
        finish(self.fetch, state, self.length, self.attributes, tell)?;
        let sums = &self.fetch.options.sums;
        Ok(Outcome {
            target: self.fetch.target().to_owned(),
            length: self.length,
            blake3: Some(blake3),
            verified: self.verified || sums.any(),
            unchanged: false,
            progress: self.progress,
            sources: self.sources,
            time: Duration::ZERO,
        })
    }

    /// Keeps what has arrived, if it is of use.
    pub(super) fn keep(self, state: &mut Partial) {
        if self.fetch.is_for_nowhere() {
            return;
        }
        // The reason why this transfer ends is told; a second one is of no use.
        let flushed = state.sink.flush();
        state.write_down();
        if state.values.is_empty() || (state.journal.is_none() && flushed.is_ok()) {
            let _ = self.fetch.place.discard();
        }
    }

    /// Holds the file, as it is on the disk, against the sums that it must have. One that has
    /// others is another file: nothing of it is kept.
    fn hold_against_sums(&self, state: &mut Partial, blake3: &Value) -> Result<(), Error> {
        let (sums, cancel) = (&self.fetch.options.sums, &self.fetch.cancel);
        if self.fetch.is_for_nowhere() {
            if sums.sha256.is_some() {
                return Err(Error::Usage(
                    "--sha256 reads the file again: not of /dev/null".to_owned(),
                ));
            }
            return sums.hold(&self.source_name, &Summed { blake3: *blake3, sha256: None });
        }
        if !sums.any() {
            return Ok(());
        }
        let has = sums.of_written(&mut state.sink, self.length, cancel)?;
        let held = if has.blake3 == *blake3 {
            sums.hold(&self.source_name, &has)
        } else {
            Err(self.decayed())
        };
        held.inspect_err(|_| {
            let _ = self.fetch.place.discard(); // the error is told
        })
    }

    /// The disk gives back other bytes than were verified and written.
    fn decayed(&self) -> Error {
        let why =
            "what was written reads back as something else; look at the disk and the memory here"
                .to_owned();
        Error::Corrupt { source_name: self.fetch.target().display().to_string(), why }
    }
}

/// Makes a whole file durable, with its attributes, and gives it its name.
pub(super) fn finish(
    fetch: &Fetch,
    state: &mut Partial,
    length: u64,
    attributes: Attributes,
    tell: &mut dyn FnMut(&Event),
) -> Result<(), Error> {
    let mode = attributes.mode.filter(|_| fetch.options.preserve);
    let refused = state.sink.finish(length, &Attributes { mode, ..attributes })?;
    if let Some(error) = refused {
        tell(&Event::Note(format!(
            "{}: time, permissions or extended attributes cannot be set: {error}",
            fetch.target().display()
        )));
    }
    if !fetch.is_for_nowhere() {
        fetch.place.publish(fetch.options.force)?;
    }
    Ok(())
}
