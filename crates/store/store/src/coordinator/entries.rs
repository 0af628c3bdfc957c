//! Tables and servers as the catalog keeps them.

use sprat_wire::tablet::{Range, Tablet};

/// A tablet and who serves it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Owned {
    /// The tablet.
    pub tablet: Tablet,
    /// Id of the server.
    pub server: u32,
    /// Entries of the tablet count from this segment of that server's log on: what it had of it
    /// before is of the past.
    pub since: u64,
}

/// A tablet in the row of its table: it ends where the next begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Part {
    pub(super) first: u64,
    pub(super) server: u32,
    pub(super) since: u64,
}

/// A table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Parts {
    pub(super) id: u32,
    /// Its tablets, ascending; the first begins at zero.
    pub(super) parts: Vec<Part>,
}

impl Parts {
    pub(super) fn tablets(&self) -> impl Iterator<Item = Owned> {
        let ends = self.parts.iter().skip(1).map(|next| next.first - 1).chain([u64::MAX]);
        self.parts.iter().zip(ends).map(|(part, last)| Owned {
            tablet: Tablet { table: self.id, range: Range { first: part.first, last } },
            server: part.server,
            since: part.since,
        })
    }

    /// The same with a range of its own for what is within one tablet now, changed by `change`.
    pub(super) fn with(&self, range: Range, change: impl Fn(Part) -> Part) -> Self {
        let mut parts = Vec::with_capacity(self.parts.len() + 2);
        for owned in self.tablets() {
            let part = |first| Part { first, server: owned.server, since: owned.since };
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
        Self { id: self.id, parts }
    }
}

/// A server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Known {
    /// Where clients and other servers reach it.
    pub locator: String,
    /// The rack that it is in; empty when nobody has said.
    pub rack: String,
    /// Replicas that it keeps of its log on other servers; zero: its log is on its own disk, and
    /// nobody else can bring it back.
    pub copies: u8,
    /// Open heads of its log below this segment are void; zero when it never began a log.
    pub min_open: u64,
    /// It is gone; others bring back its tables.
    pub dead: bool,
    /// Its tablets are moved to others, and it is given no more.
    pub draining: bool,
}
