//! The descriptors that a sleeping node waits for.

use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The largest number of descriptors that a node can wait for, not counting its bell.
pub const MAX_SOURCES: usize = 7;

/// The descriptors that end a sleep as soon as one of them polls readable, and a limit on the
/// sleep's duration, after which the node polls the sources that have no descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    fds: [Option<BorrowedFd<'a>>; MAX_SOURCES],
    len: usize,
    nap: Option<Duration>,
}

impl<'a> Sources<'a> {
    /// Limits the sleep to `longest`, for a source that cannot wake the node and must be polled.
    pub fn nap(&mut self, longest: Duration) {
        self.nap = Some(self.nap.map_or(longest, |nap| nap.min(longest)));
    }

    /// Returns the longest sleep allowed, if there is a limit.
    #[must_use]
    pub fn longest(&self) -> Option<Duration> {
        self.nap
    }

    /// Adds a descriptor to sleep on.
    ///
    /// # Panics
    /// If there are [`MAX_SOURCES`] already.
    pub fn push(&mut self, fd: BorrowedFd<'a>) {
        self.fds[self.len] = Some(fd);
        self.len += 1;
    }

    /// Returns how many more descriptors can be added.
    #[must_use]
    pub fn room(&self) -> usize {
        MAX_SOURCES - self.len
    }

    /// Returns the number of descriptors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no descriptor, so that only time and the node's bell can end the
    /// sleep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Iterates over all descriptors.
    pub fn iter(&self) -> impl Iterator<Item = BorrowedFd<'a>> + '_ {
        self.fds.iter().copied().flatten()
    }

    /// Returns the descriptor at `index`, if there is one.
    pub(super) fn get(&self, index: usize) -> Option<BorrowedFd<'a>> {
        self.fds.get(index).copied().flatten()
    }
}

impl<'a> Extend<BorrowedFd<'a>> for Sources<'a> {
    fn extend<I: IntoIterator<Item = BorrowedFd<'a>>>(&mut self, fds: I) {
        fds.into_iter().for_each(|fd| self.push(fd));
    }
}
