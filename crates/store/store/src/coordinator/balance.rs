//! Decides which tablet to move so that servers share memory, requests and tablets evenly: a pure
//! function of the loads that they report.
//!
//! Memory comes first, because a server without free memory accepts no writes. The number of
//! requests comes second, and the number of tablets last. A move must improve its objective by a
//! minimum. After the move, each objective that comes before must be even enough, or no less even
//! than it was. So a finite number of moves evens out constant loads.

use sprat_wire::tablet::{Range, Tablet};

/// How much fuller a server may be than another, in thousandths of its memory, before a tablet
/// moves.
pub const UNEVEN_FILL: u64 = 100;

/// By how much a move for memory must lower the fill of the fuller server, in thousandths. So the
/// difference that remains may exceed [`UNEVEN_FILL`] by this value.
pub const LEAST_FILL: u64 = 10;

/// How many more requests a second than another server a server may get before a tablet moves, in
/// addition to half the average of all servers.
pub const UNEVEN_REQUESTS: u64 = 2000;

/// A move for requests must relieve the busiest server of at least one request in this number.
const LEAST_REQUESTS: u64 = 10;

/// A tablet and the load that it puts on its server.
#[derive(Clone, Copy, Debug)]
pub struct TabletLoad {
    /// The tablet.
    pub tablet: Tablet,
    /// Bytes of the tablet's objects.
    pub bytes: u64,
    /// Requests a second.
    pub requests: u64,
    /// The number of `requests` that go to the second half of the tablet's key positions. It shows
    /// whether dividing the tablet helps: all requests for one hot key go to one half.
    pub second_half: u64,
    /// Whether the tablet may be divided.
    pub divides: bool,
}

/// A live server and its load.
#[derive(Clone, Debug)]
pub struct ServerLoad {
    /// The server's id.
    pub server: u32,
    /// Bytes of objects that the server's log can hold; zero if that is not known.
    pub capacity: u64,
    /// Whether a tablet may move from the server.
    pub gives: bool,
    /// Whether a tablet may move to the server.
    pub takes: bool,
    /// The tablets that the server serves.
    pub tablets: Vec<TabletLoad>,
}

/// A tablet, or the second half of one, that could move.
#[derive(Clone, Copy, Debug)]
struct Piece {
    tablet: Tablet,
    bytes: u64,
    requests: u64,
}

const NOTHING: Piece =
    Piece { tablet: Tablet { table: 0, range: Range::ALL }, bytes: 0, requests: 0 };

/// A move under consideration.
#[derive(Clone, Copy)]
struct Moved<'a> {
    piece: &'a Piece,
    from: u32,
    to: u32,
}

impl Moved<'_> {
    /// Returns the load of `server` after the move, if its load is `now` at present and the piece's
    /// load is `piece`.
    fn after(self, server: u32, now: u64, piece: u64) -> u64 {
        let less = if self.from == server { piece } else { 0 };
        let more = if self.to == server { piece } else { 0 };
        now + more - less
    }
}

impl ServerLoad {
    fn fill_after(&self, moved: Moved<'_>) -> u64 {
        self.share(moved.after(self.server, self.bytes(), moved.piece.bytes))
    }

    fn requests_after(&self, moved: Moved<'_>) -> u64 {
        moved.after(self.server, self.requests(), moved.piece.requests)
    }

    /// Converts bytes to thousandths of the server's memory.
    fn share(&self, bytes: u64) -> u64 {
        if self.capacity == 0 {
            0
        } else {
            u64::try_from(u128::from(bytes) * 1000 / u128::from(self.capacity)).unwrap_or(u64::MAX)
        }
    }

    fn bytes(&self) -> u64 {
        self.tablets.iter().map(|load| load.bytes).sum()
    }

    /// Returns the share of the server's capacity that is used, in thousandths; zero if the
    /// capacity is not known.
    pub fn fill(&self) -> u64 {
        self.share(self.bytes())
    }

    /// Returns the server's requests a second.
    pub fn requests(&self) -> u64 {
        self.tablets.iter().map(|load| load.requests).sum()
    }

    fn number(&self) -> u64 {
        self.tablets.len() as u64
    }

    fn wholes(&self) -> impl Iterator<Item = Piece> {
        self.tablets.iter().map(|&TabletLoad { tablet, bytes, requests, .. }| Piece {
            tablet,
            bytes,
            requests,
        })
    }

    fn halves(&self) -> impl Iterator<Item = Piece> {
        self.tablets.iter().filter(|load| load.divides).filter_map(|load| {
            let range = *load.tablet.range.parts(2).get(1)?;
            let tablet = Tablet { range, ..load.tablet };
            Some(Piece { tablet, bytes: load.bytes / 2, requests: load.second_half })
        })
    }
}

/// What a move evens out among servers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Objective {
    /// Memory.
    Memory,
    /// Requests.
    Requests,
    /// The number of tablets.
    Number,
}

/// A move that [`next`] proposes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PlannedMove {
    /// The tablet, or the second half of one, to move.
    pub tablet: Tablet,
    /// The server that takes the tablet.
    pub to: u32,
    /// What the move evens out.
    pub objective: Objective,
}

/// Returns the next move; `None` if the loads are even enough. Call it again once the move is
/// complete and the servers have reported their new loads.
pub fn next(server_loads: &[ServerLoad]) -> Option<PlannedMove> {
    let balance = Balance { server_loads };
    let plan = |objective| move |(tablet, to)| PlannedMove { tablet, to, objective };
    let by_memory = balance.by_memory().map(plan(Objective::Memory));
    let by_requests = || balance.by_requests().map(plan(Objective::Requests));
    by_memory.or_else(by_requests).or_else(|| balance.by_number().map(plan(Objective::Number)))
}

struct Balance<'a> {
    server_loads: &'a [ServerLoad],
}

impl<'a> Balance<'a> {
    /// Returns the server with the highest `measure` from which a tablet may move, and the server
    /// with the lowest `measure` to which one may move.
    fn extremes(
        &self,
        measure: impl Fn(&ServerLoad) -> u64,
    ) -> Option<(&'a ServerLoad, &'a ServerLoad)> {
        let takers = self.server_loads.iter().filter(|load| load.takes);
        let to = takers.min_by_key(|load| (measure(load), load.number(), load.server))?;
        let givers = self.server_loads.iter().filter(|load| load.gives && load.server != to.server);
        givers.max_by_key(|load| (measure(load), load.server)).map(|from| (from, to))
    }

    /// Returns the difference between the highest and the lowest `measure`, after a move if one is
    /// given.
    fn spread(
        &self,
        moved: Option<Moved<'_>>,
        measure: impl Fn(&ServerLoad, Moved<'_>) -> u64,
    ) -> u64 {
        let measured = self.server_loads.iter().map(|load| match moved {
            Some(moved) => measure(load, moved),
            None => measure(load, Moved { piece: &NOTHING, from: load.server, to: load.server }),
        });
        measured.clone().max().unwrap_or(0) - measured.min().unwrap_or(0)
    }

    /// Returns whether memory is even enough after the move, or at least no less even than now.
    fn keeps_memory(&self, moved: Moved<'_>) -> bool {
        let now = self.spread(None, ServerLoad::fill_after);
        self.spread(Some(moved), ServerLoad::fill_after) <= now.max(UNEVEN_FILL)
    }

    /// Returns whether requests are even enough after the move, or at least no less even than now.
    fn keeps_requests(&self, moved: Moved<'_>) -> bool {
        let now = self.spread(None, ServerLoad::requests_after);
        self.spread(Some(moved), ServerLoad::requests_after) <= now.max(self.uneven_requests())
    }

    fn uneven_requests(&self) -> u64 {
        let all: u64 = self.server_loads.iter().map(ServerLoad::requests).sum();
        UNEVEN_REQUESTS + all / (self.server_loads.len() as u64).max(1) / 2
    }

    fn by_memory(&self) -> Option<(Tablet, u32)> {
        let (from, to) = self.extremes(ServerLoad::fill)?;
        if from.fill() <= to.fill() + UNEVEN_FILL {
            return None;
        }
        let worst = |piece: &Piece| {
            let moved = Moved { piece, from: from.server, to: to.server };
            from.fill_after(moved).max(to.fill_after(moved))
        };
        let pieces = from
            .wholes()
            .chain(from.halves())
            .filter(|piece| worst(piece) + LEAST_FILL <= from.fill());
        pieces.min_by_key(worst).map(|piece| (piece.tablet, to.server))
    }

    fn by_requests(&self) -> Option<(Tablet, u32)> {
        let (from, to) = self.extremes(ServerLoad::requests)?;
        let most = from.requests();
        if most <= to.requests() + self.uneven_requests() {
            return None;
        }
        let worst = |piece: &Piece| (most - piece.requests).max(to.requests() + piece.requests);
        let pieces = from.wholes().chain(from.halves());
        let pieces = pieces.filter(|piece| worst(piece) + most / LEAST_REQUESTS <= most);
        let pieces = pieces
            .filter(|piece| self.keeps_memory(Moved { piece, from: from.server, to: to.server }));
        pieces.min_by_key(worst).map(|piece| (piece.tablet, to.server))
    }

    fn by_number(&self) -> Option<(Tablet, u32)> {
        let (from, to) = self.extremes(ServerLoad::number)?;
        let may = |piece: &Piece| {
            let moved = Moved { piece, from: from.server, to: to.server };
            self.keeps_memory(moved) && self.keeps_requests(moved)
        };
        let piece = match (from.number(), to.number()) {
            (many, few) if many >= few + 2 => from.wholes().find(may),
            (1, 0) => from.halves().find(may),
            _ => None,
        };
        piece.map(|piece| (piece.tablet, to.server))
    }
}
