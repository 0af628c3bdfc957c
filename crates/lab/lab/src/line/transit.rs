//! The packets under way: sent by the transmitter, but not yet at the far end.

use crate::frame::Packet;
use crate::time::Time;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// Packets under way, ordered by when they arrive. Only the packet memory limits their number.
#[derive(Debug, Default)]
pub(super) struct Transit {
    /// Packets that stay in order; sorted by when they arrive.
    ordered: VecDeque<Packet>,
    /// Packets that were held back.
    held: BinaryHeap<Reverse<Held>>,
    last_due: Time,
    segments: u64,
    number: u64,
}

impl Transit {
    /// Adds a packet that arrives at `due`. If the last packet in `ordered` arrives later, the
    /// packet arrives together with that one.
    pub(super) fn push(&mut self, mut packet: Packet, due: Time) {
        self.segments += u64::from(packet.count());
        self.last_due = self.last_due.max(due);
        packet.due = self.last_due;
        self.ordered.push_back(packet);
    }

    /// Adds a packet that arrives `by` after `due`, so that later packets may overtake it. The
    /// packet itself overtakes no packet in `ordered`.
    pub(super) fn hold(&mut self, mut packet: Packet, due: Time, by: Duration) {
        self.segments += u64::from(packet.count());
        self.number += 1;
        packet.due = self.last_due.max(due) + by;
        self.held.push(Reverse(Held { number: self.number, packet }));
    }

    /// Returns the next packet that has arrived by `now`.
    pub(super) fn pop(&mut self, now: Time) -> Option<Packet> {
        let (ordered, held) = (self.ordered_next(), self.held_next());
        if self.next()? > now {
            return None;
        }
        let packet = match (ordered, held) {
            (Some(ordered), Some(held)) if held < ordered => self.pop_held(),
            (None, Some(_)) => self.pop_held(),
            _ => self.ordered.pop_front(),
        }?;
        self.segments -= u64::from(packet.count());
        Some(packet)
    }

    /// Returns when the next packet arrives.
    pub(super) fn next(&self) -> Option<Time> {
        self.ordered_next().into_iter().chain(self.held_next()).min()
    }

    /// Returns the number of segments under way.
    pub(super) fn segments(&self) -> u64 {
        self.segments
    }

    fn ordered_next(&self) -> Option<Time> {
        self.ordered.front().map(|packet| packet.due)
    }

    fn held_next(&self) -> Option<Time> {
        self.held.peek().map(|Reverse(held)| held.packet.due)
    }

    fn pop_held(&mut self) -> Option<Packet> {
        self.held.pop().map(|Reverse(held)| held.packet)
    }
}

/// A packet that was held back, ordered by time, then by number.
#[derive(Debug)]
struct Held {
    number: u64,
    packet: Packet,
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.packet.due, self.number).cmp(&(other.packet.due, other.number))
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Held {}
