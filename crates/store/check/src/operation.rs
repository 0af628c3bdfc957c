//! Operations and their answers.

use super::content::Content;
use sprat_client::Condition;
use std::fmt;

/// The key of a number.
#[must_use]
pub fn key_name(key: usize) -> String {
    format!("key-{key:04}")
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// The value and its version.
    Get,
    /// To store.
    Put {
        /// What.
        content: Content,
        /// If.
        condition: Condition,
    },
    /// To remove.
    Remove {
        /// If.
        condition: Condition,
    },
    /// To add to a 64-bit integer.
    Increment {
        /// How much.
        delta: i64,
    },
}

/// One operation on one object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operation {
    /// Its place in the sequence, from 1.
    pub number: u64,
    /// Number of its key.
    pub key: usize,
    /// What is asked.
    pub action: Action,
}

/// An answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// To a get.
    Found {
        /// The object's version.
        version: u64,
        /// Its value.
        value: Vec<u8>,
    },
    /// To a get or removal: there is no such object.
    Missing,
    /// To a put.
    Stored {
        /// The version now.
        version: u64,
    },
    /// To an increment.
    Summed {
        /// The value now.
        sum: i64,
        /// The version now.
        version: u64,
    },
    /// To a removal.
    Removed {
        /// The version that was removed.
        version: u64,
    },
    /// The condition does not hold.
    Conflict {
        /// The object's version; `None` when there is none.
        current: Option<u64>,
    },
    /// To an increment: there is no number, or the sum overflows.
    NotANumber,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, condition) = match self {
            Self::Get => return write!(f, "get"),
            Self::Increment { delta } => return write!(f, "increment by {delta}"),
            Self::Put { content, condition } => (format!("put of {content}"), condition),
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
