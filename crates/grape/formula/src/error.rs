//! What is wrong with a kernel's text, and where.

use crate::limits::{
    MAX_FIELDS, MAX_FLOPS, MAX_NAME, MAX_NESTING, MAX_NODES, MAX_STATEMENTS, MAX_TEXT,
};
use crate::span::Span;
use std::fmt;
use thiserror::Error;

/// Characters of a line that are shown, at most: of a longer one, those around the place.
const SHOWN: usize = 100;

/// What is wrong with a kernel's text. Displayed, it shows the line with a mark below the place.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub struct SyntaxError {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// What is wrong there.
    pub problem: Problem,
    shown: Box<str>,
    mark: Box<str>,
}

/// What can be wrong with a kernel's text.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[expect(missing_docs, reason = "fields are what the messages say of them")]
pub enum Problem {
    /// Too much text.
    #[error("the kernel has {len} bytes, {MAX_TEXT} are the limit")]
    TextLength { len: usize },
    /// A character that means nothing.
    #[error("{character:?} means nothing here")]
    Character { character: char },
    /// Something that begins as a number and goes on otherwise.
    #[error("expected a number such as 2, 0.5 or 1e-4")]
    Number,
    /// A number that its type does not reach.
    #[error("this number is beyond {of}; infinity is written `inf`")]
    Beyond { of: &'static str },
    /// Something else than what must be here.
    #[error("expected {expected}, found {found}")]
    Expected { expected: String, found: String },
    /// A parenthesis without its other half.
    #[error("expected `)` for the `(` of line {line}, column {column}, found {found}")]
    Unclosed { line: usize, column: usize, found: String },
    /// Expressions in expressions.
    #[error("expressions are nested deeper than {MAX_NESTING}: give a part of it a name")]
    Nesting,
    /// Too many statements.
    #[error("more than {MAX_STATEMENTS} statements")]
    Statements,
    /// Too many variables.
    #[error("more than {MAX_FIELDS} names in {keyword}")]
    Fields { keyword: &'static str },
    /// Too many values.
    #[error("more than {MAX_NODES} values are computed up to here")]
    Values,
    /// A long name.
    #[error("a name of more than {MAX_NAME} characters")]
    NameLength,
    /// A word of the language as a name.
    #[error("`{name}` is a word of the language, in any case of letters: take another name")]
    Reserved { name: String },
    /// A name that is there already.
    #[error("`{name}` is there already, of line {line}, column {column}: each name is given once")]
    Twice { name: String, line: usize, column: usize },
    /// A name that nothing has.
    #[error("`{name}` is not known{}", hint(.nearest.as_ref()))]
    Unknown { name: String, nearest: Option<String> },
    /// A function that there is not.
    #[error("there is no function `{name}`{}", hint(.nearest.as_ref()))]
    UnknownFunction { name: String, nearest: Option<String> },
    /// A function without its arguments.
    #[error("`{name}` is a function: expected `(` after it, found {found}")]
    Bare { name: &'static str, found: String },
    /// A declaration behind a statement.
    #[error("{keyword} comes before the first statement")]
    Late { keyword: &'static str },
    /// A result within an expression.
    #[error("`{name}` is a result, known when all j are through: its value cannot be used here")]
    ResultUsed { name: String },
    /// An assignment to what is given.
    #[error("`{name}` is given ({keyword}) and cannot be assigned")]
    Given { name: String, keyword: &'static str },
    /// A result assigned, not reduced.
    #[error(
        "`{name}` is a result: expected `+=`, `-=`, `max=`, `min=`, `and=`, `or=`, `argmin=` or `argmax=`"
    )]
    Assigned { name: String },
    /// Something reduced that is not a result.
    #[error("`{name}` is not a result: only names of VARF are reduced; expected `=`")]
    NoResult { name: String },
    /// Two reductions of one result.
    #[error(
        "`{name}` is reduced by `{first}` in line {line}, here by `{second}`: a result has one reduction"
    )]
    Mixed { name: String, first: &'static str, second: &'static str, line: usize },
    /// A second place of the least.
    #[error("`{name}` has its `{reduction}` in line {line} already: a result has one of these")]
    Again { name: String, reduction: &'static str, line: usize },
    /// A result without statements.
    #[error(
        "nothing contributes to the result `{name}`: expected a statement such as `{name} += ...`"
    )]
    Never { name: String },
    /// No result.
    #[error("the kernel has no result: expected `VARF` with a name")]
    NoResults,
    /// A number where there should be a comparison, or the other way.
    #[error("expected {expected}, found {found}")]
    Kind { expected: &'static str, found: &'static str },
    /// A wide value for a narrow result.
    #[error(
        "`{name}` is f32 and this is f64: expected `f32(...)` around it, or `VARF {name}: f64`"
    )]
    Narrow { name: String },
    /// A type for a result that has no such.
    #[error(
        "`{name}` was declared {of}, and `{reduction}` gives {gives}: expected a VARF without a type"
    )]
    Typeless { name: String, of: &'static str, reduction: &'static str, gives: &'static str },
    /// One comparison after the other.
    #[error("comparisons do not chain: expected `a < b and b < c`")]
    Chain,
    /// Too few or too many arguments.
    #[error("`{function}` takes {takes}, found {found}")]
    Arguments { function: &'static str, takes: &'static str, found: usize },
    /// An accuracy that is none.
    #[error("expected a relative error between 0 and 1, such as 1e-4, as a number")]
    Tolerance,
    /// A count of operations that is none.
    #[error("expected a whole number from 1 to {MAX_FLOPS}")]
    Flops,
}

/// What is wrong with the text at a place of it, before anybody asks which line that is.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) span: Span,
    pub(crate) problem: Problem,
}

impl Fault {
    pub(crate) fn new(span: Span, problem: Problem) -> Self {
        Self { span, problem }
    }

    /// With the line it is in.
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

/// Line and column of a byte, both from 1.
pub(crate) fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at];
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
    (line, column)
}

fn hint(name: Option<&String>) -> String {
    name.map_or_else(String::new, |name| format!("; the nearest that is: `{name}`"))
}

/// The candidate that differs least from a name, if it differs in no more than a third of it (or
/// one letter).
pub(crate) fn closest<'c>(name: &str, candidates: impl Iterator<Item = &'c str>) -> Option<String> {
    let limit = (name.len() / 3).max(1);
    let near = candidates
        .map(|other| (distance(name, other, limit), other))
        .filter(|(far, _)| *far <= limit);
    near.min().map(|(_, other)| other.to_owned())
}

/// Letters to insert, drop or change, at least; case does not count. More than `limit` of lengths
/// that differ by more.
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
