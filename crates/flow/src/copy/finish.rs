//! The end of a transfer: a whole file gets its name; what is not whole is kept for the next attempt.

use super::options::Sums;
use super::{Copy, Error, Event, Outcome, Progress, Served};
use crate::file::Attributes;
use crate::group::{self, Value};
use crate::partial::{Partial, bytes_of};
use ring::digest::{Context, SHA256};
use std::time::Duration;

/// A transfer whose streams have ended.
pub(super) struct Ready<'a> {
    pub(super) copy: &'a Copy,
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
    pub(super) fn publish(self, state: &mut Partial, tell: &mut dyn FnMut(&Event)) -> Result<Outcome, Error> {
        let values: Vec<Value> = state.values.values().copied().collect();
        let blake3 = group::root(&values);
        self.hold_against_sums(state, &blake3)?;
        finish(self.copy, state, self.length, self.attributes, tell)?;
        let sums = &self.copy.options.sums;
        Ok(Outcome {
            target: self.copy.target().to_owned(),
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
        if self.copy.is_for_nowhere() {
            return;
        }
        // The reason why this transfer ends is told; a second one is of no use.
        let flushed = state.sink.flush();
        state.write_down();
        if state.values.is_empty() || (state.journal.is_none() && flushed.is_ok()) {
            let _ = self.copy.place.discard();
        }
    }

    /// Holds the file against the sums that it must have. One that has others is another file: nothing of it is kept.
    fn hold_against_sums(&self, state: &mut Partial, blake3: &Value) -> Result<(), Error> {
        let Sums { sha256, .. } = self.copy.options.sums;
        let sha256 = match sha256 {
            Some(_) if self.copy.is_for_nowhere() => {
                return Err(Error::Usage("--sha256 reads the file again: not of /dev/null".to_owned()));
            }
            Some(_) => Some(self.sha256(state)?),
            None => None,
        };
        self.copy.options.sums.hold(&self.source_name, blake3, sha256.as_ref()).inspect_err(|_| {
            let _ = self.copy.place.discard(); // the error is told
        })
    }

    fn sha256(&self, state: &mut Partial) -> Result<[u8; 32], Error> {
        state.sink.flush()?;
        let Some(mut buffer) = state.sink.buffer()? else { unreachable!("all streams have ended") };
        let mut context = Context::new(&SHA256);
        for index in 0..group::count(self.length) {
            if self.copy.cancel.is_asked() {
                return Err(Error::Cancelled);
            }
            let len = usize::try_from(bytes_of(self.length, index)).expect("a group is in memory");
            state.sink.read(index, &mut buffer, len)?;
            context.update(&buffer[..len]);
        }
        state.sink.recycle(buffer);
        Ok(context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

/// Makes a whole file durable, with its attributes, and gives it its name.
pub(super) fn finish(
    copy: &Copy,
    state: &mut Partial,
    length: u64,
    attributes: Attributes,
    tell: &mut dyn FnMut(&Event),
) -> Result<(), Error> {
    let mode = attributes.mode.filter(|_| copy.options.preserve);
    let refused = state.sink.finish(length, &Attributes { mode, ..attributes })?;
    if let Some(error) = refused {
        tell(&Event::Note(format!(
            "{}: time, permissions or extended attributes cannot be set: {error}",
            copy.target().display()
        )));
    }
    if !copy.is_for_nowhere() {
        copy.place.publish(copy.options.force)?;
    }
    Ok(())
}

impl Sums {
    pub(super) fn any(&self) -> bool {
        self.blake3.is_some() || self.sha256.is_some()
    }

    /// Holds what a file has against what it must have.
    pub(super) fn hold(&self, source_name: &str, blake3: &Value, sha256: Option<&[u8; 32]>) -> Result<(), Error> {
        for (name, want, has) in [("BLAKE3", self.blake3, Some(blake3)), ("SHA-256", self.sha256, sha256)] {
            if let (Some(want), Some(has)) = (want, has)
                && want != *has
            {
                let why = format!(
                    "the {name} of the file is {}, and {} was asked for: it is another file",
                    hex(has),
                    hex(&want)
                );
                return Err(Error::Corrupt { source_name: source_name.to_owned(), why });
            }
        }
        Ok(())
    }
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*bytes).to_hex().to_string()
}
