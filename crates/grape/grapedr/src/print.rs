//! Prints instructions as text that the assembler reads back unchanged.

use crate::instruction::{Code, Condition, Instruction, Listing, Operation, Place, Source, Target};
use crate::word::{Width, Word};
use std::fmt;

/// The names of all operations.
pub(crate) const CODES: &[(&str, Code)] = &[
    ("fadds", Code::Add(Width::Short)),
    ("faddl", Code::Add(Width::Long)),
    ("fsubs", Code::Sub(Width::Short)),
    ("fsubl", Code::Sub(Width::Long)),
    ("flt", Code::Less),
    ("fle", Code::LessEqual),
    ("feq", Code::Equal),
    ("fne", Code::NotEqual),
    ("fmuls", Code::Mul(Width::Short)),
    ("fmull", Code::Mul(Width::Long)),
    ("iadd", Code::IntegerAdd),
    ("isub", Code::IntegerSub),
    ("and", Code::And),
    ("or", Code::Or),
    ("xor", Code::Xor),
    ("shl", Code::ShiftLeft),
    ("shr", Code::ShiftRight),
    ("pass", Code::Pass),
];

/// The name of an instruction without operations.
pub(crate) const NOTHING: &str = "nop";

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "stride {}", self.stride)?;
        self.instructions(f)
    }
}

impl Listing {
    /// Prints the instructions that run once, and the instructions that run for each j.
    pub(crate) fn instructions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "init")?;
        self.init.iter().try_for_each(|instruction| writeln!(f, "  {instruction}"))?;
        writeln!(f, "loop")?;
        self.body.iter().try_for_each(|instruction| writeln!(f, "  {instruction}"))
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.operations().is_empty() {
            return f.write_str(NOTHING);
        }
        for (at, operation) in self.operations().iter().enumerate() {
            write!(f, "{}{operation}", if at == 0 { "" } else { " ; " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        self.sources.iter().try_for_each(|source| write!(f, " {source}"))?;
        write!(f, " ->")?;
        self.targets.iter().try_for_each(|target| write!(f, " {target}"))?;
        self.condition.map_or(Ok(()), |condition| write!(f, " {condition}"))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = CODES.iter().find(|(_, code)| code == self);
        f.write_str(known.expect("the table has all codes").0)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}$m{}", if self.set { "" } else { "!" }, self.mask)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(place) => write!(f, "$r{place}"),
            Self::Auxiliary => f.write_str("$t"),
            Self::Local(place) => write!(f, "$lm{place}"),
            Self::Broadcast(place) => write!(f, "$bm{place}"),
            Self::Immediate(word) => write!(f, "{word}"),
            Self::ElementId => f.write_str("$pe"),
            Self::BlockId => f.write_str("$bb"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(place) => write!(f, "$r{place}"),
            Self::Auxiliary => f.write_str("$t"),
            Self::Local(place) => write!(f, "$lm{place}"),
            Self::Mask(mask) => write!(f, "$m{mask}"),
            Self::Broadcast { place, element } => write!(f, "$bm{place}.pe{element}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.at, if self.vector { "v" } else { "" })
    }
}

/// Prints the word as a number if a number represents it exactly, otherwise as bits.
impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.to_f64();
        if Self::from_f64(number) == *self {
            write!(f, "{number:?}")
        } else {
            write!(f, "{:#x}", self.bits())
        }
    }
}
