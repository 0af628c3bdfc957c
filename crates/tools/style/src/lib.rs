//! The rules of the house, as checks over the sources.
//!
//! Each check takes texts and gives [`Finding`]s: what breaks a rule, where, and how it is mended.
//! The `house` test runs them over this workspace; the others show that each of them can fail.

pub mod banned;
pub mod documented;
pub mod layers;
pub mod length;
pub mod mentions;
pub mod offered;
pub mod source;
pub mod tree;
pub mod unsafety;

use std::fmt;

/// A place that breaks a rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// Path from the root of the repository.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What is there, and the rule it breaks.
    pub what: String,
    /// What to do about it.
    pub mend: String,
}

impl Finding {
    /// A finding in `file`, at `line`.
    pub fn new(file: &str, line: usize, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into(), mend: mend.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    mend: {}", self.file, self.line, self.what, self.mend)
    }
}
