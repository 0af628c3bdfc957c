//! Moves of tablets between live servers: the catalog's record of them, and the choice of the next.

use super::ServerEntry;
use super::balance::{self, PlannedMove};
use super::catalog::{Catalog, MAX_ALL_TABLETS, Refusal};
use super::entries::TabletEntry;
use super::loads::LoadReports;
use super::metadata::Metadata;
use super::rows::{move_key, move_row, server_row, table_row};
use sprat_wire::op::MoveOrder;
use sprat_wire::tablet::{MAX_TABLETS, Tablet};

/// The largest number of moves in progress in the cluster. Each server takes part in at most one
/// move as the source and in at most one as the target.
pub(super) const MAX_MOVES: usize = 64;

/// The bit that is set in the id of a move. In the id of a recovery task it is the highest bit of
/// the coordinator's incarnation.
const IS_MOVE: u64 = 1 << 63;

impl<M: Metadata> Catalog<M> {
    /// Returns the moves under way.
    pub fn moves(&self) -> impl Iterator<Item = &MoveOrder> {
        self.moves.values()
    }

    /// Returns the move with this id.
    pub fn find_move(&self, id: u64) -> Option<MoveOrder> {
        self.moves.get(&id).copied()
    }

    /// Begins to move a tablet, or a part of one, to server `to`. Returns the move's id. If the
    /// same move is under way already, returns its id.
    ///
    /// # Errors
    /// [`Refusal::Limit`] when no server has the whole tablet, either server is dead, missing or
    /// has a log without replicas, `to` has the tablet already, another move has the tablet's owner
    /// as its source or `to` as its target, or a limit on moves or tablets is reached; other
    /// [`Refusal`]s when the metadata cannot be changed.
    pub fn begin_move(&mut self, tablet: Tablet, to: u32) -> Result<u64, Refusal> {
        let owner = self.all_tablets().find(|owned| {
            owned.tablet.table == tablet.table
                && owned.tablet.range.overlap(tablet.range) == Some(tablet.range)
        });
        let owner = owner.ok_or(Refusal::Limit("no server has all of that tablet"))?;
        let from = owner.server;
        if !self.is_replicated(from) || !self.is_replicated(to) {
            return Err(Refusal::Limit(
                "tablets move only between live servers that were started with -r",
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
                "another tablet is moving from or to one of these servers: try again when it has \
                 moved",
            ));
        }
        let parts = 2; // added at most, if the tablet is the middle of another
        if self.tablet_count() + parts > MAX_ALL_TABLETS
            || self.tablet_count_of(tablet.table) + parts > MAX_TABLETS
        {
            return Err(Refusal::Limit("the move would exceed the limit of tablets"));
        }
        let order = MoveOrder { id: IS_MOVE | (self.version() + 1), tablet, from, to };
        self.commit(vec![move_row(&order)], (0, 0))?;
        self.moves.insert(order.id, order);
        Ok(order.id)
    }

    /// Ends a move: the new server has the tablet from now on. Entries of its log count for the
    /// tablet from segment `since` on.
    ///
    /// # Errors
    /// [`Refusal`] when the metadata cannot be changed.
    ///
    /// # Panics
    /// When there is no move with this id.
    pub fn hand_over(&mut self, id: u64, since: u64) -> Result<(), Refusal> {
        let MoveOrder { tablet, from, to, .. } = self.moves[&id];
        let (name, parts) = self
            .tables
            .iter()
            .find(|(_, parts)| parts.id == tablet.table)
            .expect("a table that is dropped ends its moves");
        let take = |part: TabletEntry| {
            assert!(part.server == from, "who loses it ends its moves");
            TabletEntry { server: to, since, ..part }
        };
        let (name, parts) = (name.clone(), parts.with(tablet.range, take));
        self.commit(vec![table_row(&name, &parts), (move_key(id), None)], (0, 0))?;
        self.tables.insert(name, parts);
        self.moves.remove(&id);
        Ok(())
    }

    /// Gives up a move: the tablet stays where it is.
    ///
    /// # Errors
    /// [`Refusal`] when the metadata cannot be changed.
    pub fn end_move(&mut self, id: u64) -> Result<(), Refusal> {
        if self.moves.contains_key(&id) {
            self.commit(vec![(move_key(id), None)], (0, 0))?;
            self.moves.remove(&id);
        }
        Ok(())
    }

    /// Begins or ends draining a server, whose tablets are then moved to other servers.
    ///
    /// # Errors
    /// [`Refusal::Limit`] when there is no such live server or its log has no replicas; other
    /// [`Refusal`]s when the metadata cannot be changed.
    pub fn drain(&mut self, id: u32, draining: bool) -> Result<(), Refusal> {
        let entry = self.server(id).filter(|entry| !entry.dead).cloned();
        let entry = entry.ok_or(Refusal::Limit("there is no such server"))?;
        if entry.copies == 0 {
            return Err(Refusal::Limit("its log has no replicas (-r 0): its tables cannot move"));
        }
        if entry.draining != draining {
            let entry = ServerEntry { draining, ..entry };
            self.commit(vec![server_row(id, &entry)], (0, 0))?;
            self.servers.insert(id, entry);
        }
        Ok(())
    }

    /// Returns a tablet of a server that is being drained, and the server to which to move it: the
    /// one with the fewest tablets among `candidates`, which are live servers.
    pub fn next_drained(&self, candidates: &[u32]) -> Option<(Tablet, u32)> {
        let to = self.least_loaded(candidates)?;
        let drained = self.givers(candidates, to).filter(|&id| self.drains(id));
        drained
            .filter_map(|id| self.tablets_of(id).first().map(|owned| owned.tablet))
            .next()
            .map(|tablet| (tablet, to))
    }

    /// Returns the next move that evens out memory, requests and tablets among `candidates`, which
    /// are live servers: see [`balance`](super::balance).
    pub fn next_balanced(&self, candidates: &[u32], loads: &LoadReports) -> Option<PlannedMove> {
        if self.moves.len() >= MAX_MOVES {
            return None;
        }
        balance::next(&self.server_loads(candidates, loads))
    }

    /// Returns whether balancing may move a tablet from a server, and whether it may move a tablet
    /// to the server.
    pub(super) fn may_move(&self, id: u32) -> (bool, bool) {
        let may = self.is_replicated(id) && !self.drains(id);
        (
            may && self.moves().all(|order| order.from != id),
            may && self.moves().all(|order| order.to != id),
        )
    }

    pub(super) fn drains(&self, id: u32) -> bool {
        self.server(id).is_some_and(|entry| entry.draining)
    }

    fn is_replicated(&self, id: u32) -> bool {
        self.server(id).is_some_and(|entry| entry.copies > 0 && !entry.dead)
    }

    /// Returns the server with the fewest tablets among those that may take one.
    fn least_loaded(&self, candidates: &[u32]) -> Option<u32> {
        let may = |&id: &u32| self.may_move(id).1;
        let free = candidates.iter().copied().filter(may);
        free.min_by_key(|&id| (self.tablets_of(id).len(), id))
            .filter(|_| self.moves.len() < MAX_MOVES)
    }

    /// Returns the servers that may give a tablet to `to`.
    fn givers<'a>(&'a self, candidates: &'a [u32], to: u32) -> impl Iterator<Item = u32> + 'a {
        let may = move |&id: &u32| {
            id != to && self.is_replicated(id) && self.moves().all(|order| order.from != id)
        };
        candidates.iter().copied().filter(may)
    }
}
