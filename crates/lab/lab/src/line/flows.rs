//! The flows that a line tells apart: what each has done, and where its packets wait when they wait
//! by flow.

use super::clock::Clock;
use super::counters::{FlowCounters, Traffic};
use crate::frame::{Flow, Packet};
use crate::memory::Memory;
use crate::rtt::{Stamps, Tracker};
use crate::time::Time;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Most flows that a line tells apart at a time. One that comes when there are so many gets the
/// place of one that is idle; while there is none, newcomers share one place, in queues and in
/// counters.
pub const MAX_FLOWS: usize = 1_024;

/// How long nothing must have come of a flow before another gets its place: longer than any round
/// trip here, or than ping pauses.
pub const IDLE: Duration = Duration::from_secs(2);

/// Places looked at for a newcomer before it shares; its next packet looks at the next ones.
const LOOKS: usize = 8;

/// Where flows beyond that are, and the counters of those that had to go.
const OTHERS: u16 = 0;

/// One flow, or all that have no place of their own.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) flow: Flow,
    pub(super) counters: FlowCounters,
    /// Packets that wait in turn.
    pub(super) queue: VecDeque<Packet>,
    /// Segments of the first of them that have left.
    pub(super) sent: u32,
    /// Bytes on the wire that it may send in this turn.
    pub(super) deficit: u64,
    /// Bytes on the wire of its share that it has not used, and may use on top of its turns.
    pub(super) credit: u64,
    /// When its queue became empty, if it is, and it has sent something.
    pub(super) idle_since: Option<Time>,
    /// When its next segment may, at the flow's own rate.
    pub(super) clock: Clock,
    /// Its packets on the line: waiting and under way. They know it by its place.
    present: u64,
    /// When something came last.
    came: Time,
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
            came: Time::ZERO,
            tracker: Tracker::new(&flow),
        }
    }

    /// Bytes on the wire of the segment that leaves next.
    pub(super) fn next_wire(&self, overhead: u16) -> Option<u64> {
        self.queue.front().map(|packet| packet.frame().segments.wire_bytes_of(self.sent, overhead))
    }

    /// Drops segments of the first packet whose transmission has not begun: so many that they are
    /// `bytes` on the wire, one at least. Where only the first packet is left, which has begun,
    /// the last segments of that, but not the very last, with which it goes on. Returns how
    /// many segments and bytes on the wire were dropped, and whether the packet is gone with them;
    /// `None` where there was nothing to drop.
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
        // Without memory for the headers of a rest all of it goes, and gives memory back.
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

    /// Whether another flow may have its place, for nothing is to come of this one that could be
    /// told from outside.
    fn is_idle(&self, now: Time) -> bool {
        self.present == 0 && now.since(self.came) >= IDLE && self.clock.free_at() <= now
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Flows {
    slots: Vec<Slot>,
    index: HashMap<Flow, u16>,
    /// The place that is looked at next for a newcomer.
    hand: usize,
    forgotten: u64,
}

impl Flows {
    pub(super) fn new() -> Self {
        let index = HashMap::with_capacity(MAX_FLOWS);
        Self { slots: vec![Slot::new(Flow::OTHER)], index, hand: 1, forgotten: 0 }
    }

    /// The place of a flow of which something comes now.
    pub(super) fn find(&mut self, flow: Flow, now: Time) -> u16 {
        let slot = self.index.get(&flow).copied().unwrap_or_else(|| self.place(flow, now));
        self.at_mut(slot).came = now;
        slot
    }

    /// Finds a place for a newcomer.
    fn place(&mut self, flow: Flow, now: Time) -> u16 {
        // What waits in the shared place may be of this flow, and must not be overtaken.
        if self.slots[0].counters.queue > 0 {
            return OTHERS;
        }
        let slot = if self.slots.len() <= MAX_FLOWS {
            self.slots.push(Slot::new(flow));
            self.slots.len() - 1
        } else {
            let Some(slot) = self.idle(now) else { return OTHERS };
            let gone = std::mem::replace(&mut self.slots[slot], Slot::new(flow));
            self.index.remove(&gone.flow);
            self.slots[0].counters.join(&gone.counters);
            self.forgotten += 1;
            slot
        };
        let slot = u16::try_from(slot).expect("fewer flows than that");
        self.index.insert(flow, slot);
        slot
    }

    /// The hand goes round over the places, and stops at one that is idle.
    fn idle(&mut self, now: Time) -> Option<usize> {
        for _ in 0..LOOKS {
            let at = self.hand;
            self.hand = if at < MAX_FLOWS { at + 1 } else { 1 };
            if self.slots[at].is_idle(now) {
                return Some(at);
            }
        }
        None
    }

    /// Looks for round trips in a packet that came; of flows that share a place there are none.
    pub(super) fn time(&mut self, slot: u16, packet: &Packet, now: Time, stamps: &Stamps) {
        if slot != OTHERS {
            let Slot { tracker, counters, .. } = self.at_mut(slot);
            tracker.look(packet, now, stamps, &mut counters.round_trips);
        }
    }

    /// A packet is on the line from now on.
    pub(super) fn enters(&mut self, slot: u16) {
        self.at_mut(slot).present += 1;
    }

    /// A packet that was on the line is dropped.
    pub(super) fn gone(&mut self, slot: u16) {
        self.at_mut(slot).present -= 1;
    }

    /// A packet has come through.
    pub(super) fn leaves(&mut self, packet: &Packet) {
        let slot = self.at_mut(packet.slot);
        slot.present -= 1;
        slot.counters.left.add(traffic(packet));
        slot.counters.passage_ns = crate::time::nanos(packet.due.since(packet.arrived));
    }

    /// Flows that had to give their place to others.
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

    /// Flows with what they did, and all that have no place together.
    pub(super) fn told(&self) -> (Vec<(Flow, FlowCounters)>, FlowCounters) {
        let told = self.slots[1..].iter().map(|slot| (slot.flow, slot.counters)).collect();
        (told, self.slots[0].counters)
    }
}

/// What a packet is in segments and bytes.
pub(super) fn traffic(packet: &Packet) -> Traffic {
    let segments = packet.frame().segments;
    Traffic { segments: u64::from(segments.count), bytes: segments.bytes() }
}
