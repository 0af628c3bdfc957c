//! A place in the text of a kernel.

/// Bytes of the text: from, and up to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    pub(crate) fn to(self, other: Self) -> Self {
        Self { start: self.start, end: other.end }
    }
}
