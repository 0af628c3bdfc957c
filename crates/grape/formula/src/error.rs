//! Errors in a kernel's text, with their position.

use crate::limits::{
    MAX_FIELDS, MAX_FLOPS, MAX_NAME, MAX_NESTING, MAX_NODES, MAX_STATEMENTS, MAX_TEXT,
};
use crate::span::Span;
use std::fmt;
use thiserror::Error;

/// Limit on the characters of a line that are shown. If the error is further right, the part around
/// the error is shown.
const SHOWN: usize = 100;

/// An error in a kernel's text. Displayed, it shows the line with a mark below the error.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub struct SyntaxError {
    /// Number of the line, counted from 1.
    pub line: usize,
    /// Position of the error in the line, in characters, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: Problem,
    shown: Box<str>,
    mark: Box<str>,
}

/// The errors that a kernel's text can have.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[expect(missing_docs, reason = "fields are what the messages say of them")]
pub enum Problem {
    /// The text is too long.
    #[error("the kernel has {len} bytes, {MAX_TEXT} are the limit")]
    TextLength { len: usize },
    /// A character that the language does not have.
    #[error("unexpected {character:?}")]
    Character { character: char },
    /// A malformed number.
    #[error("expected a number such as 2, 0.5 or 1e-4")]
    Number,
    /// A number that exceeds its type.
    #[error("this number is beyond {of}; infinity is written `inf`")]
    Beyond { of: &'static str },
    /// Something else was expected.
    #[error("expected {expected}, found {found}")]
    Expected { expected: String, found: String },
    /// A parenthesis is not closed.
    #[error("expected `)` for the `(` of line {line}, column {column}, found {found}")]
    Unclosed { line: usize, column: usize, found: String },
    /// Expressions are nested too deeply.
    #[error("expressions are nested deeper than {MAX_NESTING}: give a part of it a name")]
    Nesting,
    /// There are too many statements.
    #[error("more than {MAX_STATEMENTS} statements")]
    Statements,
    /// There are too many variables.
    #[error("more than {MAX_FIELDS} names in {keyword}")]
    Fields { keyword: &'static str },
    /// There are too many values.
    #[error("more than {MAX_NODES} values are computed up to here")]
    Values,
    /// A name is too long.
    #[error("a name of more than {MAX_NAME} characters")]
    NameLength,
    /// A reserved word is used as a name.
    #[error("`{name}` is a word of the language, in any case of letters: take another name")]
    Reserved { name: String },
    /// A name is declared twice.
    #[error("`{name}` is already defined in line {line}, column {column}: take another name")]
    Twice { name: String, line: usize, column: usize },
    /// A name is unknown.
    #[error("`{name}` is not known{}", hint(.nearest.as_ref()))]
    Unknown { name: String, nearest: Option<String> },
    /// A function is unknown.
    #[error("there is no function `{name}`{}", hint(.nearest.as_ref()))]
    UnknownFunction { name: String, nearest: Option<String> },
    /// A function is used without arguments.
    #[error("`{name}` is a function: expected `(` after it, found {found}")]
    Bare { name: &'static str, found: String },
    /// A declaration follows a statement.
    #[error("{keyword} must come before the first statement")]
    Late { keyword: &'static str },
    /// A result is used in an expression.
    #[error("`{name}` is a result, known only after all j: its value cannot be used here")]
    ResultUsed { name: String },
    /// A variable or constant is assigned.
    #[error("`{name}` is given ({keyword}) and cannot be assigned")]
    Given { name: String, keyword: &'static str },
    /// A result is assigned instead of reduced.
    #[error(
        "`{name}` is a result: expected `+=`, `-=`, `max=`, `min=`, `and=`, `or=`, `argmin=` or \
         `argmax=`"
    )]
    Assigned { name: String },
    /// A reduction is stated for a name that is no result.
    #[error("`{name}` is not a result: only names of VARF are reduced; expected `=`")]
    NoResult { name: String },
    /// A result has two different reductions.
    #[error(
        "`{name}` is reduced by `{first}` in line {line}, here by `{second}`: a result has one \
         reduction"
    )]
    Mixed { name: String, first: &'static str, second: &'static str, line: usize },
    /// A result has a second `argmin` or `argmax`.
    #[error("`{name}` has its `{reduction}` in line {line} already: a result has one of these")]
    Again { name: String, reduction: &'static str, line: usize },
    /// A result has no statement.
    #[error(
        "nothing contributes to the result `{name}`: expected a statement such as `{name} += ...`"
    )]
    Never { name: String },
    /// The kernel has no result.
    #[error("the kernel has no result: expected `VARF` with a name")]
    NoResults,
    /// A number where a comparison is expected, or a comparison where a number is expected.
    #[error("expected {expected}, found {found}")]
    Kind { expected: &'static str, found: &'static str },
    /// An f64 value is assigned to an f32 result.
    #[error(
        "`{name}` is f32 and this is f64: expected `f32(...)` around it, or `VARF {name}: f64`"
    )]
    Narrow { name: String },
    /// A type is declared for a result whose reduction determines the type.
    #[error(
        "`{name}` was declared {of}, and `{reduction}` gives {gives}: expected a VARF without a \
         type"
    )]
    Typeless { name: String, of: &'static str, reduction: &'static str, gives: &'static str },
    /// Comparisons are chained.
    #[error("comparisons do not chain: expected `a < b and b < c`")]
    Chain,
    /// A function has the wrong number of arguments.
    #[error("`{function}` takes {takes}, found {found}")]
    Arguments { function: &'static str, takes: &'static str, found: usize },
    /// An accuracy is no number between 0 and 1.
    #[error("expected a relative error between 0 and 1, such as 1e-4, as a number")]
    Tolerance,
    /// A count of operations is invalid.
    #[error("expected a whole number from 1 to {MAX_FLOPS}")]
    Flops,
}

/// An error at a span of the text, before its line is determined.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) span: Span,
    pub(crate) problem: Problem,
}

impl Fault {
    pub(crate) fn new(span: Span, problem: Problem) -> Self {
        Self { span, problem }
    }

    /// Determines the line.
    pub(crate) fn shown(self, text: &str) -> SyntaxError {
        let (line, column) = place(text, self.span.start);
        let before = &text[..self.span.start];
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let whole = text[start..].lines().next().unwrap_or("");
        let marked =
            text[self.span.start..self.span.end].chars().take_while(|&c| c != '\n').count().max(1);
        let skipped = if column > SHOWN { column - SHOWN / 2 } else { 0 };
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let shown: String = whole.chars().skip(skipped).take(SHOWN).map(clean).collect();
        let indent = column - 1 - skipped;
        let mark = " ".repeat(indent) + &"^".repeat(marked.min((SHOWN - indent.min(SHOWN)).max(1)));
        SyntaxError { line, column, problem: self.problem, shown: shown.into(), mark: mark.into() }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, problem, shown, mark } = self;
        writeln!(f, "line {line}, column {column}: {problem}")?;
        writeln!(f, "{line:>5} | {shown}")?;
        write!(f, "      | {mark}")
    }
}

/// Returns the line and column of a byte, both from 1.
pub(crate) fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at];
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
    (line, column)
}

fn hint(name: Option<&String>) -> String {
    name.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// Returns the candidate most similar to a name. `None` if it differs in more letters than a third
/// of the name's (in more than one letter, for a short name).
pub(crate) fn closest<'c>(name: &str, candidates: impl Iterator<Item = &'c str>) -> Option<String> {
    let limit = (name.len() / 3).max(1);
    let near = candidates
        .map(|other| (distance(name, other, limit), other))
        .filter(|(far, _)| *far <= limit);
    near.min().map(|(_, other)| other.to_owned())
}

/// Returns the edit distance of two names, ignoring case. If their lengths differ by more than
/// `limit`, returns `limit + 1` instead.
fn distance(a: &str, b: &str, limit: usize) -> usize {
    if a.len().abs_diff(b.len()) > limit {
        return limit + 1;
    }
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, letter) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, other) in b.iter().enumerate() {
            let changed = diagonal + usize::from(!letter.eq_ignore_ascii_case(other));
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
