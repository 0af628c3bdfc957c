//! The names of a kernel.

use crate::error::{Fault, Problem, closest, place};
use crate::operand::Operand;
use crate::span::Span;
use std::collections::HashMap;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NameKind {
    I(u8),
    J(u8),
    Constant(u8),
    Result(usize),
    Local(Operand),
}

impl NameKind {
    /// Returns the keyword that declares a name of this kind.
    pub(crate) fn keyword(self) -> &'static str {
        match self {
            Self::I(_) => "VARI",
            Self::J(_) => "VARJ",
            Self::Constant(_) => "CONST",
            Self::Result(_) => "VARF",
            Self::Local(_) => "a statement",
        }
    }
}

struct Entry {
    kind: NameKind,
    at: usize,
    used: bool,
}

/// All names so far.
pub(crate) struct Names<'t> {
    text: &'t str,
    known: HashMap<&'t str, Entry>,
}

impl<'t> Names<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, known: HashMap::new() }
    }

    /// Adds a new name.
    pub(crate) fn add(&mut self, name: &'t str, span: Span, kind: NameKind) -> Result<(), Fault> {
        if let Some(entry) = self.known.get(name) {
            let (line, column) = place(self.text, entry.at);
            return Err(Fault::new(span, Problem::Twice { name: name.to_owned(), line, column }));
        }
        self.known.insert(name, Entry { kind, at: span.start, used: false });
        Ok(())
    }

    /// Returns the kind of a name that an expression reads, and marks the name as used. The name of
    /// a result is an error, since expressions cannot read results.
    pub(crate) fn used(&mut self, name: &str) -> Result<NameKind, Problem> {
        let Some(entry) = self.known.get_mut(name) else { return Err(self.unknown(name)) };
        entry.used = true;
        match entry.kind {
            NameKind::Result(_) => Err(Problem::ResultUsed { name: name.to_owned() }),
            kind => Ok(kind),
        }
    }

    /// Looks up a name.
    pub(crate) fn kind(&self, name: &str) -> Option<NameKind> {
        self.known.get(name).map(|entry| entry.kind)
    }

    /// Returns the index of a result.
    pub(crate) fn result(&self, name: &str) -> Option<usize> {
        match self.kind(name) {
            Some(NameKind::Result(place)) => Some(place),
            _ => None,
        }
    }

    /// Returns the error of an unknown name, with the most similar known name.
    pub(crate) fn unknown(&self, name: &str) -> Problem {
        Problem::Unknown {
            name: name.to_owned(),
            nearest: closest(name, self.known.keys().copied()),
        }
    }

    /// Returns the unused names and their positions. Results count as used.
    pub(crate) fn unused(&self) -> impl Iterator<Item = (&'t str, usize)> {
        let unused = self
            .known
            .iter()
            .filter(|(_, entry)| !entry.used && !matches!(entry.kind, NameKind::Result(_)));
        let mut unused: Vec<_> = unused.map(|(name, entry)| (*name, entry.at)).collect();
        unused.sort_unstable_by_key(|(_, at)| *at);
        unused.into_iter()
    }
}
