//! The assembler. It reads a listing, which has one instruction on each line. The listing of a
//! kernel has declarations before its instructions, which `declare` reads.
//!
//! ```text
//! stride 4                # words of broadcast memory for each j
//! init                    # once
//!   pass 0 -> $lm16v
//! loop                    # for each j
//!   fsubs $bm0 $lm0v -> $r0v $t ; fmuls $t $t -> $r4v @$m0
//! ```

use crate::declare::{Declared, fits, keeps_within};
use crate::instruction::{Condition, Instruction, Listing, Operation, Place, Source, Target};
use crate::ports::PortError;
use crate::print::{CODES, NOTHING};
use crate::word::{LONG_BITS, Word};
use thiserror::Error;

/// Limit on the instructions of a listing. A longer listing is rejected.
pub const MAX_INSTRUCTIONS: usize = 1 << 16;

/// An error in a listing and its position. Lines and columns count from 1.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
#[error("line {line}, column {column}: {problem}")]
pub struct AssembleError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, in bytes, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: AssembleProblem,
}

/// The kinds of errors in a listing.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum AssembleProblem {
    /// The text does not continue in the way that the syntax requires.
    #[error("{found:?} where {expected} was expected")]
    Expected {
        /// The word at this position; empty at the end of a line.
        found: String,
        /// A description of what is allowed here.
        expected: &'static str,
    },
    /// The machine cannot execute this instruction.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A declaration has an invalid name, type or limit.
    #[error("this cannot be declared: {0}")]
    Declared(String),
    /// An instruction of the loop accesses broadcast memory beyond the words of its j. Contains the
    /// number of these words.
    #[error("broadcast memory beyond the {0} words of a j that `stride` sets")]
    Beyond(u16),
    /// There is a second `stride`, or a `stride` after `init` or `loop`.
    #[error("`stride` must come once, before `init` and `loop`")]
    Stride,
    /// The listing has too many instructions.
    #[error("more than {MAX_INSTRUCTIONS} instructions")]
    TooLong,
}

/// Reads a listing without declarations.
///
/// # Errors
/// [`AssembleError`] describes the first error in the text.
pub fn assemble(text: &str) -> Result<Listing, AssembleError> {
    read(text, None)
}

/// Reads a listing. If `declared` is given, the listing is that of a kernel, and its declarations
/// are added to `declared`.
pub(crate) fn read(
    text: &str,
    mut declared: Option<&mut Declared>,
) -> Result<Listing, AssembleError> {
    let mut listing = Listing::default();
    let mut section = None;
    let mut has_stride = false;
    let mut count = 0;
    for (at, whole) in text.lines().enumerate() {
        let line = at + 1;
        let mut words = Words::of(whole);
        let error = |column, problem| AssembleError { line, column, problem };
        match words.peek() {
            "" => continue,
            "stride" => {
                if has_stride || section.is_some() {
                    return Err(error(words.column(), AssembleProblem::Stride));
                }
                has_stride = true;
                words.next();
                let column = words.column();
                let expected = match declared {
                    Some(_) => "how many words a j has, 512 at most,",
                    None => "how many words a j has",
                };
                let stride =
                    number(words.next()).filter(|stride| declared.is_none() || fits(*stride));
                listing.stride = stride.ok_or_else(|| error(column, words.expected(expected)))?;
            }
            "init" | "loop" => section = Some(words.next() == "loop"),
            word if declared.is_some() && section.is_none() && Declared::takes(word) => {
                let Some(declared) = declared.as_deref_mut() else { unreachable!("just seen") };
                let done = declared.read(line, listing.stride, &mut words);
                done.map_err(|problem| error(words.at_fault(), problem))?;
            }
            _ => {
                let start = words.column();
                let instructions = match section {
                    Some(false) => &mut listing.init,
                    Some(true) => &mut listing.body,
                    None => return Err(error(start, words.missing("`stride`, `init` or `loop`"))),
                };
                count += 1;
                if count > MAX_INSTRUCTIONS {
                    return Err(error(start, AssembleProblem::TooLong));
                }
                let operations =
                    operations(&mut words).map_err(|problem| error(words.at_fault(), problem))?;
                let instruction =
                    Instruction::new(operations).map_err(|port| error(start, port.into()))?;
                if declared.is_some()
                    && section == Some(true)
                    && !keeps_within(&instruction, listing.stride)
                {
                    return Err(error(start, AssembleProblem::Beyond(listing.stride)));
                }
                instructions.push(instruction);
            }
        }
        if !words.peek().is_empty() {
            return Err(error(words.column(), words.missing("the end of the line")));
        }
    }
    Ok(listing)
}

fn operations(words: &mut Words<'_>) -> Result<Vec<Operation>, AssembleProblem> {
    if words.peek() == NOTHING {
        words.next();
        return Ok(Vec::new());
    }
    let mut operations = vec![operation(words)?];
    while words.peek() == ";" {
        words.next();
        operations.push(operation(words)?);
    }
    Ok(operations)
}

fn operation(words: &mut Words<'_>) -> Result<Operation, AssembleProblem> {
    let name = words.next();
    let known = CODES.iter().find(|(known, _)| *known == name);
    let code = known.ok_or_else(|| words.expected("an operation, such as `fadds`"))?.1;
    let sources = (0..code.operands()).map(|_| source(words)).collect::<Result<_, _>>()?;
    if words.next() != "->" {
        return Err(words.expected("`->`"));
    }
    let mut targets = vec![target(words)?];
    while words.peek().starts_with('$') {
        targets.push(target(words)?);
    }
    let condition = if words.peek().starts_with('@') { Some(condition(words)?) } else { None };
    Ok(Operation { code, sources, targets, condition })
}

fn source(words: &mut Words<'_>) -> Result<Source, AssembleProblem> {
    let word = words.next();
    let source = match word {
        "$t" => Some(Source::Auxiliary),
        "$pe" => Some(Source::ElementId),
        "$bb" => Some(Source::BlockId),
        _ => None
            .or_else(|| Some(Source::Local(place(word.strip_prefix("$lm")?)?)))
            .or_else(|| Some(Source::Broadcast(place(word.strip_prefix("$bm")?)?)))
            .or_else(|| Some(Source::Register(place(word.strip_prefix("$r")?)?)))
            .or_else(|| immediate(word).map(Source::Immediate)),
    };
    source.ok_or_else(|| {
        words.expected("an operand: `$r0`, `$r0v`, `$t`, `$lm0v`, `$bm0`, `$pe`, `$bb` or a number")
    })
}

fn target(words: &mut Words<'_>) -> Result<Target, AssembleProblem> {
    let word = words.next();
    let broadcast = || {
        let (at, element) = word.strip_prefix("$bm")?.split_once(".pe")?;
        Some(Target::Broadcast { place: place(at)?, element: number(element)? })
    };
    let target = match word {
        "$t" => Some(Target::Auxiliary),
        _ => broadcast()
            .or_else(|| Some(Target::Local(place(word.strip_prefix("$lm")?)?)))
            .or_else(|| Some(Target::Mask(number(word.strip_prefix("$m")?)?)))
            .or_else(|| Some(Target::Register(place(word.strip_prefix("$r")?)?))),
    };
    target.ok_or_else(|| words.expected("a target: `$r0v`, `$t`, `$lm0v`, `$m0` or `$bm0.pe0`"))
}

fn condition(words: &mut Words<'_>) -> Result<Condition, AssembleProblem> {
    let word = words.next();
    let (set, rest) =
        word.strip_prefix("@!").map_or((true, word.strip_prefix('@')), |rest| (false, Some(rest)));
    let mask = rest.and_then(|rest| number(rest.strip_prefix("$m")?));
    mask.map(|mask| Condition { mask, set })
        .ok_or_else(|| words.expected("a condition: `@$m0` or `@!$m0`"))
}

pub(crate) fn place(text: &str) -> Option<Place> {
    match text.strip_suffix('v') {
        Some(at) => number(at).map(Place::four),
        None => number(text).map(Place::one),
    }
}

/// Parses a number, which must consist of digits only.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Parses a bit pattern, which is `0x` and hexadecimal digits, or a decimal number.
fn immediate(word: &str) -> Option<Word> {
    match word.strip_prefix("0x") {
        Some(bits) => u128::from_str_radix(bits, 16)
            .ok()
            .filter(|bits| bits >> LONG_BITS == 0)
            .map(Word::from_bits),
        None => word.parse().ok().map(Word::from_f64),
    }
}

/// The words of a line, up to its comment.
pub(crate) struct Words<'a> {
    line: &'a str,
    /// The offset of the next word.
    at: usize,
    /// The start and the end of the last word that was taken.
    last: (usize, usize),
}

impl<'a> Words<'a> {
    pub(crate) fn of(line: &'a str) -> Self {
        let line = line.split('#').next().unwrap_or("");
        let mut words = Self { line, at: 0, last: (0, 0) };
        words.skip();
        words
    }

    pub(crate) fn peek(&self) -> &'a str {
        let rest = &self.line[self.at..];
        match rest.find(|letter: char| letter.is_whitespace() || letter == ';') {
            Some(0) if rest.starts_with(';') => ";",
            Some(end) => &rest[..end],
            None => rest,
        }
    }

    pub(crate) fn next(&mut self) -> &'a str {
        let word = self.peek();
        self.last = (self.at, self.at + word.len());
        self.at = self.last.1;
        self.skip();
        word
    }

    fn skip(&mut self) {
        self.at = self.line.len() - self.line[self.at..].trim_start().len();
    }

    fn column(&self) -> usize {
        self.at + 1
    }

    /// Returns the column of the last word that was taken.
    fn at_fault(&self) -> usize {
        self.last.0 + 1
    }

    pub(crate) fn expected(&self, expected: &'static str) -> AssembleProblem {
        AssembleProblem::Expected {
            found: self.line[self.last.0..self.last.1].to_owned(),
            expected,
        }
    }

    fn missing(&self, expected: &'static str) -> AssembleProblem {
        AssembleProblem::Expected { found: self.peek().to_owned(), expected }
    }
}
