//! Operations and their answers.

use super::content::Content;
use sprat_client::{Condition, Ttl};
use std::fmt;

/// Returns the key with this number.
#[must_use]
pub fn key_name(key: usize) -> String {
    format!("key-{key:04}")
}

/// The kind of an operation, with its arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Reads the value and its version.
    Get,
    /// Stores a value.
    Put {
        /// The value.
        content: Content,
        /// The condition under which the value is stored.
        condition: Condition,
        /// How long the object lives; `None`: without limit.
        ttl: Option<Ttl>,
    },
    /// Removes the object.
    Remove {
        /// The condition under which the object is removed.
        condition: Condition,
    },
    /// Adds to a 64-bit integer.
    Increment {
        /// The number to add.
        delta: i64,
    },
}

/// One operation on one object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operation {
    /// The operation's number in the sequence, from 1.
    pub number: u64,
    /// The number of the operation's key.
    pub key: usize,
    /// The action.
    pub action: Action,
}

/// An answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// A get found the object.
    Found {
        /// The object's version.
        version: u64,
        /// The object's value.
        value: Vec<u8>,
    },
    /// A get or removal found no object.
    Missing,
    /// A put is done.
    Stored {
        /// The new version.
        version: u64,
    },
    /// An increment is done.
    Summed {
        /// The new value.
        sum: i64,
        /// The new version.
        version: u64,
    },
    /// A removal is done.
    Removed {
        /// The version that was removed.
        version: u64,
    },
    /// The condition does not hold.
    Conflict {
        /// The object's version; `None` when there is none.
        current: Option<u64>,
    },
    /// An increment found no number, or the sum overflows.
    NotANumber,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, condition) = match self {
            Self::Get => return write!(f, "get"),
            Self::Increment { delta } => return write!(f, "increment by {delta}"),
            Self::Put { content, condition, ttl: None } => (format!("put of {content}"), condition),
            Self::Put { content, condition, ttl: Some(ttl) } => {
                (format!("put of {content} for {} ms", ttl.millis()), condition)
            }
            Self::Remove { condition } => ("removal".to_owned(), condition),
        };
        match condition {
            Condition::None => write!(f, "{what}"),
            Condition::Absent => write!(f, "{what} if absent"),
            Condition::Exists => write!(f, "{what} if it exists"),
            Condition::Version(version) => write!(f, "{what} if version {version}"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { version, value } => write!(f, "version {version}, {} bytes", value.len()),
            Self::Missing => write!(f, "no such object"),
            Self::Stored { version } => write!(f, "version {version}"),
            Self::Summed { sum, version } => write!(f, "the sum {sum}, version {version}"),
            Self::Removed { version } => write!(f, "the removal of version {version}"),
            Self::Conflict { current: Some(version) } => {
                write!(f, "a conflict with version {version}")
            }
            Self::Conflict { current: None } => write!(f, "a conflict, as there is no such object"),
            Self::NotANumber => write!(f, "a refusal: no number there, or the sum overflows"),
        }
    }
}
