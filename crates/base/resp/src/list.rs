//! Commands that are kept to be executed later.

use crate::Command;
use std::ops::Range;

/// Commands in the order in which they came, such as those between `MULTI` and `EXEC`.
#[derive(Debug, Default)]
pub struct CommandList {
    bytes: Vec<u8>,
    /// Where each part lies in `bytes`.
    parts: Vec<Range<u32>>,
    /// Where the parts of each command lie in `parts`.
    commands: Vec<Range<u32>>,
}

impl CommandList {
    /// Adds a command, given its parts.
    ///
    /// # Panics
    /// When the commands have 4 GiB: callers limit [`held`](Self::held).
    pub fn push<'p>(&mut self, parts: impl Iterator<Item = &'p [u8]>) {
        let index = |at: usize| u32::try_from(at).expect("callers limit the bytes");
        let begin = index(self.parts.len());
        for part in parts {
            let start = index(self.bytes.len());
            self.bytes.extend_from_slice(part);
            self.parts.push(start..index(self.bytes.len()));
        }
        self.commands.push(begin..index(self.parts.len()));
    }

    /// Removes all commands, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.parts.clear();
        self.commands.clear();
    }

    /// Returns the number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Returns the commands.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Command<'_>> {
        self.commands.iter().map(|parts| {
            let parts = &self.parts[parts.start as usize..parts.end as usize];
            Command { bytes: &self.bytes, parts }
        })
    }

    /// Returns the bytes of memory that the list holds.
    #[must_use]
    pub fn held(&self) -> usize {
        let ranges = self.parts.capacity() + self.commands.capacity();
        self.bytes.capacity() + ranges * size_of::<Range<u32>>()
    }
}
