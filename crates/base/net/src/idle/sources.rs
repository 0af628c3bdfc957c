//! What a sleeping node is woken by.

use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Descriptors that a node can wait for, its bell not counted.
pub const MAX_SOURCES: usize = 7;

/// Descriptors of which any one, when it polls readable, ends a sleep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    fds: [Option<BorrowedFd<'a>>; MAX_SOURCES],
    len: usize,
    nap: Option<Duration>,
}

impl<'a> Sources<'a> {
    /// Says that there is something that cannot wake the node, and has to be looked at that often.
    pub fn nap(&mut self, longest: Duration) {
        self.nap = Some(self.nap.map_or(longest, |nap| nap.min(longest)));
    }

    /// Longest sleep, if there is such a thing.
    #[must_use]
    pub fn longest(&self) -> Option<Duration> {
        self.nap
    }

    /// Adds one.
    ///
    /// # Panics
    /// When there are [`MAX_SOURCES`].
    pub fn push(&mut self, fd: BorrowedFd<'a>) {
        self.fds[self.len] = Some(fd);
        self.len += 1;
    }

    /// How many more there can be.
    #[must_use]
    pub fn room(&self) -> usize {
        MAX_SOURCES - self.len
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether only time and the bell can end the sleep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = BorrowedFd<'a>> + '_ {
        self.fds.iter().copied().flatten()
    }

    /// The one at `index`, if there are so many.
    pub(super) fn get(&self, index: usize) -> Option<BorrowedFd<'a>> {
        self.fds.get(index).copied().flatten()
    }
}

impl<'a> Extend<BorrowedFd<'a>> for Sources<'a> {
    fn extend<I: IntoIterator<Item = BorrowedFd<'a>>>(&mut self, fds: I) {
        fds.into_iter().for_each(|fd| self.push(fd));
    }
}
