//! Why a sensor gives no reading.

use std::path::PathBuf;

/// A failed reading: which sensor, where, and why.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{kind} at {place}: {cause}")]
pub struct Error {
    /// Kind of the sensor.
    pub kind: &'static str,
    /// The location of the sensor, or the location at which no sensor was found.
    pub place: String,
    /// The cause.
    pub cause: Cause,
}

/// The cause of a failed reading.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Cause {
    /// There is no such sensor, or the sensor gives no value at the moment. The text states which.
    #[error("no reading: {0}")]
    Absent(String),
    /// A program is not installed on this machine.
    #[error("there is no {program} on this machine: {remedy}")]
    Missing {
        /// Name of the program.
        program: String,
        /// How to install it.
        remedy: &'static str,
    },
    /// A program failed.
    #[error("{program} failed ({status}): {output}")]
    Failed {
        /// Name of the program.
        program: String,
        /// The program's exit status, or `not started`.
        status: String,
        /// The beginning of its standard error, at most 300 characters, or the error of its start.
        output: String,
    },
    /// The sensor did not answer in time; the text states the seconds that the last request had.
    #[error("no answer within {0} s; power.timeout = \"10s\" gives it longer")]
    Silent(String),
    /// No connection to the sensor can be made, its certificate is not trusted, it answers with an
    /// HTTP error, or the password would be sent unencrypted.
    #[error("{0}")]
    Unreachable(String),
    /// The sensor denies access.
    #[error("access denied ({0}): name a file with USER:PASSWORD as `login`")]
    Denied(String),
    /// The answer cannot be parsed, or its value is implausible.
    #[error("invalid reading: {0}")]
    Nonsense(String),
    /// An energy counter has a value that it cannot have reached since the last reading, the server
    /// has restarted, or the server has other counters than before.
    #[error("{0}: the energy used since the previous reading is unknown and not counted")]
    Restarted(String),
    /// There are several candidates and none was chosen, or a chosen one does not exist.
    #[error("it reports several, {}: choose one with `{key}`", all.join(", "))]
    Several {
        /// The setting that chooses.
        key: &'static str,
        /// Names of the candidates.
        all: Vec<String>,
    },
    /// A local file cannot be used.
    #[error("{}: {why}", path.display())]
    File {
        /// The file's path.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}
