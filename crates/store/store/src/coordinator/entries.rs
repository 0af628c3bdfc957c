//! Tables, tablets and servers as the catalog holds them.

use sprat_wire::index::{IndexRecord, OWN_KEYS, SortOrder};
use sprat_wire::op::WhenFull;
use sprat_wire::tablet::{Range, Tablet};

/// A tablet and the server that serves it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct OwnedTablet {
    /// The tablet.
    pub tablet: Tablet,
    /// Id of the server.
    pub server: u32,
    /// First segment of that server's log whose entries count for the tablet. If the server had
    /// this tablet before, older segments may hold entries from that time, and recovery ignores
    /// them.
    pub since: u64,
}

/// A tablet in the row of its table. It ends where the next tablet of the table begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TabletEntry {
    pub(super) first: u64,
    pub(super) server: u32,
    pub(super) since: u64,
}

/// A table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct TableEntry {
    pub(super) id: u32,
    pub(super) when_full: WhenFull,
    pub(super) ordered: bool,
    /// The table's indexes, ascending by their numbers.
    pub(super) indexes: Vec<IndexRecord>,
    /// The number of the next index that the table gets.
    pub(super) next_index: u32,
    /// The table's tablets in ascending order. The first begins at zero.
    pub(super) parts: Vec<TabletEntry>,
}

/// The number of a table's first index.
pub(super) const FIRST_INDEX: u32 = OWN_KEYS + 1;

impl Default for TableEntry {
    fn default() -> Self {
        Self {
            id: 0,
            when_full: WhenFull::default(),
            ordered: false,
            indexes: Vec::new(),
            next_index: FIRST_INDEX,
            parts: Vec::new(),
        }
    }
}

impl TableEntry {
    /// Returns the orders in which the table's servers keep its objects.
    pub(super) fn sort_orders(&self) -> impl Iterator<Item = SortOrder> {
        let table = self.id;
        let own = SortOrder { table, index: OWN_KEYS, definition: None };
        let indexes = self.indexes.iter().map(move |index| {
            let definition = Some(index.definition.clone());
            SortOrder { table, index: index.id, definition }
        });
        self.ordered.then_some(own).into_iter().chain(indexes)
    }

    /// Returns whether a server has tablets of this table.
    pub(super) fn is_on(&self, server: u32) -> bool {
        self.parts.iter().any(|part| part.server == server)
    }

    pub(super) fn tablets(&self) -> impl Iterator<Item = OwnedTablet> {
        let ends = self.parts.iter().skip(1).map(|next| next.first - 1).chain([u64::MAX]);
        self.parts.iter().zip(ends).map(|(part, last)| OwnedTablet {
            tablet: Tablet { table: self.id, range: Range { first: part.first, last } },
            server: part.server,
            since: part.since,
        })
    }

    /// Returns this table with tablets divided at the ends of `range`, and with `change` applied to
    /// each tablet within `range`.
    pub(super) fn with(&self, range: Range, change: impl Fn(TabletEntry) -> TabletEntry) -> Self {
        let mut parts = Vec::with_capacity(self.parts.len() + 2);
        for owned in self.tablets() {
            let part = |first| TabletEntry { first, server: owned.server, since: owned.since };
            let whole = owned.tablet.range;
            let Some(both) = whole.overlap(range) else {
                parts.push(part(whole.first));
                continue;
            };
            if whole.first < both.first {
                parts.push(part(whole.first));
            }
            parts.push(change(part(both.first)));
            if both.last < whole.last {
                parts.push(part(both.last + 1));
            }
        }
        Self { parts, indexes: self.indexes.clone(), ..*self }
    }
}

/// A server as the catalog holds it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServerEntry {
    /// The server's locator, for clients and other servers.
    pub locator: String,
    /// The server's rack; empty if none was given.
    pub rack: String,
    /// Number of replicas of the server's log on other servers. Zero: the log is on the server's
    /// own disk only, and no other server can recover it.
    pub copies: u8,
    /// Recovery must not use open heads of the server's log below this segment. Zero if the server
    /// never began a log.
    pub min_open: u64,
    /// Whether the server was declared dead, so that other servers recover its tablets.
    pub dead: bool,
    /// Whether the server is being drained: its tablets move to other servers, and it gets no new
    /// ones.
    pub draining: bool,
}
