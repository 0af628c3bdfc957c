//! A selection of tablets. A recovery master requests the entries of these tablets in a segment
//! from a backup.

use crate::tablet::{Range, Tablet, position, table_of};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The largest number of tablets in one selection.
pub const MAX_SELECTED: usize = 16_384;

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct SelectionHeader {
    seed: U64,
    askers: U32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct TabletBytes {
    table: U32,
    first: U64,
    last: U64,
}

impl TabletBytes {
    fn tablet(self) -> Tablet {
        let range = Range { first: self.first.get(), last: self.last.get() };
        Tablet { table: self.table.get(), range }
    }
}

/// A selection in a request, borrowed from the bytes that contain it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Selection<'a> {
    bytes: &'a [u8],
}

impl<'a> Selection<'a> {
    /// Encodes a selection. `seed` is the seed of keys' [positions](position). `askers` is the
    /// number of servers, the requester included, that will request entries of the same segment.
    /// `tablets` must ascend and not overlap.
    ///
    /// # Panics
    /// When there are more than [`MAX_SELECTED`] tablets, they do not ascend or overlap, or a
    /// tablet's range or table id is invalid.
    #[must_use]
    pub fn encode(seed: u64, askers: u32, tablets: impl IntoIterator<Item = Tablet>) -> Vec<u8> {
        let mut bytes =
            SelectionHeader { seed: seed.into(), askers: askers.into() }.as_bytes().to_vec();
        for Tablet { table, range: Range { first, last } } in tablets {
            let tablet =
                TabletBytes { table: table.into(), first: first.into(), last: last.into() };
            bytes.extend_from_slice(tablet.as_bytes());
        }
        assert!(Selection::parse(&bytes).is_some(), "tablets that ascend");
        bytes
    }

    /// Parses the bytes of a selection; `None` when they are invalid.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let selection = Self { bytes };
        let (_, tablets) = SelectionHeader::ref_from_prefix(bytes).ok()?;
        let tablets = <[TabletBytes]>::ref_from_bytes(tablets).ok()?;
        let apart = |one: &Tablet, next: &Tablet| {
            (one.table, one.range.last) < (next.table, next.range.first)
        };
        let sensible = tablets.len() <= MAX_SELECTED
            && selection.tablets().all(|tablet| {
                table_of(tablet.table) == tablet.table && tablet.range.first <= tablet.range.last
            })
            && selection.tablets().is_sorted_by(apart);
        sensible.then_some(selection)
    }

    /// Returns the selection's bytes.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    fn parts(self) -> (&'a SelectionHeader, &'a [TabletBytes]) {
        let (header, tablets) = SelectionHeader::ref_from_prefix(self.bytes).expect("checked");
        (header, <[TabletBytes]>::ref_from_bytes(tablets).expect("checked"))
    }

    /// Returns the seed of keys' positions.
    #[must_use]
    pub fn seed(self) -> u64 {
        self.parts().0.seed.get()
    }

    /// Returns the number of servers that will request entries of the same segment.
    #[must_use]
    pub fn askers(self) -> u32 {
        self.parts().0.askers.get()
    }

    /// Returns the tablets.
    pub fn tablets(self) -> impl Iterator<Item = Tablet> + Clone + 'a {
        self.parts().1.iter().map(|tablet| tablet.tablet())
    }

    /// Returns whether the selection includes the objects at a position of a table.
    #[must_use]
    pub fn wants(self, table: u32, position: u64) -> bool {
        let tablets = self.parts().1;
        let at = tablets
            .partition_point(|tablet| (tablet.table.get(), tablet.last.get()) < (table, position));
        tablets
            .get(at)
            .is_some_and(|tablet| tablet.table.get() == table && tablet.first.get() <= position)
    }

    /// Returns whether the selection includes any tablet of a table.
    #[must_use]
    pub fn wants_of(self, table: u32) -> bool {
        self.parts().1.binary_search_by_key(&table, |tablet| tablet.table.get()).is_ok()
    }

    /// Returns the position of a key in its table.
    #[must_use]
    pub fn position(self, table: u32, key: &[u8]) -> u64 {
        position(self.seed(), table, key)
    }
}
