//! Incarnations: numbers that distinguish the chunks of one use of a frame from those of all
//! others.
//!
//! A log begins each segment once, so all its chunks that are written after one opening of the file
//! have the same incarnation. In a file of replicas each replica has an incarnation of its own,
//! because a master may give up a replica here and begin the same segment again. No incarnation may
//! be taken again after a crash. So the file's header names an incarnation above all that were
//! taken, and is rewritten only once in some thousand replicas.

/// By how much the header's incarnation is raised when replicas need further incarnations. The
/// number is odd, so that successive headers go to the two copies in turn. Each start raises the
/// incarnation by little more than this number, so 32 bits are enough for a million starts.
pub(super) const AHEAD: u32 = 4095;

/// The incarnations taken and still to be taken.
pub(super) struct Incarnations {
    /// The first incarnation of this process.
    first: u32,
    /// The next incarnation to be taken.
    next: u32,
    /// The highest incarnation that may be taken: the file's header allows it, durably.
    limit: u32,
    /// The limit once the header that is being written is durable.
    raising: Option<u32>,
}

impl Incarnations {
    /// Makes the incarnations from `first` to `limit`.
    pub(super) fn new(first: u32, limit: u32) -> Self {
        Self { first, next: first, limit, raising: None }
    }

    /// Returns the first incarnation of this process.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Takes the next incarnation, if the file's header allows it.
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.next > self.limit {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    /// Returns the highest incarnation of all earlier processes.
    pub(super) fn last_of_previous(&self) -> u32 {
        self.first - 1
    }

    /// Returns whether the file's header is being written.
    pub(super) fn raising(&self) -> bool {
        self.raising.is_some()
    }

    /// Records that a header is being written that allows incarnations up to `limit`.
    pub(super) fn raise(&mut self, limit: u32) {
        self.raising = Some(limit);
    }

    /// Records that the header has been written.
    pub(super) fn raise_completed(&mut self) {
        self.limit = self.raising.take().expect("the header was being written");
    }

    /// Returns whether a header that allows more incarnations should be written.
    pub(super) fn are_few(&self) -> bool {
        self.raising.is_none() && self.limit.saturating_sub(self.next) < AHEAD / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_taken_that_the_header_is_not_ahead_of() {
        let mut incarnations = Incarnations::new(5, 7);
        assert_eq!([(); 4].map(|()| incarnations.take()), [Some(5), Some(6), Some(7), None]);
        incarnations.raising = Some(8);
        assert_eq!(incarnations.take(), None, "the header is not durable yet");
        incarnations.raise_completed();
        assert_eq!([(); 2].map(|()| incarnations.take()), [Some(8), None]);
    }
}
