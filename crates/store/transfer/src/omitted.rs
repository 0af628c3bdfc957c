//! A record of what a transfer left out, and why.

use std::fmt;

/// The largest number of names that an [`Omitted`] keeps. It only counts further omissions.
pub const MAX_NAMED: usize = 1000;

/// Why a file, row or item was left out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OmitReason {
    /// Import: a symbolic link.
    Symlink,
    /// Import: a socket, pipe or device.
    Special,
    /// Import: the value is over the limit, and the policy is
    /// [`LargePolicy::Skip`](super::LargePolicy::Skip).
    Large,
    /// Export to a tree: the key is not a relative path of plain components.
    NotAPath,
    /// Export to a tree: a component of the path is over 255 bytes, or the path is too long for the
    /// filesystem.
    LongPath,
    /// Export to a tree: one key needs a file where another needs a directory.
    Conflict,
    /// Export as rows or lines: the value is not exactly one row.
    NotOneRow,
}

impl OmitReason {
    /// Returns whether the omission loses data that the user wanted to move, so that the transfer
    /// has not succeeded.
    #[must_use]
    pub fn is_failure(self) -> bool {
        match self {
            Self::Symlink | Self::Special | Self::Large => false,
            Self::NotAPath | Self::LongPath | Self::Conflict | Self::NotOneRow => true,
        }
    }
}

impl fmt::Display for OmitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Symlink => "symbolic link",
            Self::Special => "not a regular file",
            Self::Large => "over the value limit",
            Self::NotAPath => "the key is not a relative path",
            Self::LongPath => "the path is too long for the filesystem",
            Self::Conflict => "the path is needed both as a file and as a directory",
            Self::NotOneRow => "the value is not one row of this form",
        })
    }
}

/// The files, rows or items left out: their count, and the first [`MAX_NAMED`] of them by name.
#[derive(Clone, Debug, Default)]
pub struct Omitted {
    named: Vec<(String, OmitReason)>,
    count: u64,
    failures: u64,
}

impl Omitted {
    /// Records an omission.
    pub(super) fn add(&mut self, name: String, reason: OmitReason) {
        self.count += 1;
        self.failures += u64::from(reason.is_failure());
        if self.named.len() < MAX_NAMED {
            self.named.push((name, reason));
        }
    }

    /// Returns the omissions in order, each with its name and reason, at most [`MAX_NAMED`].
    #[must_use]
    pub fn named(&self) -> &[(String, OmitReason)] {
        &self.named
    }

    /// Returns the number of omissions.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of omissions that lose data. If there are any, `sprat import` and `sprat
    /// export` end with an exit code that says so.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures
    }
}

/// Returns a key as text: UTF-8 unchanged, but with control characters, backslashes and all other
/// bytes escaped.
#[must_use]
pub fn display_key(key: &[u8]) -> String {
    let mut text = String::new();
    for chunk in key.utf8_chunks() {
        for char in chunk.valid().chars() {
            if char.is_control() || char == '\\' {
                text.extend(char.escape_default());
            } else {
                text.push(char);
            }
        }
        text.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    text
}
