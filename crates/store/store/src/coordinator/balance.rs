//! Which tablet to move so that servers share memory, work and tablets: a pure function of what
//! they tell.
//!
//! Memory comes first, for who has none left takes no writes; then requests; then the number of
//! tablets. A move for one of these must better it by something, and must not undo what the ones
//! before it have brought about: so after some moves there are no more.

use sprat_wire::tablet::{Range, Tablet};

/// So much of its memory, in thousandths, a server may use more than another.
pub const UNEVEN_FILL: u64 = 100;

/// What a move for the sake of memory must better, in thousandths of it: so much more than
/// [`UNEVEN_FILL`] may stay.
pub const LEAST_FILL: u64 = 10;

/// So many requests a second a server may get more than another, beside half of what one gets on
/// average.
pub const UNEVEN_REQUESTS: u64 = 2000;

/// What a move for the sake of requests must better, of what the busiest gets: one part in this
/// many.
const LEAST_REQUESTS: u64 = 10;

/// A tablet, and what it is to its server.
#[derive(Clone, Copy, Debug)]
pub struct Weighed {
    /// The tablet.
    pub tablet: Tablet,
    /// Bytes of its objects.
    pub bytes: u64,
    /// Requests a second.
    pub requests: u64,
    /// Of those, to the second half of its objects: a key that all ask for is in one of them, and
    /// to divide again helps nobody.
    pub second_half: u64,
    /// Whether it may be divided.
    pub divides: bool,
}

/// A server that lives.
#[derive(Clone, Debug)]
pub struct Burden {
    /// Its id.
    pub server: u32,
    /// Bytes of objects that its log takes; zero when that is not known.
    pub capacity: u64,
    /// Whether something may move from it, and to it.
    pub gives: bool,
    /// See `gives`.
    pub takes: bool,
    /// What it serves.
    pub tablets: Vec<Weighed>,
}

/// A tablet, or the second half of one, that would move.
#[derive(Clone, Copy, Debug)]
struct Piece {
    tablet: Tablet,
    bytes: u64,
    requests: u64,
}

const NOTHING: Piece =
    Piece { tablet: Tablet { table: 0, range: Range::ALL }, bytes: 0, requests: 0 };

/// What would be: a piece that has moved, and between whom.
#[derive(Clone, Copy)]
struct Moved<'a> {
    piece: &'a Piece,
    from: u32,
    to: u32,
}

impl Moved<'_> {
    /// What a server has of something, of which it has so much now, and the piece so much.
    fn after(self, server: u32, now: u64, piece: u64) -> u64 {
        let less = if self.from == server { piece } else { 0 };
        let more = if self.to == server { piece } else { 0 };
        now + more - less
    }
}

impl Burden {
    fn fill_after(&self, moved: Moved<'_>) -> u64 {
        self.share(moved.after(self.server, self.bytes(), moved.piece.bytes))
    }

    fn requests_after(&self, moved: Moved<'_>) -> u64 {
        moved.after(self.server, self.requests(), moved.piece.requests)
    }

    /// Bytes as thousandths of its memory.
    fn share(&self, bytes: u64) -> u64 {
        if self.capacity == 0 {
            0
        } else {
            u64::try_from(u128::from(bytes) * 1000 / u128::from(self.capacity)).unwrap_or(u64::MAX)
        }
    }

    fn bytes(&self) -> u64 {
        self.tablets.iter().map(|weighed| weighed.bytes).sum()
    }

    /// How full it is, in thousandths.
    pub fn fill(&self) -> u64 {
        self.share(self.bytes())
    }

    /// Requests a second.
    pub fn requests(&self) -> u64 {
        self.tablets.iter().map(|weighed| weighed.requests).sum()
    }

    fn number(&self) -> u64 {
        self.tablets.len() as u64
    }

    fn wholes(&self) -> impl Iterator<Item = Piece> {
        self.tablets.iter().map(|&Weighed { tablet, bytes, requests, .. }| Piece {
            tablet,
            bytes,
            requests,
        })
    }

    fn halves(&self) -> impl Iterator<Item = Piece> {
        self.tablets.iter().filter(|weighed| weighed.divides).filter_map(|weighed| {
            let range = *weighed.tablet.range.parts(2).get(1)?;
            let tablet = Tablet { range, ..weighed.tablet };
            Some(Piece { tablet, bytes: weighed.bytes / 2, requests: weighed.second_half })
        })
    }
}

/// For the sake of what a tablet moves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sake {
    /// Memory.
    Memory,
    /// Requests.
    Requests,
    /// The number of tablets.
    Number,
}

/// The next move: of one tablet, or half of one, to whom, and why. `None` when all is well.
pub fn next(burdens: &[Burden]) -> Option<(Tablet, u32, Sake)> {
    let balance = Balance { burdens };
    let say = |sake| move |(tablet, to)| (tablet, to, sake);
    let by_memory = balance.by_memory().map(say(Sake::Memory));
    let by_requests = || balance.by_requests().map(say(Sake::Requests));
    by_memory.or_else(by_requests).or_else(|| balance.by_number().map(say(Sake::Number)))
}

struct Balance<'a> {
    burdens: &'a [Burden],
}

impl<'a> Balance<'a> {
    /// Who has most of something and may give, and who has least and may take.
    fn ends(&self, measure: impl Fn(&Burden) -> u64) -> Option<(&'a Burden, &'a Burden)> {
        let takers = self.burdens.iter().filter(|burden| burden.takes);
        let to = takers.min_by_key(|burden| (measure(burden), burden.number(), burden.server))?;
        let givers =
            self.burdens.iter().filter(|burden| burden.gives && burden.server != to.server);
        givers.max_by_key(|burden| (measure(burden), burden.server)).map(|from| (from, to))
    }

    /// How far apart servers are in something, when a piece has moved from one to another.
    fn spread(&self, moved: Option<Moved<'_>>, measure: impl Fn(&Burden, Moved<'_>) -> u64) -> u64 {
        let measured = self.burdens.iter().map(|burden| match moved {
            Some(moved) => measure(burden, moved),
            None => {
                measure(burden, Moved { piece: &NOTHING, from: burden.server, to: burden.server })
            }
        });
        measured.clone().max().unwrap_or(0) - measured.min().unwrap_or(0)
    }

    /// Whether memory is shared as well as it has to be, or no worse than now, when a piece has
    /// moved.
    fn keeps_memory(&self, moved: Moved<'_>) -> bool {
        let now = self.spread(None, Burden::fill_after);
        self.spread(Some(moved), Burden::fill_after) <= now.max(UNEVEN_FILL)
    }

    fn keeps_requests(&self, moved: Moved<'_>) -> bool {
        let now = self.spread(None, Burden::requests_after);
        self.spread(Some(moved), Burden::requests_after) <= now.max(self.uneven_requests())
    }

    fn uneven_requests(&self) -> u64 {
        let all: u64 = self.burdens.iter().map(Burden::requests).sum();
        UNEVEN_REQUESTS + all / (self.burdens.len() as u64).max(1) / 2
    }

    fn by_memory(&self) -> Option<(Tablet, u32)> {
        let (from, to) = self.ends(Burden::fill)?;
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
        let (from, to) = self.ends(Burden::requests)?;
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
        let (from, to) = self.ends(Burden::number)?;
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
