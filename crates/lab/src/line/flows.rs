//! The flows that a line tells apart: what each has done, and where its packets wait when they wait by flow.

use super::clock::Clock;
use super::counters::{FlowCounters, Traffic};
use crate::frame::{Flow, Packet};
use std::collections::{HashMap, VecDeque};

/// Most flows that a line tells apart. Those that come later share one place, in queues and in counters.
pub const MAX_FLOWS: usize = 1_024;

/// Where flows beyond that are.
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
    /// When its next segment may, at the flow's own rate.
    pub(super) clock: Clock,
}

impl Slot {
    fn new(flow: Flow) -> Self {
        Self { flow, counters: FlowCounters::default(), queue: VecDeque::new(), sent: 0, clock: Clock::default() }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Flows {
    slots: Vec<Slot>,
    index: HashMap<Flow, u16>,
}

impl Flows {
    pub(super) fn new() -> Self {
        Self { slots: vec![Slot::new(Flow::OTHER)], index: HashMap::with_capacity(MAX_FLOWS) }
    }

    /// The place of a flow.
    pub(super) fn find(&mut self, flow: Flow) -> u16 {
        if let Some(&slot) = self.index.get(&flow) {
            return slot;
        }
        if self.slots.len() > MAX_FLOWS {
            return OTHERS;
        }
        let slot = u16::try_from(self.slots.len()).expect("fewer flows than that");
        self.slots.push(Slot::new(flow));
        self.index.insert(flow, slot);
        slot
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

    /// Flows with what they did, and all those beyond the limit together.
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
