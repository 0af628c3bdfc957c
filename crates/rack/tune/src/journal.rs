//! The journal: before tuning makes a change, it durably records the change and how to undo it.

use crate::change::{Change, Class};
use crate::measured::Measured;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the file in the rack's folder.
pub(crate) const FILE: &str = "tune.json";

/// Limit on the entries of a journal. Runs add to the same file until they are undone. A run that
/// would exceed the limit ends with [`TuneError::Full`](crate::TuneError::Full).
pub const MAX_ENTRIES: usize = 1_000;

/// The outcome of a candidate.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialState {
    /// The candidate is being tried, or tuning was interrupted during the trial.
    Trying,
    /// The candidate improved the score, or, if its class requires no more, did not worsen the
    /// score. The candidate stays in effect.
    Kept,
    /// The candidate did not help, or tuning was stopped or interrupted. The candidate's changes
    /// were undone.
    Undone,
    /// The candidate could not be applied or measured, for the given reason. The candidate's
    /// changes were undone.
    Failed(String),
}

/// A candidate and its outcome.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Entry {
    /// Class of the candidate.
    pub class: Class,
    /// The proposed value.
    #[serde(rename = "what")]
    pub proposed: String,
    /// The value before the change.
    pub present: String,
    /// The reason to try it.
    pub why: String,
    /// The changes that were made.
    pub changes: Vec<Change>,
    /// The changes that undo the candidate, in order.
    pub back: Vec<Change>,
    /// The outcome.
    pub state: TrialState,
    /// The measurement just before the candidate was applied.
    pub before: Option<Measured>,
    /// The measurement with the candidate. `None` if there is none.
    pub after: Option<Measured>,
}

/// The journal of a rack's tuning, kept in the rack's folder. [`run`](crate::run) saves it before
/// each change and after each outcome. After a crash, [`undo`](crate::undo) or a later run finds in
/// it the changes that restore the earlier settings.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Journal {
    /// The measurement before the first change. `None` if nothing was measured yet.
    pub before: Option<Measured>,
    /// The measurement after the last candidate. `None` if tuning did not get that far.
    pub after: Option<Measured>,
    /// The relative difference of two measurements of the same settings
    /// ([`margin`](crate::margin)).
    pub margin: f64,
    /// All candidates that were tried, in order.
    pub entries: Vec<Entry>,
    #[serde(skip)]
    path: PathBuf,
}

impl Journal {
    /// Reads the journal from a rack's folder. A missing file is read as an empty journal.
    ///
    /// # Errors
    /// The file exists but cannot be read, or is not the JSON of a journal. The error has the path.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join(FILE);
        let with_path =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let journal = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| with_path(io::Error::other(error)))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::default(),
            Err(error) => return Err(with_path(error)),
        };
        Ok(Self { path, ..journal })
    }

    /// Writes the journal durably.
    ///
    /// # Errors
    /// The new file cannot be written, synced or renamed to the journal's name.
    pub fn save(&self) -> io::Result<()> {
        replace(&self.path, self)
    }

    /// Returns the changes that undo everything still in effect. The last change is undone first.
    #[must_use]
    pub fn way_back(&self) -> Vec<Change> {
        let standing =
            |entry: &&Entry| matches!(entry.state, TrialState::Kept | TrialState::Trying);
        self.entries.iter().rev().filter(standing).flat_map(|entry| entry.back.clone()).collect()
    }

    /// Returns the entries that were kept, in order.
    pub fn standing(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.state == TrialState::Kept)
    }
}

/// Replaces a file by a value as JSON, atomically.
pub(crate) fn replace(path: &Path, value: &impl Serialize) -> io::Result<()> {
    sprat_host::replace(path, &serde_json::to_vec_pretty(value)?)
}
