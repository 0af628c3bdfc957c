//! The flows that a line counts one by one, and the queues of the harmonizer.

use super::clock::Clock;
use super::counters::{FlowCounters, Traffic};
use crate::frame::{Flow, Packet};
use crate::memory::Memory;
use crate::rtt::{Stamps, Tracker};
use crate::time::Time;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Limit on the flows that a line counts one by one. When all slots are taken, a new flow takes the
/// slot of an idle flow. If no idle flow is found, new flows share one slot, both for queueing and
/// for counting. They also use the shared slot as long as packets wait in it.
pub const MAX_FLOWS: usize = 1_024;

/// How long a flow must be silent before another flow may take its slot. This is longer than the
/// round trip over two lines with the longest delay (1 s), and than the pause between two pings.
pub const IDLE: Duration = Duration::from_secs(2);

/// Limit on the slots that are examined for a new flow before it uses the shared slot. The flow's
/// next packet examines the slots after these.
const MAX_PROBES: usize = 8;

/// Index of the shared slot. Its counters include those of flows that lost their slots.
const OTHERS: u16 = 0;

/// The state of one flow, or of all flows that share a slot.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) flow: Flow,
    pub(super) counters: FlowCounters,
    /// Packets of the flow that wait. Only the harmonizer uses it.
    pub(super) queue: VecDeque<Packet>,
    /// Number of segments of the first packet whose transmission has begun.
    pub(super) sent: u32,
    /// Bytes on the wire that the flow may still send in this turn.
    pub(super) deficit: u64,
    /// Bytes on the wire that the flow saved while it was idle, and may send in later turns.
    pub(super) credit: u64,
    /// When the flow's last bit left the transmitter. Only the harmonizer sets it. `None` if the
    /// queue is not empty, if drops emptied it, or if the flow has not sent anything yet.
    pub(super) idle_since: Option<Time>,
    /// Paces the flow's segments by [`LineSettings::flow_rate`](super::LineSettings::flow_rate).
    pub(super) clock: Clock,
    /// Number of the flow's packets on the line, waiting or under way. These packets refer to this
    /// slot.
    present: u64,
    /// When a packet of the flow last arrived.
    last_arrival: Time,
    tracker: Tracker,
}

impl Slot {
    fn new(flow: Flow) -> Self {
        Self {
            flow,
            counters: FlowCounters::default(),
            queue: VecDeque::new(),
            sent: 0,
            deficit: 0,
            credit: 0,
            idle_since: None,
            clock: Clock::default(),
            present: 0,
            last_arrival: Time::ZERO,
            tracker: Tracker::new(&flow),
        }
    }

    /// Returns the bytes on the wire of the flow's next segment; `None` if its queue is empty.
    pub(super) fn next_wire(&self, overhead: u16) -> Option<u64> {
        self.queue.front().map(|packet| packet.frame().segments.wire_bytes_of(self.sent, overhead))
    }

    /// Drops segments of the first packet whose transmission has not begun: as many as make up
    /// `bytes` on the wire, at least one and at most the packet. If the queue has only a packet
    /// whose transmission has begun, drops segments from that packet's end, but keeps at least one
    /// that has not been sent, because the packet leaves when its last segment is sent. Returns the
    /// numbers of segments and of bytes on the wire that were dropped, and whether the packet is
    /// gone. Returns `None` if nothing can be dropped.
    pub(super) fn cut(
        &mut self,
        bytes: u64,
        overhead: u16,
        memory: &mut Memory,
    ) -> Option<(u32, u64, bool)> {
        let begun = usize::from(self.sent > 0);
        let Some(packet) = self.queue.get(begun) else {
            let packet = self.queue.front_mut()?;
            let all = packet.frame().segments;
            let most = (all.count - self.sent).saturating_sub(1);
            let count = all.filling(bytes, overhead).min(most);
            if count == 0 {
                return None;
            }
            packet.truncate(all.count - count, memory);
            return Some((
                count,
                all.wire_bytes(overhead) - packet.frame().segments.wire_bytes(overhead),
                false,
            ));
        };
        let all = packet.frame().segments;
        let count = all.filling(bytes, overhead);
        let packet = self.queue.remove(begun).expect("just seen");
        // If there is no memory for the headers of the rest, the whole packet is dropped, which
        // frees memory.
        let parts = if count < all.count { packet.split(count, memory) } else { Err(packet) };
        match parts {
            Ok((dropped, rest)) => {
                let wire = dropped.frame().segments.wire_bytes(overhead);
                dropped.free(memory);
                self.queue.insert(begun, rest);
                Some((count, wire, false))
            }
            Err(packet) => {
                packet.free(memory);
                Some((all.count, all.wire_bytes(overhead), true))
            }
        }
    }

    /// Returns whether another flow may take the slot: this flow has been silent for [`IDLE`], has
    /// no packet on the line, and is not paced beyond `now`.
    fn is_idle(&self, now: Time) -> bool {
        self.present == 0 && now.since(self.last_arrival) >= IDLE && self.clock.free_at() <= now
    }
}

/// All flows of a line.
#[derive(Debug)]
pub(super) struct Flows {
    slots: Vec<Slot>,
    index: HashMap<Flow, u16>,
    /// The slot that is examined next for a new flow.
    hand: usize,
    forgotten: u64,
}

impl Flows {
    pub(super) fn new() -> Self {
        let index = HashMap::with_capacity(MAX_FLOWS);
        Self { slots: vec![Slot::new(Flow::OTHER)], index, hand: 1, forgotten: 0 }
    }

    /// Returns the slot of a flow. Call it when a packet of the flow arrives.
    pub(super) fn find(&mut self, flow: Flow, now: Time) -> u16 {
        let slot = self.index.get(&flow).copied().unwrap_or_else(|| self.assign_slot(flow, now));
        self.at_mut(slot).last_arrival = now;
        slot
    }

    /// Finds a slot for a new flow: a free one, that of an idle flow, or the shared slot.
    fn assign_slot(&mut self, flow: Flow, now: Time) -> u16 {
        // Earlier packets of this flow may wait in the shared slot; this one must not overtake
        // them.
        if self.slots[0].counters.queue > 0 {
            return OTHERS;
        }
        let slot = if self.slots.len() <= MAX_FLOWS {
            self.slots.push(Slot::new(flow));
            self.slots.len() - 1
        } else {
            let Some(slot) = self.idle(now) else { return OTHERS };
            let evicted = std::mem::replace(&mut self.slots[slot], Slot::new(flow));
            self.index.remove(&evicted.flow);
            self.slots[0].counters.join(&evicted.counters);
            self.forgotten += 1;
            slot
        };
        let slot = u16::try_from(slot).expect("fewer flows than that");
        self.index.insert(flow, slot);
        slot
    }

    /// Examines up to [`MAX_PROBES`] slots from `hand` on, and returns the first idle one.
    fn idle(&mut self, now: Time) -> Option<usize> {
        for _ in 0..MAX_PROBES {
            let at = self.hand;
            self.hand = if at < MAX_FLOWS { at + 1 } else { 1 };
            if self.slots[at].is_idle(now) {
                return Some(at);
            }
        }
        None
    }

    /// Measures round trips with a packet that arrived. Does nothing for the shared slot.
    pub(super) fn measure_rtt(&mut self, slot: u16, packet: &Packet, now: Time, stamps: &Stamps) {
        if slot != OTHERS {
            let Slot { tracker, counters, .. } = self.at_mut(slot);
            tracker.observe(packet, now, stamps, &mut counters.round_trips);
        }
    }

    /// Counts a packet that enters the line.
    pub(super) fn add_packet(&mut self, slot: u16) {
        self.at_mut(slot).present += 1;
    }

    /// Removes a dropped packet from the count of the flow's packets on the line.
    pub(super) fn drop_packet(&mut self, slot: u16) {
        self.at_mut(slot).present -= 1;
    }

    /// Counts a packet that has left the line.
    pub(super) fn packet_left(&mut self, packet: &Packet) {
        let slot = self.at_mut(packet.slot);
        slot.present -= 1;
        slot.counters.left.add(traffic(packet));
        slot.counters.passage_ns = crate::time::nanos(packet.due.since(packet.arrived));
    }

    /// Returns the number of times that a flow lost its slot to another flow.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    pub(super) fn at(&self, slot: u16) -> &Slot {
        &self.slots[usize::from(slot)]
    }

    pub(super) fn at_mut(&mut self, slot: u16) -> &mut Slot {
        &mut self.slots[usize::from(slot)]
    }

    pub(super) fn counters(&mut self, slot: u16) -> &mut FlowCounters {
        &mut self.at_mut(slot).counters
    }

    /// Returns the counters of each flow, and those of the shared slot.
    pub(super) fn counted(&self) -> (Vec<(Flow, FlowCounters)>, FlowCounters) {
        let counted = self.slots[1..].iter().map(|slot| (slot.flow, slot.counters)).collect();
        (counted, self.slots[0].counters)
    }
}

/// Returns a packet's segments and bytes.
pub(super) fn traffic(packet: &Packet) -> Traffic {
    let segments = packet.frame().segments;
    Traffic { segments: u64::from(segments.count), bytes: segments.bytes() }
}
