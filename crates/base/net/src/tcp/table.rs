//! The connections of a driver, by slot and by peer.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::conn::Conn;

/// Connections in slots. Slots are reused, and a serial distinguishes successive connections in a
/// slot.
pub(super) struct Table {
    slots: Vec<Option<Conn>>,
    free: Vec<usize>,
    /// The slots in use, in no order. The next field has the position of each slot in this list.
    live: Vec<usize>,
    positions: Vec<usize>,
    by_peer: HashMap<SocketAddr, usize>,
    /// The peer that was looked up last, and its slot, so that successive frames to one peer need
    /// no hashing.
    last: Option<(SocketAddr, usize)>,
    serial: u32,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            live: Vec::new(),
            positions: Vec::new(),
            by_peer: HashMap::new(),
            last: None,
            serial: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// Returns the slot at `position` in the list of slots in use. `position` is from 0 to
    /// [`len`](Self::len) - 1.
    pub(super) fn slot_at(&self, position: usize) -> usize {
        self.live[position]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.live.iter().filter_map(|&slot| self.slots[slot].as_ref())
    }

    /// Returns the slot of the connection with `peer`.
    pub(super) fn find(&mut self, peer: SocketAddr) -> Option<usize> {
        if let Some((last, slot)) = self.last
            && last == peer
        {
            return Some(slot);
        }
        let slot = *self.by_peer.get(&peer)?;
        self.last = Some((peer, slot));
        Some(slot)
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Conn> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Inserts the connection that `make` returns for a new serial. Its peer must have no
    /// connection in the table.
    pub(super) fn insert(&mut self, make: impl FnOnce(u32) -> Conn) -> (usize, &mut Conn) {
        self.serial = self.serial.wrapping_add(1);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.positions.push(0);
            self.slots.len() - 1
        });
        self.positions[slot] = self.live.len();
        self.live.push(slot);
        let conn = self.slots[slot].insert(make(self.serial));
        let before = self.by_peer.insert(conn.peer, slot);
        assert!(before.is_none(), "one connection a peer");
        (slot, conn)
    }

    pub(super) fn remove(&mut self, slot: usize) -> Option<Conn> {
        let conn = self.slots.get_mut(slot)?.take()?;
        let position = self.positions[slot];
        self.live.swap_remove(position);
        if let Some(&moved) = self.live.get(position) {
            self.positions[moved] = position;
        }
        self.free.push(slot);
        self.by_peer.remove(&conn.peer);
        self.last = None;
        Some(conn)
    }
}
