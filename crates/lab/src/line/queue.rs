//! What waits for the transmitter, and which segment is next.
//!
//! *Drop-tail* is one queue. The *harmonizer* has a queue for each flow and takes one segment from each in turn; a super-packet
//! of many segments has as many turns, and goes on as one when the last of them has left. So flows share the
//! line as single frames would, and yet nobody has to cut packets apart that the receiver's kernel would join again.

use super::clock::Clock;
use super::flows::Flows;
use super::settings::{Discipline, Settings, Timing};
use crate::frame::{ETHERNET_BYTES, Packet, Segments};
use crate::time::Time;
use std::collections::{BTreeSet, VecDeque};

/// What of a frame has to be in before it may leave by cut-through: its Ethernet header.
const CUT_THROUGH_BYTES: u64 = ETHERNET_BYTES as u64;

/// What cut-through needs of that which comes before the header on a wire: preamble and start of frame.
const PREAMBLE_BYTES: u64 = 8;

/// Packets that wait. Bounded by the buffer that the line is set to.
#[derive(Debug)]
pub(super) struct Queue {
    discipline: Discipline,
    /// All packets by drop-tail.
    one: VecDeque<(u16, Packet)>,
    /// Flows that have packets, by the harmonizer: the next in turn is first.
    turns: VecDeque<u16>,
    /// Bytes on the wire that wait.
    bytes: u64,
    segments: u64,
}

impl Queue {
    pub(super) fn new(discipline: Discipline) -> Self {
        Self { discipline, one: VecDeque::new(), turns: VecDeque::new(), bytes: 0, segments: 0 }
    }

    /// Bytes on the wire of which the transmission has not begun.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Segments in it; of a packet of which some have left, all.
    pub(super) fn segments(&self) -> u64 {
        self.segments
    }

    /// Adds a packet at the end.
    pub(super) fn push(&mut self, slot: u16, packet: Packet, flows: &mut Flows, overhead: u16) {
        let wire = packet.frame().segments.wire_bytes(overhead);
        self.add(slot, packet, wire, flows);
    }

    /// Adds a packet of which so many bytes on the wire have not left.
    fn add(&mut self, slot: u16, packet: Packet, wire: u64, flows: &mut Flows) {
        self.bytes += wire;
        self.segments += u64::from(packet.count());
        let counters = flows.counters(slot);
        counters.queue += wire;
        counters.queue_max = counters.queue_max.max(counters.queue);
        match self.discipline {
            Discipline::DropTail => self.one.push_back((slot, packet)),
            Discipline::Harmonize => {
                let queue = &mut flows.at_mut(slot).queue;
                if queue.is_empty() {
                    self.turns.push_back(slot);
                }
                queue.push_back(packet);
            }
        }
    }

    /// Begins the transmissions that begin by `now`, and hands over each packet whose last segment is among them, with the
    /// time at which its last bit leaves.
    pub(super) fn serve(
        &mut self,
        now: Time,
        clock: &mut Clock,
        settings: &Settings,
        flows: &mut Flows,
        mut left: impl FnMut(Packet, Time),
    ) {
        while let Some((turn, start)) = self.next_start(clock, settings, flows)
            && start <= now
        {
            match self.discipline {
                Discipline::DropTail => {
                    let (slot, packet) = self.one.pop_front().expect("it has a start");
                    // Of the first of a flow, segments may have left in turn before packets waited in one queue.
                    let sent = std::mem::take(&mut flows.at_mut(slot).sent);
                    let wire = remaining(packet.frame().segments, sent, settings.overhead);
                    let end = clock.transmit(start, wire, settings.rate);
                    self.leaves(slot, wire, flows);
                    self.segments -= u64::from(packet.count());
                    left(packet, end);
                }
                Discipline::Harmonize => {
                    let slot = self.turns.remove(turn).expect("it has a start");
                    let flow = flows.at_mut(slot);
                    let segments = flow.queue.front().expect("it has a turn").frame().segments;
                    let wire = segments.wire_bytes_of(flow.sent, settings.overhead);
                    let end = clock.transmit(start, wire, settings.rate);
                    flow.clock.transmit(start, wire, settings.flow_rate);
                    flow.sent += 1;
                    if flow.sent == segments.count {
                        flow.sent = 0;
                        let packet = flow.queue.pop_front().expect("it has a turn");
                        self.segments -= u64::from(packet.count());
                        left(packet, end);
                    }
                    if !flow.queue.is_empty() {
                        self.turns.push_back(slot);
                    }
                    self.leaves(slot, wire, flows);
                }
            }
        }
    }

    fn leaves(&mut self, slot: u16, wire: u64, flows: &mut Flows) {
        self.bytes -= wire;
        flows.counters(slot).queue -= wire;
    }

    /// No packet's last bit leaves before this; none when nothing waits.
    pub(super) fn next_end(&self, clock: &Clock, settings: &Settings, flows: &Flows) -> Option<Time> {
        let (_, start) = self.next_start(clock, settings, flows)?;
        let wire = match self.discipline {
            Discipline::DropTail => {
                let (slot, packet) = self.one.front()?;
                remaining(packet.frame().segments, flows.at(*slot).sent, settings.overhead)
            }
            Discipline::Harmonize => {
                let left = |&slot: &u16| {
                    let flow = flows.at(slot);
                    let segments = flow.queue.front().expect("it has a turn").frame().segments;
                    remaining(segments, flow.sent, settings.overhead)
                };
                self.turns.iter().map(left).min()?
            }
        };
        let mut ahead = *clock;
        Some(ahead.transmit(start, wire, settings.rate))
    }

    /// Which of the turns is next (0 by drop-tail), and when its segment begins.
    fn next_start(&self, clock: &Clock, settings: &Settings, flows: &Flows) -> Option<(usize, Time)> {
        if self.discipline == Discipline::DropTail {
            let (_, packet) = self.one.front()?;
            return Some((0, clock.start(ready(packet, settings))));
        }
        let start_of = |&slot: &u16| {
            let flow = flows.at(slot);
            let ready = ready(flow.queue.front().expect("it has a turn"), settings);
            let paced = if settings.flow_rate.is_some() { flow.clock.free_at() } else { Time::ZERO };
            clock.start(ready.max(paced))
        };
        let mut best: Option<(usize, Time)> = None;
        for (turn, slot) in self.turns.iter().enumerate() {
            let start = start_of(slot);
            if start <= clock.free_at() {
                return Some((turn, start)); // it can wait no shorter, and nobody before it is as early
            }
            if best.is_none_or(|(_, earliest)| start < earliest) {
                best = Some((turn, start));
            }
        }
        best
    }

    /// Lets what waits wait in another way, in the order in which it came. Segments that have left in turn stay gone.
    pub(super) fn change(&mut self, discipline: Discipline, overhead: u16, flows: &mut Flows) {
        let mut all: Vec<_> = self.one.drain(..).collect();
        for slot in self.turns.drain(..) {
            all.extend(flows.at_mut(slot).queue.drain(..).map(|packet| (slot, packet)));
        }
        // Stable: packets of one flow stay in their order, and pieces of one packet together.
        all.sort_by_key(|(_, packet)| packet.arrived);
        *self = Self::new(discipline);
        let mut begun: BTreeSet<u16> = BTreeSet::new();
        for (slot, packet) in all {
            let first = begun.insert(slot);
            if first {
                flows.counters(slot).queue = 0;
            }
            let sent = if first { flows.at(slot).sent } else { 0 };
            let wire = remaining(packet.frame().segments, sent, overhead);
            self.add(slot, packet, wire, flows);
        }
    }
}

/// When the transmission of a packet that has come may begin, or might have begun.
fn ready(packet: &Packet, settings: &Settings) -> Time {
    let (Timing::CutThrough, Some(rate)) = (settings.timing, settings.rate) else { return packet.arrived };
    // Of a super-packet the last frame counts: those before it were in earlier.
    let segments = packet.frame().segments;
    let wire = segments.wire_bytes_of(segments.count - 1, settings.overhead);
    let header = CUT_THROUGH_BYTES + PREAMBLE_BYTES.min(u64::from(settings.overhead));
    packet.arrived.before(rate.time_of(wire.saturating_sub(header)))
}

/// Bytes on the wire of the segments behind the first `sent`.
fn remaining(segments: Segments, sent: u32, overhead: u16) -> u64 {
    let left = Segments { count: segments.count - sent, ..segments };
    left.wire_bytes(overhead)
}
