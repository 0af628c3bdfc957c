//! Counts failures by kind, and keeps an example of each.

use serde::Serialize;

/// Limit on the kinds of failures that are listed. Failures of other kinds are counted together.
pub const MAX_KINDS: usize = 16;

/// Limit on the text of an example, in bytes. A longer text is cut.
pub const MAX_EXAMPLE: usize = 300;

/// The failures of one kind.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct FailureKind {
    /// The name of the kind.
    pub kind: String,
    /// Number of failures of this kind.
    pub count: u64,
    /// Message of the first failure of this kind.
    pub example: String,
}

/// Failures by kind.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Failures {
    /// Kinds, in the order of their first failure.
    pub kinds: Vec<FailureKind>,
    /// Failures of kinds beyond [`MAX_KINDS`].
    pub others: u64,
}

impl Failures {
    /// Counts `count` failures with this message.
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
            self.kinds.push(FailureKind {
                kind: kind.to_owned(),
                count,
                example: text[..end].to_owned(),
            });
        } else {
            self.others += count;
        }
    }

    /// Returns the number of failures of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.others + self.kinds.iter().map(|kind| kind.count).sum::<u64>()
    }
}
