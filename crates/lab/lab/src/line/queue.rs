//! The packets that wait for the transmitter, and the choice of the segment that is sent next.
//!
//! *Drop-tail* is one queue. The *harmonizer* has a queue for each flow and serves them by deficit
//! round robin (Shreedhar and Varghese, 1995). In its turn a flow may send [`QUANTUM`] bytes. Bytes
//! that it does not use are added to its next turn, unless its queue becomes empty. So flows get
//! equal shares in bytes, whatever the sizes of their frames.
//!
//! On a line with a rate, an idle flow saves its share of up to [`SAVING`] as credit. It then sends
//! up to [`BOOST`] quanta in a turn until the credit is spent. So shares are equal over a round
//! trip. A new TCP connection, which sends its window in bursts, reaches its share in slow start.
//!
//! The segments of a super-packet take turns like single frames. The super-packet itself moves on
//! whole when its last segment has left: if it were split, the receiver's kernel would merge the
//! parts again.
//!
//! When the buffer is full, the harmonizer drops from the queue with the most bytes (McKenney 1990;
//! RFC 8290, 4.1.3). So a flow that sends less than its share loses nothing, whatever the others
//! send. The harmonizer drops from the head of the queue: the sender then learns of the loss
//! earlier than if the last packet of the queue had been dropped.

use super::clock::Clock;
use super::flows::{Flows, Slot};
use super::longest::Longest;
use super::settings::{Discipline, LineSettings, Timing};
use crate::frame::{ETHERNET_BYTES, Packet, Segments, WIRE_OVERHEAD};
use crate::memory::Memory;
use crate::time::Time;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Bytes of a frame that must have arrived before cut-through may begin to send it: the Ethernet
/// header.
const CUT_THROUGH_BYTES: u64 = ETHERNET_BYTES as u64;

/// Bytes on a wire before that header: preamble and start of frame. Cut-through also waits for
/// these bytes.
const PREAMBLE_BYTES: u64 = 8;

/// Bytes on the wire that a flow may send in its turn: a full frame of Ethernet's usual 1,500
/// bytes.
const QUANTUM: u64 = 1_500 + ETHERNET_BYTES as u64 + WIRE_OVERHEAD as u64;

/// Limit on the quanta that a flow with credit is granted for a turn. With this many, a TCP flow in
/// slow start whose window has reached its share of a pipe sends that window within half a round
/// trip. CUBIC then stops doubling the window (HyStart).
const BOOST: u64 = 8;

/// Limit on the time for which an idle flow saves its share as credit: the round trip over two
/// lines with the longest delay.
const SAVING: Duration = Duration::from_secs(1);

/// The result of dropping from a queue to make room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Shed {
    /// The slot of the flow that lost segments.
    pub(super) slot: u16,
    /// The number of segments that were dropped.
    pub(super) segments: u32,
    /// Whether the packet is gone, because no other segments of it were left.
    pub(super) packet: bool,
}

/// Packets that wait for the transmitter. The line's buffer bounds them.
#[derive(Debug)]
pub(super) struct Queue {
    discipline: Discipline,
    /// All packets with their flows' slots. Only drop-tail uses it.
    fifo: VecDeque<(u16, Packet)>,
    /// The slots of flows that have packets; the first has the next turn. Only the harmonizer uses
    /// it.
    turns: VecDeque<u16>,
    /// The queues of the flows in `turns`, ordered by the bytes that wait.
    longest: Longest,
    /// Bytes on the wire that wait.
    bytes: u64,
    segments: u64,
}

impl Queue {
    pub(super) fn new(discipline: Discipline) -> Self {
        Self {
            discipline,
            fifo: VecDeque::new(),
            turns: VecDeque::new(),
            longest: Longest::new(),
            bytes: 0,
            segments: 0,
        }
    }

    /// Returns the bytes on the wire whose transmission has not begun.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of segments in the queue. Of a packet that has begun to leave, all
    /// segments count.
    pub(super) fn segments(&self) -> u64 {
        self.segments
    }

    /// Adds a packet at the end of the discipline's queue. If the packet's flow was idle, first
    /// resets the flow's deficit and grants it credit for the idle time.
    pub(super) fn push(
        &mut self,
        slot: u16,
        packet: Packet,
        flows: &mut Flows,
        settings: &LineSettings,
        now: Time,
    ) {
        let wire = packet.frame().segments.wire_bytes(settings.overhead);
        let flow = flows.at_mut(slot);
        let idle_since = flow.idle_since.take();
        // A packet that arrives before the flow's last bit has left continues the flow's turn.
        if flow.queue.is_empty() && idle_since.is_none_or(|idle| idle < now) {
            flow.deficit = 0;
            if let (Some(idle), Some(rate)) = (idle_since, settings.rate) {
                flow.credit +=
                    rate.bytes_in(now.since(idle).min(SAVING)) / (self.turns.len() as u64 + 1);
            }
        }
        self.add(slot, packet, wire, flows, settings);
    }

    /// Adds a packet, of which `wire` bytes have not left yet.
    fn add(
        &mut self,
        slot: u16,
        packet: Packet,
        wire: u64,
        flows: &mut Flows,
        settings: &LineSettings,
    ) {
        self.bytes += wire;
        self.segments += u64::from(packet.count());
        let flow = flows.at_mut(slot);
        flow.counters.queue += wire;
        match self.discipline {
            Discipline::DropTail => self.fifo.push_back((slot, packet)),
            Discipline::Harmonize => {
                flow.queue.push_back(packet);
                if flow.queue.len() == 1 {
                    self.turns.push_back(slot);
                    if flow.next_wire(settings.overhead).is_some_and(|next| flow.deficit < next) {
                        self.grant(flow, settings);
                    }
                }
                self.longest.set(slot, flow.counters.queue);
            }
        }
    }

    /// Drops segments of one packet at the head of the harmonizer's longest queue: as many as make
    /// up `bytes`, or as make that queue as short as the second longest if that is less. Drops at
    /// least one segment and at most the packet. With `None`, drops the whole packet, to free its
    /// memory. Never drops all of a packet whose transmission has begun. If nothing can be dropped
    /// from the longest queue, drops from the queue of `newest`, the flow whose packet has just
    /// arrived. Returns `None` if nothing can be dropped there either.
    pub(super) fn shed(
        &mut self,
        bytes: Option<u64>,
        newest: u16,
        flows: &mut Flows,
        overhead: u16,
        memory: &mut Memory,
    ) -> Option<Shed> {
        let longest = self.longest.first()?;
        let bytes = bytes.map_or(u64::MAX, |bytes| bytes.min(self.longest.lead()));
        let cut = |slot: u16, flows: &mut Flows, memory: &mut Memory| {
            flows.at_mut(slot).cut(bytes, overhead, memory).map(|cut| (slot, cut))
        };
        let (slot, (segments, wire, packet)) =
            cut(longest, flows, memory).or_else(|| cut(newest, flows, memory))?;
        if flows.at(slot).queue.is_empty() {
            self.turns.retain(|&other| other != slot);
        }
        self.segments -= u64::from(segments);
        self.subtract(slot, wire, flows);
        Some(Shed { slot, segments, packet })
    }

    /// Begins the transmissions that can begin by `now`. When the last segment of a packet is sent,
    /// calls `left` with the packet and the time at which its last bit leaves.
    pub(super) fn serve(
        &mut self,
        now: Time,
        clock: &mut Clock,
        settings: &LineSettings,
        flows: &mut Flows,
        mut left: impl FnMut(Packet, Time),
    ) {
        while let Some((turn, start)) = self.next_start(clock, settings, flows)
            && start <= now
        {
            match self.discipline {
                Discipline::DropTail => {
                    let (slot, packet) = self.fifo.pop_front().expect("it has a start");
                    // Segments of the flow's first packet may have left in turns, before the
                    // discipline was changed to drop-tail.
                    let sent = std::mem::take(&mut flows.at_mut(slot).sent);
                    let wire = remaining(packet.frame().segments, sent, settings.overhead);
                    let end = clock.transmit(start, wire, settings.rate);
                    self.subtract(slot, wire, flows);
                    self.segments -= u64::from(packet.count());
                    left(packet, end);
                }
                Discipline::Harmonize => {
                    let slot = self.turns[turn];
                    let flow = flows.at_mut(slot);
                    let segments = flow.queue.front().expect("it has a turn").frame().segments;
                    let wire = segments.wire_bytes_of(flow.sent, settings.overhead);
                    if flow.deficit < wire {
                        // The flow saves up for a frame that is longer than a turn.
                        self.next_turn(turn, flow, settings);
                        continue;
                    }
                    flow.deficit -= wire;
                    let end = clock.transmit(start, wire, settings.rate);
                    flow.clock.transmit(start, wire, settings.flow_rate);
                    flow.sent += 1;
                    if flow.sent == segments.count {
                        flow.sent = 0;
                        let packet = flow.queue.pop_front().expect("it has a turn");
                        self.segments -= u64::from(packet.count());
                        left(packet, end);
                    }
                    match flow.next_wire(settings.overhead) {
                        None => {
                            self.turns.remove(turn);
                            flow.idle_since = Some(end);
                        }
                        Some(next) if flow.deficit < next => self.next_turn(turn, flow, settings),
                        Some(_) => {}
                    }
                    self.subtract(slot, wire, flows);
                }
            }
        }
    }

    /// Ends a flow's turn: moves the flow to the end of `turns`, and grants it bytes for its next
    /// turn.
    fn next_turn(&mut self, turn: usize, flow: &mut Slot, settings: &LineSettings) {
        self.grant(flow, settings);
        let slot = self.turns.remove(turn).expect("it has a turn");
        self.turns.push_back(slot);
    }

    /// Lets a flow send a quantum in its next turn, and more if it has credit. Reduces the credit
    /// to what the flow's share would be in [`SAVING`], among the flows that wait now.
    fn grant(&self, flow: &mut Slot, settings: &LineSettings) {
        flow.deficit += QUANTUM;
        if flow.credit > 0 {
            let all = settings.rate.map_or(0, |rate| rate.bytes_in(SAVING));
            let credit = flow.credit.min(all / self.turns.len() as u64);
            let more = credit.min((BOOST - 1) * QUANTUM);
            flow.credit = credit - more;
            flow.deficit += more;
        }
    }

    /// Subtracts `wire` bytes, which have left or were dropped, from the queue.
    fn subtract(&mut self, slot: u16, wire: u64, flows: &mut Flows) {
        self.bytes -= wire;
        let counters = flows.counters(slot);
        counters.queue -= wire;
        if self.discipline == Discipline::Harmonize {
            self.longest.set(slot, counters.queue);
        }
    }

    /// Returns a time before which no packet's last bit leaves; `None` if no packet waits.
    pub(super) fn next_end(
        &self,
        clock: &Clock,
        settings: &LineSettings,
        flows: &Flows,
    ) -> Option<Time> {
        let (_, start) = self.next_start(clock, settings, flows)?;
        let wire = match self.discipline {
            Discipline::DropTail => {
                let (slot, packet) = self.fifo.front()?;
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

    /// Returns the index in `turns` of the flow that sends next (0 with drop-tail), and when the
    /// transmission of its segment begins.
    fn next_start(
        &self,
        clock: &Clock,
        settings: &LineSettings,
        flows: &Flows,
    ) -> Option<(usize, Time)> {
        if self.discipline == Discipline::DropTail {
            let (_, packet) = self.fifo.front()?;
            return Some((0, clock.start(ready(packet, settings))));
        }
        let start_of = |&slot: &u16| {
            let flow = flows.at(slot);
            let ready = ready(flow.queue.front().expect("it has a turn"), settings);
            let paced =
                if settings.flow_rate.is_some() { flow.clock.free_at() } else { Time::ZERO };
            clock.start(ready.max(paced))
        };
        let mut best: Option<(usize, Time)> = None;
        for (turn, slot) in self.turns.iter().enumerate() {
            let start = start_of(slot);
            if start <= clock.free_at() {
                return Some((turn, start)); // flows before it begin later, and no flow earlier
            }
            if best.is_none_or(|(_, earliest)| start < earliest) {
                best = Some((turn, start));
            }
        }
        best
    }

    /// Moves the packets to the queues of another discipline, in their order of arrival. Segments
    /// that have left are not sent again.
    pub(super) fn change(&mut self, settings: &LineSettings, flows: &mut Flows) {
        let mut all: Vec<_> = self.fifo.drain(..).collect();
        for slot in self.turns.drain(..) {
            all.extend(flows.at_mut(slot).queue.drain(..).map(|packet| (slot, packet)));
        }
        // The sort is stable: packets of a flow stay in order, and pieces of a packet stay
        // together.
        all.sort_by_key(|(_, packet)| packet.arrived);
        *self = Self::new(settings.queue);
        let mut begun: BTreeSet<u16> = BTreeSet::new();
        for (slot, packet) in all {
            let first = begun.insert(slot);
            if first {
                let flow = flows.at_mut(slot);
                (flow.counters.queue, flow.deficit, flow.credit) = (0, 0, 0);
            }
            let sent = if first { flows.at(slot).sent } else { 0 };
            let wire = remaining(packet.frame().segments, sent, settings.overhead);
            self.add(slot, packet, wire, flows, settings);
        }
    }
}

/// Returns when the transmission of a packet can begin.
fn ready(packet: &Packet, settings: &LineSettings) -> Time {
    let (Timing::CutThrough, Some(rate)) = (settings.timing, settings.rate) else {
        return packet.arrived;
    };
    // Only the last frame of a super-packet is considered, because the frames before it arrived
    // earlier.
    let segments = packet.frame().segments;
    let wire = segments.wire_bytes_of(segments.count - 1, settings.overhead);
    let header = CUT_THROUGH_BYTES + PREAMBLE_BYTES.min(u64::from(settings.overhead));
    packet.arrived.before(rate.time_of(wire.saturating_sub(header)))
}

/// Returns the number of bytes on the wire of all segments but the first `sent`.
fn remaining(segments: Segments, sent: u32, overhead: u16) -> u64 {
    let left = Segments { count: segments.count - sent, ..segments };
    left.wire_bytes(overhead)
}
