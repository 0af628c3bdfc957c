//! Errors of transfers.

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
        /// The system's error.
        source: io::Error,
    },
    /// A row cannot be imported.
    #[error("{name}, line {line}: {error}")]
    Row {
        /// File or stream.
        name: String,
        /// Line at which the row begins, from 1.
        line: u64,
        /// The error in the row.
        error: RowError,
    },
    /// The values of some files are over the limit. This is found before anything is imported.
    #[error(
        "{count} files are over the value limit of {limit} bytes \
         (--skip-large leaves them out): {named}"
    )]
    LargeFiles {
        /// Number of files over the limit.
        count: u64,
        /// The limit in bytes.
        limit: usize,
        /// Names of the first of these files.
        named: String,
    },
    /// A file has grown beyond the limit since the source looked at it first.
    #[error("{0}: has grown over the value limit during the import")]
    Changed(String),
    /// A path is too long for a key.
    #[error("{0}: the path is over the key limit of 65,535 bytes")]
    LongPath(String),
    /// The source of an import is not a directory.
    #[error("{}: not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The destination of an export exists already.
    #[error("{}: exists already; choose another name or move it away", .0.display())]
    Exists(PathBuf),
    /// The destination of an export has no file name of its own (`/`, `..`).
    #[error("{}: cannot be created: the path does not end in a name", .0.display())]
    NoName(PathBuf),
    /// An operation on the table failed.
    #[error(transparent)]
    Table(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Makes an [`Error::Io`] at `path`.
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { name: path.display().to_string(), source }
    }

    /// Makes an [`Error::Table`].
    pub fn table(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Table(source.into())
    }
}

/// Why a row cannot be imported.
#[derive(Debug, Error)]
pub enum RowError {
    /// The header or the row has no column or field for the key, the value or the encoding.
    #[error("no column or field {0:?}")]
    NoField(String),
    /// The row has another number of fields than the first row, in a file in which a field is the
    /// value.
    #[error(
        "{found} fields, where the first row has {first}: quote a field that has a delimiter in it"
    )]
    Fields {
        /// Number of fields in this row.
        found: usize,
        /// Number of fields in the first row, or in the header.
        first: usize,
    },
    /// A field occurs twice in one JSON object, or occurs both plain and as base64.
    #[error("field {0:?} occurs twice")]
    Twice(String),
    /// The key is JSON that is neither a string nor a number.
    #[error("the key field is neither a string nor a number")]
    KeyType,
    /// The line is not a JSON object, or a field that is marked as base64 is not a string.
    #[error("not a JSON object: {0}")]
    Json(#[from] serde_json::Error),
    /// A field that is marked as base64 is not base64.
    #[error("field {0:?} is not base64")]
    Base64(String),
    /// The encoding column of a CSV of pairs has an unknown word.
    #[error("encoding {0:?} is not one of \"\", \"key\", \"value\", \"both\"")]
    Encoding(String),
    /// The file ends within quotes.
    #[error("a quoted field is never closed")]
    Unclosed,
    /// The key is [`CSV_HEADER_KEY`](super::CSV_HEADER_KEY), which is reserved: the row would be
    /// taken for a header.
    #[error("the key is reserved by Sprat")]
    Reserved,
    /// The key is longer than the limit.
    #[error("the key has {0} bytes, the limit is 65,535")]
    LongKey(usize),
    /// The row or its value is longer than the limit.
    #[error(
        "the row or its value has {0} bytes, the limit is 1,048,576 (--skip-large leaves it out)"
    )]
    Large(u64),
}
