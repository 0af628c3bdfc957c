//! The connections, by slot and by peer.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::conn::Conn;

/// Connections in slots, which are used again; a serial tells the users of a slot apart.
pub(super) struct Table {
    slots: Vec<Option<Conn>>,
    free: Vec<usize>,
    /// Slots in use, in no order, and where each slot stands in it.
    live: Vec<usize>,
    places: Vec<usize>,
    by_peer: HashMap<SocketAddr, usize>,
    /// The peer looked for last, and its slot: runs of frames to one peer need no hashing.
    last: Option<(SocketAddr, usize)>,
    serial: u32,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            live: Vec::new(),
            places: Vec::new(),
            by_peer: HashMap::new(),
            last: None,
            serial: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// The slot in use at `place`, counted from 0 to [`len`](Self::len).
    pub(super) fn slot_at(&self, place: usize) -> usize {
        self.live[place]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.live.iter().filter_map(|&slot| self.slots[slot].as_ref())
    }

    /// The slot of the connection with `peer`.
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

    /// Puts in a connection made with its serial. Its peer must have none.
    pub(super) fn insert(&mut self, make: impl FnOnce(u32) -> Conn) -> (usize, &mut Conn) {
        self.serial = self.serial.wrapping_add(1);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.places.push(0);
            self.slots.len() - 1
        });
        self.places[slot] = self.live.len();
        self.live.push(slot);
        let conn = self.slots[slot].insert(make(self.serial));
        let before = self.by_peer.insert(conn.peer, slot);
        assert!(before.is_none(), "one connection a peer");
        (slot, conn)
    }

    pub(super) fn remove(&mut self, slot: usize) -> Option<Conn> {
        let conn = self.slots.get_mut(slot)?.take()?;
        let place = self.places[slot];
        self.live.swap_remove(place);
        if let Some(&moved) = self.live.get(place) {
            self.places[moved] = place;
        }
        self.free.push(slot);
        self.by_peer.remove(&conn.peer);
        self.last = None;
        Some(conn)
    }
}
