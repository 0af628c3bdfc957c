//! Tablets that are to move while they are served: what is written down of them, and which are to.

use super::Known;
use super::balance::{self, Sake};
use super::catalog::{Catalog, MAX_ALL_TABLETS, Refusal};
use super::entries::Part;
use super::loads::Loads;
use super::metadata::Metadata;
use super::rows::{move_key, move_row, server_row, table_row};
use sprat_wire::op::MoveOrder;
use sprat_wire::tablet::{MAX_TABLETS, Tablet};

/// Most moves at a time. Each is from another server, and to another.
pub(super) const MAX_MOVES: usize = 64;

/// What tells a move's number from that of a recovery.
const IS_MOVE: u64 = 1 << 63;

impl<M: Metadata> Catalog<M> {
    /// What is to move now.
    pub fn moves(&self) -> impl Iterator<Item = &MoveOrder> {
        self.moves.values()
    }

    /// The move of a number.
    pub fn find_move(&self, id: u64) -> Option<MoveOrder> {
        self.moves.get(&id).copied()
    }

    /// A tablet, or a part of one, is to move to server `to`. Returns the move's number; that of
    /// the one under way if it is just that.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn begin_move(&mut self, tablet: Tablet, to: u32) -> Result<u64, Refusal> {
        let owner = self.all().find(|owned| {
            owned.tablet.table == tablet.table
                && owned.tablet.range.overlap(tablet.range) == Some(tablet.range)
        });
        let owner = owner.ok_or(Refusal::Limit("no server has all of that tablet"))?;
        let from = owner.server;
        if !self.is_kept(from) || !self.is_kept(to) {
            return Err(Refusal::Limit(
                "tablets move from and to servers that are there, and have been started with -r",
            ));
        }
        if from == to {
            return Err(Refusal::Limit("that server has the tablet already"));
        }
        let same = |order: &&MoveOrder| order.tablet == tablet && order.to == to;
        if let Some(order) = self.moves().find(same) {
            return Ok(order.id);
        }
        if self.moves().any(|order| order.from == from || order.to == to)
            || self.moves.len() >= MAX_MOVES
        {
            return Err(Refusal::Limit(
                "another tablet moves from or to one of these servers now: ask again when it has",
            ));
        }
        let parts = 2; // at most: what is in front of it, and what is behind it
        if self.tablets() + parts > MAX_ALL_TABLETS
            || self.tablets_in(tablet.table) + parts > MAX_TABLETS
        {
            return Err(Refusal::Limit("there would be more tablets than there may be"));
        }
        let order = MoveOrder { id: IS_MOVE | (self.version() + 1), tablet, from, to };
        self.commit(vec![move_row(&order)], (0, 0))?;
        self.moves.insert(order.id, order);
        Ok(order.id)
    }

    /// A tablet has moved: it is with its new server, entries of whose log count for it from
    /// segment `since` on.
    ///
    /// # Errors
    /// [`Refusal`].
    ///
    /// # Panics
    /// When there is no such move.
    pub fn hand_over(&mut self, id: u64, since: u64) -> Result<(), Refusal> {
        let MoveOrder { tablet, from, to, .. } = self.moves[&id];
        let (name, parts) = self
            .tables
            .iter()
            .find(|(_, parts)| parts.id == tablet.table)
            .expect("a table that is dropped ends its moves");
        let take = |part: Part| {
            assert!(part.server == from, "who loses it ends its moves");
            Part { server: to, since, ..part }
        };
        let (name, parts) = (name.clone(), parts.with(tablet.range, take));
        self.commit(vec![table_row(&name, &parts), (move_key(id), None)], (0, 0))?;
        self.tables.insert(name, parts);
        self.moves.remove(&id);
        Ok(())
    }

    /// A tablet stays where it is.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn end_move(&mut self, id: u64) -> Result<(), Refusal> {
        if self.moves.contains_key(&id) {
            self.commit(vec![(move_key(id), None)], (0, 0))?;
            self.moves.remove(&id);
        }
        Ok(())
    }

    /// A server's tablets are to move to others, or are not any more.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn drain(&mut self, id: u32, draining: bool) -> Result<(), Refusal> {
        let known = self.server(id).filter(|known| !known.dead).cloned();
        let known = known.ok_or(Refusal::Limit("there is no such server"))?;
        if known.copies == 0 {
            return Err(Refusal::Limit("it keeps its log itself: its tables cannot be elsewhere"));
        }
        if known.draining != draining {
            let known = Known { draining, ..known };
            self.commit(vec![server_row(id, &known)], (0, 0))?;
            self.servers.insert(id, known);
        }
        Ok(())
    }

    /// What to move next off a server that is drained, and to whom among `candidates`, servers that
    /// live: to who serves fewest tablets.
    pub fn next_drained(&self, candidates: &[u32]) -> Option<(Tablet, u32)> {
        let to = self.least(candidates)?;
        let drained = self.givers(candidates, to).filter(|&id| self.drains(id));
        drained
            .filter_map(|id| self.tablets_of(id).first().map(|owned| owned.tablet))
            .next()
            .map(|tablet| (tablet, to))
    }

    /// What to move next so that all of `candidates`, servers that live, share memory, requests and
    /// tablets, and to whom: see [`balance`](super::balance). At each time one from a server,
    /// and one to it.
    pub fn next_balanced(&self, candidates: &[u32], loads: &Loads) -> Option<(Tablet, u32, Sake)> {
        if self.moves.len() >= MAX_MOVES {
            return None;
        }
        balance::next(&self.burdens(candidates, loads))
    }

    /// Whether something may move from a server for the sake of others, and whether something may
    /// move to it.
    pub(super) fn may_move(&self, id: u32) -> (bool, bool) {
        let may = self.is_kept(id) && !self.drains(id);
        (
            may && self.moves().all(|order| order.from != id),
            may && self.moves().all(|order| order.to != id),
        )
    }

    pub(super) fn drains(&self, id: u32) -> bool {
        self.server(id).is_some_and(|known| known.draining)
    }

    fn is_kept(&self, id: u32) -> bool {
        self.server(id).is_some_and(|known| known.copies > 0 && !known.dead)
    }

    /// Who serves fewest tablets of those that may be given one.
    fn least(&self, candidates: &[u32]) -> Option<u32> {
        let may = |&id: &u32| self.may_move(id).1;
        let free = candidates.iter().copied().filter(may);
        free.min_by_key(|&id| (self.tablets_of(id).len(), id))
            .filter(|_| self.moves.len() < MAX_MOVES)
    }

    /// Those that may give a tablet to `to`.
    fn givers<'a>(&'a self, candidates: &'a [u32], to: u32) -> impl Iterator<Item = u32> + 'a {
        let may = move |&id: &u32| {
            id != to && self.is_kept(id) && self.moves().all(|order| order.from != id)
        };
        candidates.iter().copied().filter(may)
    }
}
