//! Tablets that move between servers while they are served.

use crate::tablet::{Range, Tablet};
use zerocopy::byteorder::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An order to move a tablet to another server while it is served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MoveOrder {
    /// Id of the order; unique in the cluster, among recovery orders too.
    pub id: u64,
    /// The tablet, or part of a tablet, that moves.
    pub tablet: Tablet,
    /// The server that has the tablet: the migration's source.
    pub from: u32,
    /// The server to which the tablet moves: the migration's target.
    pub to: u32,
}

impl MoveOrder {
    /// Returns whether the tablet moves from or to that server.
    #[must_use]
    pub fn concerns(&self, server: u32) -> bool {
        self.from == server || self.to == server
    }
}

/// The layout of a range of positions in a request.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct RangeBytes {
    first: U64,
    last: U64,
}

impl From<Range> for RangeBytes {
    fn from(range: Range) -> Self {
        Self { first: range.first.into(), last: range.last.into() }
    }
}

impl RangeBytes {
    /// Returns the range; `None` when it ends before it begins.
    #[must_use]
    pub fn range(&self) -> Option<Range> {
        let range = Range { first: self.first.get(), last: self.last.get() };
        (range.first <= range.last).then_some(range)
    }
}

/// The stages of a tablet's move, in order. Each names what the target requests from the source.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MoveStage {
    /// The completions of the tablet's table.
    Completions,
    /// The tablet's objects.
    Objects,
    /// The changes that were made since the objects were sent.
    Changes,
    /// The last changes. From here on the source does not change the tablet any more.
    Rest,
    /// The elements of collections that are in the tablet. They are sent after its objects. Servers
    /// from before there were collections do not know this stage.
    Elements,
}

impl MoveStage {
    const ALL: [Self; 5] =
        [Self::Completions, Self::Objects, Self::Changes, Self::Rest, Self::Elements];

    pub(super) fn code(self) -> u8 {
        self as u8
    }

    pub(super) fn of(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// How far the move of a tablet has come.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct MoveCursor {
    /// The target wants objects and completions behind this position;
    /// [`FROM_START`](Self::FROM_START) stands for all of them.
    pub after: U64,
    /// Number of the batch of changes that the target wants, from 1. The request for a batch shows
    /// that the target has the previous batch.
    pub batch: U64,
}

impl MoveCursor {
    /// The cursor before all positions. Its value is the last position, which no other cursor
    /// needs, because nothing follows the last position.
    pub const FROM_START: u64 = u64::MAX;
}
