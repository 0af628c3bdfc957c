//! The declarations of a kernel in a listing. They say where its variables, constants and results
//! are, so that a host can run the kernel.
//!
//! ```text
//! i xi f32 $lm0v                  # four words of local memory
//! j xj f32 $bm0                   # a word of each j
//! constant eps2 f32 $lm28 = 1e-4
//! result ax sum f32 $lm12v
//! result near argmin f32 $lm16v $lm20v
//! index $bm1                      # the number of each j, which argmin and argmax need
//! ```

use crate::assemble::{AssembleError, AssembleProblem, Words, place, read};
use crate::compile::{HALF, Kernel, Places};
use crate::instruction::{Instruction, LOCAL_WORDS, Place, Source, Target};
use sprat_formula::{Field, Precision, Reduction, Type};
use std::fmt;

/// The first word of a kernel's listing. A kernel's text never begins with it.
const FIRST: &str = "stride";

/// The words with which declarations begin.
const KINDS: [&str; 5] = ["i", "j", "constant", "result", "index"];

/// Replaces the address of a variable that nothing uses.
const UNUSED: &str = "unused";

const REDUCTIONS: [(&str, Reduction); 7] = [
    ("sum", Reduction::Sum),
    ("min", Reduction::Min),
    ("max", Reduction::Max),
    ("and", Reduction::And),
    ("or", Reduction::Or),
    ("argmin", Reduction::ArgMin),
    ("argmax", Reduction::ArgMax),
];

/// Returns whether a text is the listing of a kernel, which [`Kernel::assemble`] reads, and not a
/// kernel's text.
#[must_use]
pub fn is_listing(text: &str) -> bool {
    text.lines().map(|line| Words::of(line).peek()).find(|word| !word.is_empty()) == Some(FIRST)
}

impl Kernel {
    /// Reads a kernel from the text that its `Display` prints, or that was written by hand. This is
    /// a listing as [`crate::assemble`] reads it, with declarations that say where the host writes
    /// inputs and reads results. `stride` comes first. An address beyond a memory, or in the loop
    /// beyond the words of its j, is an error. Nothing checks how instructions use the declared
    /// addresses.
    ///
    /// # Errors
    /// [`AssembleError`] describes the first error in the text.
    pub fn assemble(text: &str) -> Result<Self, AssembleError> {
        let mut declared = Declared::default();
        let listing = read(text, Some(&mut declared))?;
        // Names, types and limits are those of a kernel's text, so the declarations are checked as
        // such a text.
        let text = declared.declarations + &declared.statements;
        let found =
            sprat_formula::Kernel::parse(&text, Precision::F64).map_err(|error| AssembleError {
                line: declared
                    .lines
                    .get(error.line - 1)
                    .or(declared.lines.last())
                    .copied()
                    .unwrap_or(1),
                column: 1,
                problem: AssembleProblem::Declared(error.problem.to_string()),
            })?;
        Ok(Self::of_parts(found.program, declared.places, listing))
    }
}

/// Prints the listing with its declarations. [`Kernel::assemble`] reads the same kernel back.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (program, places, listing) = (self.program(), self.places(), self.listing());
        writeln!(f, "{FIRST} {}", listing.stride)?;
        let fields = |f: &mut fmt::Formatter<'_>,
                      kind: &str,
                      memory: &str,
                      all: &[Field],
                      places: &[Option<Place>]| {
            all.iter().zip(places).try_for_each(|(Field { name, of }, place)| {
                writeln!(f, "{kind} {name} {} {}", type_name(*of), At(memory, *place))
            })
        };
        fields(f, "i", "$lm", program.i(), &places.i)?;
        fields(f, "j", "$bm", program.j(), &places.j)?;
        for (constant, place) in program.constants().iter().zip(&places.constants) {
            write!(
                f,
                "constant {} {} {}",
                constant.name,
                type_name(constant.of),
                At("$lm", *place)
            )?;
            match constant.default {
                None => writeln!(f)?,
                Some(number) if number.is_nan() => writeln!(f, " = nan")?,
                Some(number) => writeln!(f, " = {number:?}")?,
            }
        }
        for (result, (place, index)) in program.results().iter().zip(&places.results) {
            let known = REDUCTIONS.iter().find(|(_, reduction)| *reduction == result.reduction);
            let (reduction, of) =
                (known.expect("all are there").0, type_name(program.type_of(result.contribution)));
            write!(f, "result {} {reduction} {of} {}", result.name, At("$lm", Some(*place)))?;
            index.map_or(Ok(()), |index| write!(f, " {}", At("$lm", Some(index))))?;
            writeln!(f)?;
        }
        places.index.map_or(Ok(()), |index| writeln!(f, "index {}", At("$bm", Some(index))))?;
        listing.instructions(f)
    }
}

/// Prints an address in a memory, or `unused` if there is no address.
struct At<'a>(&'a str, Option<Place>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(place) => write!(f, "{}{place}", self.0),
            None => f.write_str(UNUSED),
        }
    }
}

fn type_name(of: Type) -> &'static str {
    match of {
        Type::F32 => "f32",
        Type::F64 => "f64",
        Type::Bool => "bool",
    }
}

/// The declarations that were read so far.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    places: Places,
    /// The declarations as a kernel's text, and statements that give each result its reduction and
    /// type.
    declarations: String,
    statements: String,
    /// For each line of `declarations`, the number of its line in the listing.
    lines: Vec<usize>,
}

impl Declared {
    /// Returns whether a declaration begins with this word.
    pub(crate) fn takes(word: &str) -> bool {
        KINDS.contains(&word)
    }

    /// Reads one declaration. `stride` is the number of words of a j.
    pub(crate) fn read(
        &mut self,
        line: usize,
        stride: u16,
        words: &mut Words<'_>,
    ) -> Result<(), AssembleProblem> {
        let kind = words.next();
        if kind == "index" {
            self.places.index = Some(broadcast(words, stride)?);
            return Ok(());
        }
        let name = words.next();
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') || name.is_empty()
        {
            return Err(words.expected("a name"));
        }
        match kind {
            "i" => {
                self.declare(line, &format!("VARI {name}: {}", number_type(words)?));
                let place = if is_unused(words) { None } else { Some(vector(words)?) };
                self.places.i.push(place);
            }
            "j" => {
                self.declare(line, &format!("VARJ {name}: {}", number_type(words)?));
                let place = if is_unused(words) { None } else { Some(broadcast(words, stride)?) };
                self.places.j.push(place);
            }
            "constant" => {
                let of = number_type(words)?;
                let place = if is_unused(words) { None } else { Some(word(words)?) };
                self.places.constants.push(place);
                let default = if words.peek() == "=" {
                    format!(" = {}", default(words)?)
                } else {
                    String::new()
                };
                self.declare(line, &format!("CONST {name}{default}: {of}"));
            }
            _ => self.result(line, name, words)?,
        }
        Ok(())
    }

    fn result(
        &mut self,
        line: usize,
        name: &str,
        words: &mut Words<'_>,
    ) -> Result<(), AssembleProblem> {
        let word = words.next();
        let known = REDUCTIONS.iter().find(|(known, _)| *known == word);
        let reduction =
            known.ok_or_else(|| words.expected("sum, min, max, and, or, argmin or argmax"))?.1;
        let logic = matches!(reduction, Reduction::And | Reduction::Or);
        let of = if !logic {
            number_type(words)?
        } else if words.next() == "bool" {
            "bool"
        } else {
            return Err(words.expected("bool"));
        };
        let arg = matches!(reduction, Reduction::ArgMin | Reduction::ArgMax);
        let place = (vector(words)?, if arg { Some(vector(words)?) } else { None });
        self.places.results.push(place);
        let (declared, sign) = match reduction {
            Reduction::Sum => (format!(": {of}"), "+".to_owned()),
            Reduction::Min | Reduction::Max => (format!(": {of}"), word.to_owned()),
            _ => (String::new(), word.to_owned()),
        };
        self.declare(line, &format!("VARF {name}{declared}"));
        self.statements += &if logic {
            format!("{name} {sign}= 1 < 2\n")
        } else {
            format!("{name} {sign}= {of}(0)\n")
        };
        Ok(())
    }

    fn declare(&mut self, line: usize, text: &str) {
        self.declarations += text;
        self.declarations.push('\n');
        self.lines.push(line);
    }
}

/// Returns whether a stride is at most half of broadcast memory. The host fills the other half in
/// the meantime.
pub(crate) fn fits(stride: u16) -> bool {
    usize::from(stride) <= HALF
}

/// Returns whether an instruction of the loop accesses only the words of its j.
pub(crate) fn keeps_within(instruction: &Instruction, stride: u16) -> bool {
    instruction.operations().iter().all(|operation| {
        let sources = operation.sources.iter().filter_map(|source| match source {
            Source::Broadcast(place) => Some(*place),
            _ => None,
        });
        let targets = operation.targets.iter().filter_map(|target| match target {
            Target::Broadcast { place, .. } => Some(*place),
            _ => None,
        });
        sources.chain(targets).all(|place| place.end() <= usize::from(stride))
    })
}

fn is_unused(words: &mut Words<'_>) -> bool {
    let unused = words.peek() == UNUSED;
    if unused {
        words.next();
    }
    unused
}

fn number_type<'a>(words: &mut Words<'a>) -> Result<&'a str, AssembleProblem> {
    let of = words.next();
    if of == "f32" || of == "f64" { Ok(of) } else { Err(words.expected("f32 or f64")) }
}

fn default<'a>(words: &mut Words<'a>) -> Result<&'a str, AssembleProblem> {
    words.next();
    let number = words.next();
    if number.parse::<f64>().is_ok() { Ok(number) } else { Err(words.expected("a number")) }
}

fn vector(words: &mut Words<'_>) -> Result<Place, AssembleProblem> {
    let found = words.next().strip_prefix("$lm").and_then(place);
    let found = found.filter(|place| place.vector && place.end() <= LOCAL_WORDS);
    found.ok_or_else(|| words.expected("four words of local memory, `$lm0v` to `$lm252v`"))
}

fn word(words: &mut Words<'_>) -> Result<Place, AssembleProblem> {
    let found = words.next().strip_prefix("$lm").and_then(place);
    let found = found.filter(|place| !place.vector && place.end() <= LOCAL_WORDS);
    found.ok_or_else(|| words.expected("a word of local memory, `$lm0` to `$lm255`"))
}

fn broadcast(words: &mut Words<'_>, stride: u16) -> Result<Place, AssembleProblem> {
    let found = words.next().strip_prefix("$bm").and_then(place);
    let found = found.filter(|place| !place.vector && place.at < stride);
    found.ok_or_else(|| words.expected("a word of each j, `$bm0` to less than the stride"))
}
