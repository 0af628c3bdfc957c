//! Why a transfer stops.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a transfer stops.
#[derive(Debug, Error)]
pub enum Error {
    /// Reading or writing failed.
    #[error("{name}: {source}")]
    Io {
        /// File or stream.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// A row cannot be imported.
    #[error("{name}, line {line}: {fault}")]
    Row {
        /// File or stream.
        name: String,
        /// Line at which the row begins, from 1.
        line: u64,
        /// What is wrong with it.
        fault: Fault,
    },
    /// Files whose value would be over the limit, found before anything was imported.
    #[error(
        "{count} files are over the value limit of {limit} bytes (--skip-large leaves them out): {named}"
    )]
    LargeFiles {
        /// How many.
        count: u64,
        /// The limit, bytes.
        limit: usize,
        /// The first of them.
        named: String,
    },
    /// A file has grown over the limit since it was first looked at.
    #[error("{0}: has grown over the value limit during the import")]
    Changed(String),
    /// A path whose bytes make too long a key.
    #[error("{0}: the path is over the key limit of 65,535 bytes")]
    LongPath(String),
    /// A directory was expected.
    #[error("{}: not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The destination of an export is taken.
    #[error("{}: exists already; choose another name or move it away", .0.display())]
    Exists(PathBuf),
    /// The destination of an export has no name of its own (`/`, `..`).
    #[error("{}: cannot be created, it names no file or directory of its own", .0.display())]
    NoName(PathBuf),
    /// The other side, the table, failed.
    #[error(transparent)]
    Table(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// An [`Error::Io`] at `path`.
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { name: path.display().to_string(), source }
    }

    /// An [`Error::Table`].
    pub fn table(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Table(source.into())
    }
}

/// What is wrong with a row.
#[derive(Debug, Error)]
pub enum Fault {
    /// The column or field that holds the key is not there.
    #[error("no column or field {0:?}")]
    NoField(String),
    /// A row has more or fewer fields than the first, where one of them is the value.
    #[error(
        "{found} fields, where the first row has {first}: quote a field that has a delimiter in it"
    )]
    Fields {
        /// In this row.
        found: usize,
        /// In the first, or in its header.
        first: usize,
    },
    /// A field stands in one JSON object twice, or both plain and as base64.
    #[error("field {0:?} is there twice")]
    Twice(String),
    /// A JSON key that is neither a string nor a number.
    #[error("the key field is neither a string nor a number")]
    KeyType,
    /// Not a JSON object.
    #[error("not a JSON object: {0}")]
    Json(#[from] serde_json::Error),
    /// A field said to be base64 is not.
    #[error("field {0:?} is not base64")]
    Base64(String),
    /// The encoding column of a CSV of pairs holds another word than it may.
    #[error("encoding {0:?} is none of \"\", \"key\", \"value\", \"both\"")]
    Encoding(String),
    /// A quote is opened and the file ends before it is closed.
    #[error("a quoted field is never closed")]
    Unclosed,
    /// The key is [`CSV_HEADER_KEY`](super::CSV_HEADER_KEY): the row would be lost among Sprat's
    /// own.
    #[error("the key is one that Sprat keeps for itself")]
    Reserved,
    /// The key is over the limit.
    #[error("the key has {0} bytes, the limit is 65,535")]
    LongKey(usize),
    /// The value is over the limit.
    #[error(
        "the row or its value has {0} bytes, the limit is 1,048,576 (--skip-large leaves it out)"
    )]
    Large(u64),
}
