//! Failures, counted by kind, each with one example.

use serde::Serialize;

/// Most kinds that are told apart; those beyond are counted together.
pub const MAX_KINDS: usize = 16;

/// Longest example, bytes; the rest is cut.
pub const MAX_EXAMPLE: usize = 300;

/// Failures of a kind.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Kind {
    /// What they are.
    pub kind: String,
    /// How many.
    pub count: u64,
    /// What was said of the first.
    pub example: String,
}

/// Failures by kind.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Failures {
    /// Kinds, in the order in which they first came.
    pub kinds: Vec<Kind>,
    /// Failures of kinds beyond [`MAX_KINDS`].
    pub others: u64,
}

impl Failures {
    /// Counts `count` failures, of which `text` is said.
    pub fn count(&mut self, kind: &str, count: u64, text: &str) {
        if count == 0 {
            return;
        }
        if let Some(known) = self.kinds.iter_mut().find(|known| known.kind == kind) {
            known.count += count;
        } else if self.kinds.len() < MAX_KINDS {
            let mut end = text.len().min(MAX_EXAMPLE);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            self.kinds.push(Kind { kind: kind.to_owned(), count, example: text[..end].to_owned() });
        } else {
            self.others += count;
        }
    }

    /// How many there are.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.others + self.kinds.iter().map(|kind| kind.count).sum::<u64>()
    }
}
