//! What a transfer left out, by name and reason.

use std::fmt;

/// Names kept in an [`Omitted`]; what is beyond is counted only.
pub const MAX_NAMED: usize = 1000;

/// Why something was left out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// Import: a symbolic link.
    Symlink,
    /// Import: a socket, pipe or device.
    Special,
    /// Import: over the value limit, and left out as asked.
    Large,
    /// Export to a tree: the key is no relative path of plain components.
    NotAPath,
    /// Export to a tree: a component is over 255 bytes, or the path too long for the filesystem.
    LongPath,
    /// Export to a tree: one key needs a file where another needs a directory.
    Conflict,
    /// Export as rows or lines: the value is not exactly one row.
    NotOneRow,
}

impl Why {
    /// Whether this loses data that the caller meant to move: the transfer is then not a success.
    #[must_use]
    pub fn is_failure(self) -> bool {
        match self {
            Self::Symlink | Self::Special | Self::Large => false,
            Self::NotAPath | Self::LongPath | Self::Conflict | Self::NotOneRow => true,
        }
    }
}

impl fmt::Display for Why {
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

/// What was left out: the first [`MAX_NAMED`] by name, all by count.
#[derive(Clone, Debug, Default)]
pub struct Omitted {
    named: Vec<(String, Why)>,
    count: u64,
    failures: u64,
}

impl Omitted {
    /// Notes one omission.
    pub(super) fn add(&mut self, name: String, why: Why) {
        self.count += 1;
        self.failures += u64::from(why.is_failure());
        if self.named.len() < MAX_NAMED {
            self.named.push((name, why));
        }
    }

    /// Names and reasons, in order, at most [`MAX_NAMED`].
    #[must_use]
    pub fn named(&self) -> &[(String, Why)] {
        &self.named
    }

    /// How many in all.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many of them lose data: above zero, the process ends with an error.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures
    }
}

/// A key as text: UTF-8 as it is, control characters and other bytes escaped.
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
