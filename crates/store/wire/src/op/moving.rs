//! Tablets that move from a server to another while they are served.

use crate::tablet::{Range, Tablet};
use zerocopy::byteorder::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A tablet that is to move from a server to another while it is served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MoveOrder {
    /// Which order this is: no other of this cluster, recoveries included, has ever had the same
    /// number.
    pub id: u64,
    /// The tablet, or the part of one.
    pub tablet: Tablet,
    /// Who has it.
    pub from: u32,
    /// Who is to have it.
    pub to: u32,
}

impl MoveOrder {
    /// Whether a server gives the tablet away, or is given it.
    #[must_use]
    pub fn concerns(&self, server: u32) -> bool {
        self.from == server || self.to == server
    }
}

/// A run of positions as it stands in a request.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Stretch {
    first: U64,
    last: U64,
}

impl From<Range> for Stretch {
    fn from(range: Range) -> Self {
        Self { first: range.first.into(), last: range.last.into() }
    }
}

impl Stretch {
    /// The positions; `None` when they are the wrong way round.
    #[must_use]
    pub fn range(&self) -> Option<Range> {
        let range = Range { first: self.first.get(), last: self.last.get() };
        (range.first <= range.last).then_some(range)
    }
}

/// Of a tablet that moves, what is asked for. They come in this order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// The completions of its table.
    Completions,
    /// Its objects.
    Objects,
    /// What has changed meanwhile.
    Changes,
    /// The same, and from here on the tablet stands still where it was.
    Rest,
}

impl Stage {
    const ALL: [Self; 4] = [Self::Completions, Self::Objects, Self::Changes, Self::Rest];

    pub(super) fn code(self) -> u8 {
        self as u8
    }

    pub(super) fn of(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// How far a tablet that moves has come.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Collected {
    /// Objects and completions behind this position; all, for [`FROM_START`](Self::FROM_START).
    pub after: U64,
    /// Changes are given in batches, numbered from 1 on: whoever asks for the next has the one
    /// before.
    pub batch: U64,
}

impl Collected {
    /// The cursor in front of all positions: the last of them, behind which there is nothing to ask
    /// for.
    pub const FROM_START: u64 = u64::MAX;
}
