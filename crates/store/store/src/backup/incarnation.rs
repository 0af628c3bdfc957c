//! By what chunks of one use of a frame are told from those of all others.
//!
//! A log begins each segment once, so it has one incarnation for each time that it is opened. A
//! master may give up a backup's replica and come back with the same segment, so here each replica
//! has an incarnation of its own. What a crash must not forget is only which were taken: the file's
//! header names one that is ahead, and is written anew once in some thousand replicas.

/// How far the file's header is ahead when it is written; odd, so that its two copies take turns. A
/// start loses as many at most: 32 bits are enough for a million of them.
pub(super) const AHEAD: u32 = 4095;

/// Incarnations taken and to be taken.
pub(super) struct Incarnations {
    /// The first of this life.
    first: u32,
    /// The next one.
    next: u32,
    /// The highest that may be taken: the file's header names it, durably.
    limit: u32,
    /// What is to be the limit when the header that is being written is durable.
    raising: Option<u32>,
}

impl Incarnations {
    /// From `first` to `limit`.
    pub(super) fn new(first: u32, limit: u32) -> Self {
        Self { first, next: first, limit, raising: None }
    }

    /// The first of this life.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// The next one, if the file's header is ahead of it.
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.next > self.limit {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    /// The highest of all earlier lives.
    pub(super) fn before(&self) -> u32 {
        self.first - 1
    }

    /// Whether the file's header is being written.
    pub(super) fn raising(&self) -> bool {
        self.raising.is_some()
    }

    /// Notes that a header is being written that allows incarnations up to `limit`.
    pub(super) fn raise(&mut self, limit: u32) {
        self.raising = Some(limit);
    }

    /// The header has been written.
    pub(super) fn raised(&mut self) {
        self.limit = self.raising.take().expect("the header was being written");
    }

    /// Whether it is time for a header that is further ahead.
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
        incarnations.raised();
        assert_eq!([(); 2].map(|()| incarnations.take()), [Some(8), None]);
    }
}
