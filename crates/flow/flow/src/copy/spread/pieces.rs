//! Which pieces of a set are where, and what is to be done next: without time or network, so that
//! it can be tried by itself.

use super::manifest::Piece;
use crate::group::Value;
use std::collections::VecDeque;

/// What somebody who speaks to a host is to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Turn {
    /// Send this piece.
    Send(usize),
    /// Ask for the values of this one, which the host has from an earlier run.
    Ask(usize),
    /// Ask again soon: others are at work, and may give something back.
    Wait,
    /// All pieces are somewhere, or the host is done without.
    Over,
}

/// Where a piece is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Where {
    /// Nowhere, and nobody sends it.
    Nowhere,
    /// Somebody sends it to that host, or asks it.
    UnderWay(usize),
    /// There, by what the host lists.
    Listed(usize),
    /// There, with its hash.
    At(Piece),
}

/// All pieces of a set, and its hosts.
#[derive(Debug)]
pub(super) struct Pieces {
    pieces: Vec<Where>,
    /// Those that are nowhere, in order.
    missing: VecDeque<usize>,
    /// Of each host those that it lists.
    listed: Vec<VecDeque<usize>>,
    left: Vec<bool>,
}

impl Pieces {
    /// So many pieces, and for each host which of them it lists.
    pub(super) fn new(count: usize, lists: &[Vec<bool>]) -> Self {
        let mut this = Self {
            pieces: vec![Where::Nowhere; count],
            missing: VecDeque::new(),
            listed: vec![VecDeque::new(); lists.len()],
            left: vec![false; lists.len()],
        };
        for piece in 0..count {
            match lists.iter().position(|has| has.get(piece) == Some(&true)) {
                Some(host) => {
                    this.pieces[piece] = Where::Listed(host);
                    this.listed[host].push_back(piece);
                }
                None => this.missing.push_back(piece),
            }
        }
        this
    }

    /// What is next for a host.
    pub(super) fn take(&mut self, host: usize) -> Turn {
        if self.left[host] || self.is_over() {
            return Turn::Over;
        }
        let (piece, turn): (usize, fn(usize) -> Turn) = match self.listed[host].pop_front() {
            Some(piece) => (piece, Turn::Ask),
            None => match self.missing.pop_front() {
                Some(piece) => (piece, Turn::Send),
                None => return Turn::Wait,
            },
        };
        self.pieces[piece] = Where::UnderWay(host);
        turn(piece)
    }

    /// A piece that was taken is at its host, with this hash.
    pub(super) fn is_there(&mut self, piece: usize, host: usize, blake3: Value) {
        debug_assert_eq!(self.pieces[piece], Where::UnderWay(host), "it was taken");
        if self.left[host] {
            self.give_back(piece);
        } else {
            self.pieces[piece] = Where::At(Piece { host, blake3 });
        }
    }

    /// A piece that was taken is not there.
    pub(super) fn give_back(&mut self, piece: usize) {
        self.pieces[piece] = Where::Nowhere;
        self.missing.push_front(piece);
    }

    /// Does without a host: what it has is to be sent to others. Gives whether that is new.
    pub(super) fn leave(&mut self, host: usize) -> bool {
        if std::mem::replace(&mut self.left[host], true) {
            return false;
        }
        self.listed[host].clear();
        for (piece, place) in self.pieces.iter_mut().enumerate().rev() {
            let was_there = match place {
                Where::Listed(at) => *at == host,
                Where::At(piece) => piece.host == host,
                Where::Nowhere | Where::UnderWay(_) => false, // who sends it there gives it back
            };
            if was_there {
                *place = Where::Nowhere;
                self.missing.push_front(piece);
            }
        }
        true
    }

    /// Whether a host is done without.
    pub(super) fn has_left(&self, host: usize) -> bool {
        self.left[host]
    }

    /// Whether all are.
    pub(super) fn nobody_is_left(&self) -> bool {
        self.left.iter().all(|left| *left)
    }

    /// Whether all pieces are somewhere.
    pub(super) fn is_over(&self) -> bool {
        self.pieces.iter().all(|place| matches!(place, Where::At(_)))
    }

    /// Whether a piece is at a host, by what it lists or by what was sent.
    pub(super) fn is_at_host(&self, piece: usize) -> bool {
        matches!(self.pieces[piece], Where::At(_) | Where::Listed(_))
    }

    /// Where they all are; none: some are nowhere.
    pub(super) fn all(&self) -> Option<Vec<Piece>> {
        let known = |place: &Where| if let Where::At(piece) = place { Some(*piece) } else { None };
        self.pieces.iter().map(known).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever fails, and whoever goes, in the end all pieces are at hosts that are there, each asked or sent.
        #[test]
        fn all_pieces_end_at_hosts_that_are_there(
            count in 0usize..40,
            lists in prop::collection::vec(prop::collection::vec(any::<bool>(), 0..40), 1..5),
            moves in prop::collection::vec((0usize..5, 0u8..10), 0..200),
        ) {
            let hosts = lists.len();
            let mut pieces = Pieces::new(count, &lists);
            let mut under_way: Vec<Option<usize>> = vec![None; hosts];
            let step = |pieces: &mut Pieces, under_way: &mut Vec<Option<usize>>, host: usize, what: u8| {
                match (under_way[host].take(), what) {
                    (Some(piece), 0..6) => pieces.is_there(piece, host, [1; 32]),
                    (Some(piece), _) => pieces.give_back(piece),
                    (None, _) => {
                        if let Turn::Send(piece) | Turn::Ask(piece) = pieces.take(host) {
                            under_way[host] = Some(piece);
                        }
                    }
                }
            };
            for (host, what) in moves {
                let host = host % hosts;
                // One stays.
                if what == 9 && host > 0 {
                    pieces.leave(host);
                }
                step(&mut pieces, &mut under_way, host, what);
            }
            for turn in 0.. {
                prop_assert!(turn < 1000, "it comes to an end");
                if pieces.is_over() {
                    break;
                }
                (0..hosts).for_each(|host| step(&mut pieces, &mut under_way, host, 0));
            }
            let all = pieces.all().unwrap();
            prop_assert_eq!(all.len(), count);
            prop_assert!(all.iter().all(|piece| !pieces.has_left(piece.host)));
            prop_assert!((0..hosts).all(|host| pieces.take(host) == Turn::Over));
        }
    }

    #[test]
    fn what_a_host_had_is_sent_to_others_when_it_is_gone() {
        let mut pieces = Pieces::new(3, &[vec![true, false, false], vec![]]);
        assert_eq!(
            (pieces.take(1), pieces.take(1), pieces.take(1)),
            (Turn::Send(1), Turn::Send(2), Turn::Wait)
        );
        assert_eq!(pieces.take(0), Turn::Ask(0));
        pieces.is_there(0, 0, [0; 32]);
        pieces.is_there(1, 1, [1; 32]);
        assert!(pieces.leave(0) && !pieces.leave(0));
        assert_eq!((pieces.take(0), pieces.take(1)), (Turn::Over, Turn::Send(0)));
        pieces.is_there(0, 1, [0; 32]);
        assert_eq!(pieces.all(), None);
        pieces.is_there(2, 1, [2; 32]);
        assert_eq!(
            pieces.all().unwrap().iter().map(|piece| piece.host).collect::<Vec<_>>(),
            [1, 1, 1]
        );
        assert!(!pieces.nobody_is_left() && pieces.leave(1) && pieces.nobody_is_left());
    }
}
