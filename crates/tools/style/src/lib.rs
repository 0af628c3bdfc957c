//! The repository's rules, as checks over its sources.
//!
//! Each check takes texts and returns [`Finding`]s: what breaks a rule, where, and how to correct
//! it. The `house` test runs the checks over this workspace. The other tests show that each check
//! can fail.

pub mod banned;
pub mod documented;
pub mod layers;
pub mod length;
pub mod mentions;
pub mod names;
pub mod offered;
pub mod source;
pub mod tree;
pub mod unsafety;
pub mod width;

use std::fmt;

/// A violation of a rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// Path from the root of the repository.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// The text that was found, and the rule that it breaks.
    pub problem: String,
    /// How to correct the text.
    pub remedy: String,
}

impl Finding {
    /// Creates a finding in `file`, at `line`.
    pub fn new(
        file: &str,
        line: usize,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { file: file.to_owned(), line, problem: problem.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    mend: {}", self.file, self.line, self.problem, self.remedy)
    }
}
