//! What tuning has done, and the way back: written down before anything is changed.

use crate::change::{Change, Class};
use crate::measured::Measured;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The file in a rack's folder.
pub(crate) const FILE: &str = "tune.json";

/// Most entries: runs that follow one another add to the same file until they are undone.
pub const MAX_ENTRIES: usize = 1_000;

/// What became of a candidate.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is being tried, or was when tuning ended without a word.
    Trying,
    /// It made things better, and stays.
    Kept,
    /// It did not, and everything is as it was before.
    Undone,
    /// It could not be done, for this reason, and everything is as it was before.
    Failed(String),
}

/// A candidate, and what became of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Entry {
    /// Of which class it is.
    pub class: Class,
    /// What it is.
    pub what: String,
    /// What it was before.
    pub present: String,
    /// Why it was tried.
    pub why: String,
    /// What was changed.
    pub changes: Vec<Change>,
    /// The way back, in the order in which it is gone.
    pub back: Vec<Change>,
    /// What became of it.
    pub state: State,
    /// What was measured just before.
    pub before: Option<Measured>,
    /// What was measured with it.
    pub after: Option<Measured>,
}

/// All of it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Journal {
    /// What was measured before anything was changed.
    pub before: Option<Measured>,
    /// And when everything was done.
    pub after: Option<Measured>,
    /// By what measurements of the same differ, as a share.
    pub margin: f64,
    /// What was tried, in order.
    pub entries: Vec<Entry>,
    #[serde(skip)]
    path: PathBuf,
}

impl Journal {
    /// What a rack's folder has of it; an empty one where there is none.
    ///
    /// # Errors
    /// The file cannot be read, or is none.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join(FILE);
        let told =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let journal = match fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| told(io::Error::other(error)))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::default(),
            Err(error) => return Err(told(error)),
        };
        Ok(Self { path, ..journal })
    }

    /// Makes it durable.
    ///
    /// # Errors
    /// Whatever the filesystem says, with the path.
    pub fn save(&self) -> io::Result<()> {
        replace(&self.path, self)
    }

    /// The way back from all that stands, the last first.
    #[must_use]
    pub fn way_back(&self) -> Vec<Change> {
        let standing = |entry: &&Entry| matches!(entry.state, State::Kept | State::Trying);
        self.entries.iter().rev().filter(standing).flat_map(|entry| entry.back.clone()).collect()
    }

    /// What stands, in the order in which it came.
    pub fn standing(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.state == State::Kept)
    }
}

/// Writes a file as JSON, all of it or nothing.
pub(crate) fn replace(path: &Path, value: &impl Serialize) -> io::Result<()> {
    sprat_host::replace(path, &serde_json::to_vec_pretty(value)?)
}
