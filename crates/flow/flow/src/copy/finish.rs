//! The end of a transfer. A complete file gets its name; an incomplete file is kept for the next
//! attempt.

use super::error::Error;
use super::event::{Event, Outcome, Progress, Served};
use super::fetch::Fetch;
use super::sums::FileSums;
use crate::file::Attributes;
use crate::group::{self, Value};
use crate::partial::Partial;
use std::time::Duration;

/// A transfer whose streams have ended.
pub(super) struct EndedTransfer<'a> {
    pub(super) fetch: &'a Fetch,
    /// The source's address or path, for messages.
    pub(super) source_name: String,
    /// Whether each group was verified on arrival.
    pub(super) verified: bool,
    pub(super) attributes: Attributes,
    pub(super) length: u64,
    pub(super) progress: Progress,
    /// Bytes received from each host.
    pub(super) sources: Vec<Served>,
}

impl EndedTransfer<'_> {
    /// Checks the complete file against the given sums and gives it its name.
    pub(super) fn publish(
        self,
        state: &mut Partial,
        report: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, Error> {
        let values: Vec<Value> = state.values.values().copied().collect();
        let blake3 = group::root(&values);
        self.check_sums(state, &blake3)?;
        finish(self.fetch, state, self.length, self.attributes, report)?;
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

    /// Makes the received groups durable for the next attempt. Discards them if the next attempt
    /// cannot use them.
    pub(super) fn keep(self, state: &mut Partial) {
        if self.fetch.is_discarding() {
            return;
        }
        // The transfer already fails with its own error; a failure to flush adds nothing.
        let flushed = state.sink.flush();
        state.journal_durable();
        if state.values.is_empty() || (state.journal.is_none() && flushed.is_ok()) {
            let _ = self.fetch.destination.discard();
        }
    }

    /// If sums were given, reads the file back from the disk and checks it against them. Discards a
    /// file that does not match. Of a file that is not stored, only checks the received values.
    fn check_sums(&self, state: &mut Partial, blake3: &Value) -> Result<(), Error> {
        let (sums, cancel) = (&self.fetch.options.sums, &self.fetch.cancel);
        if self.fetch.is_discarding() {
            assert!(sums.sha256.is_none(), "Fetch::new refuses it");
            return sums.check(&self.source_name, &FileSums { blake3: *blake3, sha256: None });
        }
        if !sums.any() {
            return Ok(());
        }
        let has = sums.hash_written(&mut state.sink, self.length, cancel)?;
        let held = if has.blake3 == *blake3 {
            sums.check(&self.source_name, &has)
        } else {
            Err(self.decayed())
        };
        held.inspect_err(|_| {
            let _ = self.fetch.destination.discard(); // the caller gets the first error
        })
    }

    /// Creates the error for a file whose bytes, when read back from the disk, differ from the
    /// bytes that were verified and written.
    fn decayed(&self) -> Error {
        let why =
            "the file on disk differs from what was written; check this machine's disk and memory"
                .to_owned();
        Error::Corrupt { source_name: self.fetch.target().display().to_string(), why }
    }
}

/// Sets the attributes of a complete file, makes it durable, and gives it its name. Sets the
/// permissions that the source states only with `preserve`.
pub(super) fn finish(
    fetch: &Fetch,
    state: &mut Partial,
    length: u64,
    attributes: Attributes,
    report: &mut dyn FnMut(&Event),
) -> Result<(), Error> {
    let mode = attributes.mode.filter(|_| fetch.options.preserve);
    let refused = state.sink.finish(length, &Attributes { mode, ..attributes })?;
    if let Some(error) = refused {
        report(&Event::Note(format!(
            "{}: time, permissions or extended attributes cannot be set: {error}",
            fetch.target().display()
        )));
    }
    if !fetch.is_discarding() {
        fetch.destination.publish(fetch.options.force)?;
    }
    Ok(())
}
