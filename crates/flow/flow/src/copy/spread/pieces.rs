//! Tracks where the pieces of a set are, and what is to be done next. It uses neither clock nor
//! network, so that it can be tested alone.

use super::manifest::StoredPiece;
use crate::group::Value;
use std::collections::VecDeque;

/// What a stream to a host is to do next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PieceTask {
    /// Send this piece.
    Send(usize),
    /// Fetch the values of this piece, to verify the copy that the host has from an earlier run.
    Verify(usize),
    /// Call [`Pieces::take`] again soon. Other streams are at work, and may give a piece back.
    Wait,
    /// All pieces are stored, or the host was dropped.
    Done,
}

/// Where a piece is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PieceState {
    /// The piece is on no host, and no stream sends it.
    Nowhere,
    /// A stream sends the piece to that host, or verifies it there.
    UnderWay(usize),
    /// The host's listing has the piece, but the piece is not verified.
    Listed(usize),
    /// The piece is on a host, and its hash is known.
    At(StoredPiece),
}

/// The pieces of a set and its hosts. A stream calls [`Pieces::take`] for a piece for its host, and
/// then [`Pieces::record_stored`] or [`Pieces::give_back`]. [`Pieces::drop_host`] drops a host, so
/// that its pieces are sent to other hosts.
#[derive(Debug)]
pub(super) struct Pieces {
    pieces: Vec<PieceState>,
    /// Pieces that are on no host and that no stream sends, in the order in which they are taken.
    missing: VecDeque<usize>,
    /// For each host, the pieces in its listing that no stream has begun to verify.
    listed: Vec<VecDeque<usize>>,
    dropped: Vec<bool>,
}

impl Pieces {
    /// Creates the state of `count` pieces. `lists` says for each host which pieces are in its
    /// listing.
    pub(super) fn new(count: usize, lists: &[Vec<bool>]) -> Self {
        let mut this = Self {
            pieces: vec![PieceState::Nowhere; count],
            missing: VecDeque::new(),
            listed: vec![VecDeque::new(); lists.len()],
            dropped: vec![false; lists.len()],
        };
        for piece in 0..count {
            match lists.iter().position(|has| has.get(piece) == Some(&true)) {
                Some(host) => {
                    this.pieces[piece] = PieceState::Listed(host);
                    this.listed[host].push_back(piece);
                }
                None => this.missing.push_back(piece),
            }
        }
        this
    }

    /// Returns what a stream to a host is to do next.
    pub(super) fn take(&mut self, host: usize) -> PieceTask {
        if self.dropped[host] || self.is_over() {
            return PieceTask::Done;
        }
        let (piece, turn): (usize, fn(usize) -> PieceTask) = match self.listed[host].pop_front() {
            Some(piece) => (piece, PieceTask::Verify),
            None => match self.missing.pop_front() {
                Some(piece) => (piece, PieceTask::Send),
                None => return PieceTask::Wait,
            },
        };
        self.pieces[piece] = PieceState::UnderWay(host);
        turn(piece)
    }

    /// Records that a piece, which a stream had taken, is on its host and has this hash. If the
    /// host was dropped meanwhile, records that the piece is on no host.
    pub(super) fn record_stored(&mut self, piece: usize, host: usize, blake3: Value) {
        debug_assert_eq!(self.pieces[piece], PieceState::UnderWay(host), "it was taken");
        if self.dropped[host] {
            self.give_back(piece);
        } else {
            self.pieces[piece] = PieceState::At(StoredPiece { host, blake3 });
        }
    }

    /// Records that a piece, which a stream had taken, is on no host.
    pub(super) fn give_back(&mut self, piece: usize) {
        self.pieces[piece] = PieceState::Nowhere;
        self.missing.push_front(piece);
    }

    /// Drops a host, whose pieces must be sent to other hosts. Returns whether the host was in use.
    pub(super) fn drop_host(&mut self, host: usize) -> bool {
        if std::mem::replace(&mut self.dropped[host], true) {
            return false;
        }
        self.listed[host].clear();
        for (piece, state) in self.pieces.iter_mut().enumerate().rev() {
            let was_there = match state {
                PieceState::Listed(at) => *at == host,
                PieceState::At(piece) => piece.host == host,
                PieceState::Nowhere | PieceState::UnderWay(_) => false, // the stream gives it back
            };
            if was_there {
                *state = PieceState::Nowhere;
                self.missing.push_front(piece);
            }
        }
        true
    }

    /// Returns whether a host was dropped.
    pub(super) fn is_dropped(&self, host: usize) -> bool {
        self.dropped[host]
    }

    /// Returns whether all hosts were dropped.
    pub(super) fn no_host_is_left(&self) -> bool {
        self.dropped.iter().all(|dropped| *dropped)
    }

    /// Returns whether all pieces are stored.
    pub(super) fn is_over(&self) -> bool {
        self.pieces.iter().all(|state| matches!(state, PieceState::At(_)))
    }

    /// Returns whether a piece is on a host: listed, or stored with a known hash.
    pub(super) fn is_at_host(&self, piece: usize) -> bool {
        matches!(self.pieces[piece], PieceState::At(_) | PieceState::Listed(_))
    }

    /// Returns where all pieces are. `None` if some pieces are not stored with a known hash.
    pub(super) fn all(&self) -> Option<Vec<StoredPiece>> {
        let known = |state: &PieceState| {
            if let PieceState::At(piece) = state { Some(*piece) } else { None }
        };
        self.pieces.iter().map(known).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever fails, all pieces end on hosts that were not dropped, each verified or sent.
        #[test]
        fn all_pieces_end_at_hosts_that_are_there(
            count in 0usize..40,
            lists in prop::collection::vec(prop::collection::vec(any::<bool>(), 0..40), 1..5),
            moves in prop::collection::vec((0usize..5, 0u8..10), 0..200),
        ) {
            let hosts = lists.len();
            let mut pieces = Pieces::new(count, &lists);
            let mut under_way: Vec<Option<usize>> = vec![None; hosts];
            let step = |
                pieces: &mut Pieces,
                under_way: &mut Vec<Option<usize>>,
                host: usize,
                action: u8,
            | {
                match (under_way[host].take(), action) {
                    (Some(piece), 0..6) => pieces.record_stored(piece, host, [1; 32]),
                    (Some(piece), _) => pieces.give_back(piece),
                    (None, _) => {
                        let task = pieces.take(host);
                        if let PieceTask::Send(piece) | PieceTask::Verify(piece) = task {
                            under_way[host] = Some(piece);
                        }
                    }
                }
            };
            for (host, action) in moves {
                let host = host % hosts;
                // Host 0 is never dropped.
                if action == 9 && host > 0 {
                    pieces.drop_host(host);
                }
                step(&mut pieces, &mut under_way, host, action);
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
            prop_assert!(all.iter().all(|piece| !pieces.is_dropped(piece.host)));
            prop_assert!((0..hosts).all(|host| pieces.take(host) == PieceTask::Done));
        }
    }

    #[test]
    fn what_a_host_had_is_sent_to_others_when_it_is_gone() {
        let mut pieces = Pieces::new(3, &[vec![true, false, false], vec![]]);
        assert_eq!(
            (pieces.take(1), pieces.take(1), pieces.take(1)),
            (PieceTask::Send(1), PieceTask::Send(2), PieceTask::Wait)
        );
        assert_eq!(pieces.take(0), PieceTask::Verify(0));
        pieces.record_stored(0, 0, [0; 32]);
        pieces.record_stored(1, 1, [1; 32]);
        assert!(pieces.drop_host(0) && !pieces.drop_host(0));
        assert_eq!((pieces.take(0), pieces.take(1)), (PieceTask::Done, PieceTask::Send(0)));
        pieces.record_stored(0, 1, [0; 32]);
        assert_eq!(pieces.all(), None);
        pieces.record_stored(2, 1, [2; 32]);
        assert_eq!(
            pieces.all().unwrap().iter().map(|piece| piece.host).collect::<Vec<_>>(),
            [1, 1, 1]
        );
        assert!(!pieces.no_host_is_left() && pieces.drop_host(1) && pieces.no_host_is_left());
    }
}
