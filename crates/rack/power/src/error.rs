//! Why a sensor tells nothing.

use std::path::PathBuf;

/// A sensor that tells nothing: which, where, why, and the mend.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{kind} at {place}: {trouble}")]
pub struct Error {
    /// The sensor's kind.
    pub kind: &'static str,
    /// Where it is, or was looked for.
    pub place: String,
    /// Why.
    pub trouble: Trouble,
}

/// Why.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Trouble {
    /// There is no such sensor.
    #[error("there is none: {0}")]
    Absent(String),
    /// A program is not on this machine.
    #[error("there is no {program} on this machine: {mend}")]
    Missing {
        /// Its name.
        program: String,
        /// Where it comes from.
        mend: &'static str,
    },
    /// A program failed.
    #[error("{program} failed ({status}): {told}")]
    Failed {
        /// Its name.
        program: String,
        /// How it ended.
        status: String,
        /// Its last words.
        told: String,
    },
    /// No answer in time.
    #[error("no answer within {0} s; power.timeout = \"10s\" gives it longer")]
    Silent(String),
    /// Nobody there, or not who it should be.
    #[error("{0}")]
    Unreachable(String),
    /// It does not let us.
    #[error("it refuses us ({0}): name a file with USER:PASSWORD as `login`")]
    Denied(String),
    /// It tells what makes no sense.
    #[error("it tells what makes no sense: {0}")]
    Nonsense(String),
    /// A counter of energy stands where it cannot have come since the reading before.
    #[error("{0}: what was used since the reading before is not known, and is not in the energy")]
    Restarted(String),
    /// It tells several, and nobody said which are meant.
    #[error("it tells of several, {}: choose, with `{key}`", all.join(", "))]
    Several {
        /// The setting that chooses.
        key: &'static str,
        /// What there is.
        all: Vec<String>,
    },
    /// A file of ours.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
}
