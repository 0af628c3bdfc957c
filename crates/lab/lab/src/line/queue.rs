//! What waits for the transmitter, and which segment is next.
//!
//! *Drop-tail* is one queue. The *harmonizer* has a queue for each flow and serves them by deficit
//! round robin (Shreedhar and Varghese, 1995): in its turn a flow may send [`QUANTUM`] bytes, and
//! what it does not use of them counts in its next turn. So flows get equal shares in bytes,
//! whatever their frames' sizes. A flow that was idle meanwhile has saved its share of up to
//! [`SAVING`], and sends up to [`BOOST`] quanta in a turn until it has spent that: shares are equal
//! over a round trip, and a TCP that comes late, which sends its window in bursts, gets there in
//! its slow start. The segments of a super-packet take turns as single frames do, and the
//! packet goes on as one when the last of them has left, so nobody has to cut packets apart that
//! the receiver's kernel would join again.
//!
//! When the buffer is full, the harmonizer drops from the longest queue, in bytes (McKenney 1990;
//! RFC 8290, 4.1.3): a flow that asks for less than its share loses nothing, whatever the others
//! send. It drops from the head, so that a sender learns of it a queue's length earlier.

use super::clock::Clock;
use super::flows::{Flows, Slot};
use super::longest::Longest;
use super::settings::{Discipline, Settings, Timing};
use crate::frame::{ETHERNET_BYTES, Packet, Segments, WIRE_OVERHEAD};
use crate::memory::Memory;
use crate::time::Time;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// What of a frame has to be in before it may leave by cut-through: its Ethernet header.
const CUT_THROUGH_BYTES: u64 = ETHERNET_BYTES as u64;

/// What cut-through needs of that which comes before the header on a wire: preamble and start of
/// frame.
const PREAMBLE_BYTES: u64 = 8;

/// Bytes on the wire that a flow may send in its turn: a full frame of Ethernet's usual 1,500
/// bytes.
const QUANTUM: u64 = 1_500 + ETHERNET_BYTES as u64 + WIRE_OVERHEAD as u64;

/// How many quanta a flow may send in a turn while it has credit: enough for the window of a TCP in
/// slow start to pass within half a round trip, which is when CUBIC stops doubling it (HyStart),
/// once that window is the flow's share of a pipe.
const BOOST: u64 = 8;

/// Time for which an idle flow saves its share as credit: the longest round trip over two lines.
const SAVING: Duration = Duration::from_secs(1);

/// What was dropped to make room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Shed {
    /// Whose it was.
    pub(super) slot: u16,
    /// How many segments.
    pub(super) segments: u32,
    /// Whether a whole packet is gone with them.
    pub(super) packet: bool,
}

/// Packets that wait. Bounded by the buffer that the line is set to.
#[derive(Debug)]
pub(super) struct Queue {
    discipline: Discipline,
    /// All packets by drop-tail.
    one: VecDeque<(u16, Packet)>,
    /// Flows that have packets, by the harmonizer: the next in turn is first.
    turns: VecDeque<u16>,
    /// The same flows, by the bytes that wait.
    longest: Longest,
    /// Bytes on the wire that wait.
    bytes: u64,
    segments: u64,
}

impl Queue {
    pub(super) fn new(discipline: Discipline) -> Self {
        Self {
            discipline,
            one: VecDeque::new(),
            turns: VecDeque::new(),
            longest: Longest::new(),
            bytes: 0,
            segments: 0,
        }
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
    pub(super) fn push(
        &mut self,
        slot: u16,
        packet: Packet,
        flows: &mut Flows,
        settings: &Settings,
        now: Time,
    ) {
        let wire = packet.frame().segments.wire_bytes(settings.overhead);
        let flow = flows.at_mut(slot);
        let idle_since = flow.idle_since.take();
        // What comes before the last bit of what was before has left goes on with its turn.
        if flow.queue.is_empty() && idle_since.is_none_or(|idle| idle < now) {
            flow.deficit = 0;
            if let (Some(idle), Some(rate)) = (idle_since, settings.rate) {
                flow.credit +=
                    rate.bytes_in(now.since(idle).min(SAVING)) / (self.turns.len() as u64 + 1);
            }
        }
        self.add(slot, packet, wire, flows, settings);
    }

    /// Adds a packet of which so many bytes on the wire have not left.
    fn add(
        &mut self,
        slot: u16,
        packet: Packet,
        wire: u64,
        flows: &mut Flows,
        settings: &Settings,
    ) {
        self.bytes += wire;
        self.segments += u64::from(packet.count());
        let flow = flows.at_mut(slot);
        flow.counters.queue += wire;
        match self.discipline {
            Discipline::DropTail => self.one.push_back((slot, packet)),
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

    /// Drops up to `bytes` from the head of the longest queue, by the harmonizer: at least one
    /// segment, and no more than makes that queue as long as the next; with none, the first
    /// packet, for its memory. A packet whose transmission has begun is not dropped; if
    /// the longest queue has nothing but the last segment of one, `newest` pays, which has a packet
    /// that has just come.
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
        self.leaves(slot, wire, flows);
        Some(Shed { slot, segments, packet })
    }

    /// Begins the transmissions that begin by `now`, and hands over each packet whose last segment
    /// is among them, with the time at which its last bit leaves.
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
                    // Of the first of a flow, segments may have left in turn before packets waited
                    // in one queue.
                    let sent = std::mem::take(&mut flows.at_mut(slot).sent);
                    let wire = remaining(packet.frame().segments, sent, settings.overhead);
                    let end = clock.transmit(start, wire, settings.rate);
                    self.leaves(slot, wire, flows);
                    self.segments -= u64::from(packet.count());
                    left(packet, end);
                }
                Discipline::Harmonize => {
                    let slot = self.turns[turn];
                    let flow = flows.at_mut(slot);
                    let segments = flow.queue.front().expect("it has a turn").frame().segments;
                    let wire = segments.wire_bytes_of(flow.sent, settings.overhead);
                    if flow.deficit < wire {
                        self.next_turn(turn, flow, settings); // it saves for a frame longer than a turn
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
                    self.leaves(slot, wire, flows);
                }
            }
        }
    }

    /// Ends a flow's turn: it is the last now, and has what it may send when it is first.
    fn next_turn(&mut self, turn: usize, flow: &mut Slot, settings: &Settings) {
        self.grant(flow, settings);
        let slot = self.turns.remove(turn).expect("it has a turn");
        self.turns.push_back(slot);
    }

    /// Lets a flow send a quantum in its next turn, and more if it has credit: at most its share of
    /// [`SAVING`], as many as wait now.
    fn grant(&self, flow: &mut Slot, settings: &Settings) {
        flow.deficit += QUANTUM;
        if flow.credit > 0 {
            let all = settings.rate.map_or(0, |rate| rate.bytes_in(SAVING));
            let credit = flow.credit.min(all / self.turns.len() as u64);
            let more = credit.min((BOOST - 1) * QUANTUM);
            flow.credit = credit - more;
            flow.deficit += more;
        }
    }

    /// Counts bytes that wait no more.
    fn leaves(&mut self, slot: u16, wire: u64, flows: &mut Flows) {
        self.bytes -= wire;
        let counters = flows.counters(slot);
        counters.queue -= wire;
        if self.discipline == Discipline::Harmonize {
            self.longest.set(slot, counters.queue);
        }
    }

    /// No packet's last bit leaves before this; none when nothing waits.
    pub(super) fn next_end(
        &self,
        clock: &Clock,
        settings: &Settings,
        flows: &Flows,
    ) -> Option<Time> {
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
    fn next_start(
        &self,
        clock: &Clock,
        settings: &Settings,
        flows: &Flows,
    ) -> Option<(usize, Time)> {
        if self.discipline == Discipline::DropTail {
            let (_, packet) = self.one.front()?;
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
                return Some((turn, start)); // it can wait no shorter, and nobody before it is as early
            }
            if best.is_none_or(|(_, earliest)| start < earliest) {
                best = Some((turn, start));
            }
        }
        best
    }

    /// Lets what waits wait in another way, in the order in which it came. Segments that have left
    /// in turn stay gone.
    pub(super) fn change(&mut self, settings: &Settings, flows: &mut Flows) {
        let mut all: Vec<_> = self.one.drain(..).collect();
        for slot in self.turns.drain(..) {
            all.extend(flows.at_mut(slot).queue.drain(..).map(|packet| (slot, packet)));
        }
        // Stable: packets of one flow stay in their order, and pieces of one packet together.
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

/// When the transmission of a packet that has come may begin, or might have begun.
fn ready(packet: &Packet, settings: &Settings) -> Time {
    let (Timing::CutThrough, Some(rate)) = (settings.timing, settings.rate) else {
        return packet.arrived;
    };
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
