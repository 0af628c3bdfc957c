//! One direction towards one output port: impairments, a queue, a transmitter, and the propagation
//! delay.
//!
//! ```text
//! push -> [loss, duplicates, corruption] -> [queue, buffer] -> [transmitter, rate]
//!      -> [delay, jitter] -> pop
//! ```
//!
//! A line has no clock and starts no thread. Its owner says when a packet arrives, and asks for the
//! packets that have left by now. All times follow from the times of arrival: to poll late, or
//! seldom, changes none of them.

mod clock;
mod counters;
mod fate;
mod flows;
mod longest;
mod queue;
mod settings;
mod transit;

use crate::frame::Packet;
use crate::memory::{MAX_CELLS, Memory};
use crate::rtt::Stamps;
use crate::time::Time;
use clock::Clock;
use fate::Impairments;
use flows::{Flows, traffic};
use queue::Queue;
use std::sync::Arc;
use std::time::Duration;
use transit::Transit;

pub use counters::{Counters, Drops, FlowCounters, Traffic};
pub use flows::{IDLE, MAX_FLOWS};
pub use settings::{
    DEFAULT_BUFFER, Discipline, GilbertElliott, LineSettings, Loss, MAX_BUFFER, MAX_DELAY,
    MAX_LISTED, MAX_RATE, MIN_RATE, Rate, Reorder, Timing,
};

/// A line: packets enter by [`push`](Self::push) and leave by [`pop`](Self::pop), at times that
/// [`LineSettings`] determines.
///
/// The owner passes the current time to the calls that need it. That time must not go backwards.
/// [`next`](Self::next) returns the time until which the owner may sleep. Packets are in the
/// owner's [`Memory`]. The line allocates nothing for a packet once its queues have grown to their
/// usual size. [`set`](Self::set) changes the settings while packets are on the line, and
/// [`counters`](Self::counters) accounts for every segment.
#[derive(Debug)]
pub struct Line {
    settings: LineSettings,
    impairments: Impairments,
    queue: Queue,
    clock: Clock,
    transit: Transit,
    flows: Flows,
    counters: Counters,
    stamps: Option<Arc<Stamps>>,
}

impl Line {
    /// Makes an empty line.
    #[must_use]
    pub fn new(settings: LineSettings) -> Self {
        Self {
            impairments: Impairments::new(settings.seed, 0),
            queue: Queue::new(settings.queue),
            settings,
            clock: Clock::default(),
            transit: Transit::default(),
            flows: Flows::new(),
            counters: Counters::default(),
            stamps: None,
        }
    }

    /// Makes the line measure round trips, together with the other lines of its box. All lines of a
    /// box share `stamps`.
    #[must_use]
    pub fn with_stamps(self, stamps: Arc<Stamps>) -> Self {
        Self { stamps: Some(stamps), ..self }
    }

    /// Salts the seed. Lines with different salts draw different random numbers from equal seeds.
    #[must_use]
    pub fn salted(self, salt: u64) -> Self {
        Self { impairments: self.impairments.salted(salt), ..self }
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &LineSettings {
        &self.settings
    }

    /// Changes the settings. Packets that have left the transmitter, or that it is sending, keep
    /// their times. Packets that wait follow the new settings, but a smaller buffer drops none of
    /// them. Packets stay in order: after a change to a shorter delay, no packet leaves before the
    /// packets ahead of it.
    pub fn set(&mut self, settings: LineSettings, now: Time) {
        self.serve(now);
        self.impairments.seed(settings.seed);
        let requeue =
            settings.queue != self.settings.queue || settings.overhead != self.settings.overhead;
        self.settings = settings;
        if requeue {
            self.queue.change(&self.settings, &mut self.flows);
        }
        self.serve(now);
    }

    /// Puts a packet on the line. The packet's time on the line begins at `packet.arrived`, which
    /// must not be after `now`.
    pub fn push(&mut self, packet: Packet, now: Time, memory: &mut Memory) {
        self.serve(now);
        let slot = self.flows.find(packet.frame().flow, now);
        if let Some(stamps) = &self.stamps {
            self.flows.measure_rtt(slot, &packet, packet.arrived, stamps);
        }
        let arrived = traffic(&packet);
        self.counters.arrived.add(arrived);
        self.flows.counters(slot).arrived.add(arrived);
        if !fate::impairs(&self.settings) {
            self.impairments.skip(&packet, packet.count());
            return self.admit(slot, packet, now, memory);
        }
        let mut rest = Some(packet);
        while let Some(packet) = rest.take() {
            rest = self.impair(slot, packet, now, memory);
        }
    }

    /// Drops a packet that arrives now, because it is longer than the port's MTU.
    pub fn too_big(&mut self, packet: Packet, now: Time, memory: &mut Memory) {
        let slot = self.flows.find(packet.frame().flow, now);
        let arrived = traffic(&packet);
        self.counters.arrived.add(arrived);
        self.flows.counters(slot).arrived.add(arrived);
        self.dropped(slot, packet, memory, |drops| &mut drops.too_big);
    }

    /// Returns the next packet that has left the line by `now`.
    pub fn pop(&mut self, now: Time) -> Option<Packet> {
        self.serve(now);
        let packet = self.transit.pop(now)?;
        self.counters.left.add(traffic(&packet));
        self.flows.packet_left(&packet);
        Some(packet)
    }

    /// Counts a packet that [`pop`](Self::pop) returned as dropped because the port refused it.
    pub fn refused(&mut self, packet: &Packet) {
        self.take_back(packet, |drops| &mut drops.refused);
    }

    /// Counts a packet that [`pop`](Self::pop) returned as dropped because there was no memory to
    /// cut it into frames that the port accepts.
    pub fn out_of_memory(&mut self, packet: &Packet) {
        self.take_back(packet, |drops| &mut drops.memory);
    }

    /// Returns a time before which no packet leaves the line: often exactly the time at which the
    /// next packet leaves. `None` if the line is empty.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        let waiting = self.queue.next_end(&self.clock, &self.settings, &self.flows);
        waiting.map(|end| end + self.settings.delay).into_iter().chain(self.transit.next()).min()
    }

    /// Returns the counters so far, with the length of the queue at `now`.
    #[must_use]
    pub fn counters(&self, now: Time) -> Counters {
        let (flows, other_flows) = self.flows.counted();
        Counters {
            on_line: self.queue.segments() + self.transit.segments(),
            queue: self.occupancy(now),
            flows,
            other_flows,
            flows_forgotten: self.flows.forgotten(),
            ..self.counters.clone()
        }
    }

    /// Returns the number of bytes on the wire that wait for the transmitter or that it has not
    /// sent yet.
    fn occupancy(&self, now: Time) -> u64 {
        self.queue.bytes() + self.clock.unsent(now)
    }

    /// Draws the impairments of the packet's segments up to the first one that is impaired. Admits
    /// the segments before it. Then impairs that segment, and admits it unless it is lost. Returns
    /// the segments behind it; `None` if there are none, or if they were dropped because memory is
    /// exhausted.
    fn impair(
        &mut self,
        slot: u16,
        mut packet: Packet,
        now: Time,
        memory: &mut Memory,
    ) -> Option<Packet> {
        let count = packet.count();
        let impaired = (0..count)
            .zip(self.impairments.of(&packet, &self.settings))
            .find(|(_, impairment)| !impairment.is_plain());
        let Some((at, impairment)) = impaired else {
            self.admit(slot, packet, now, memory);
            return None;
        };
        if at > 0 {
            match packet.split(at, memory) {
                Ok((plain, from)) => {
                    self.admit(slot, plain, now, memory);
                    packet = from;
                }
                Err(packet) => return self.exhausted(slot, packet, memory),
            }
        }
        let (mut one, rest) = if packet.count() > 1 {
            match packet.split(1, memory) {
                Ok((one, rest)) => (one, Some(rest)),
                Err(packet) => return self.exhausted(slot, packet, memory),
            }
        } else {
            (packet, None)
        };
        if impairment.lost {
            self.dropped(slot, one, memory, |drops| &mut drops.loss);
            return rest;
        }
        if impairment.corrupted {
            let bits = self.impairments.bits(&one);
            one.corrupt(bits);
            self.counters.corrupted += 1;
        }
        let copy = impairment.duplicated.then(|| one.copy(memory));
        if impairment.held {
            one.held = true;
            self.counters.reordered += 1;
        }
        self.admit(slot, one, now, memory);
        if let Some(copy) = copy {
            self.counters.duplicated += 1;
            match copy {
                Some(copy) => self.admit(slot, copy, now, memory),
                None => self.count_drops(slot, 1, |drops| &mut drops.memory),
            }
        }
        rest
    }

    /// Moves a packet from the counters of segments that left to those of drops.
    fn take_back(&mut self, packet: &Packet, reason: fn(&mut Drops) -> &mut u64) {
        let lost = traffic(packet);
        let flow = self.flows.counters(packet.slot);
        for (left, drops) in
            [(&mut self.counters.left, &mut self.counters.drops), (&mut flow.left, &mut flow.drops)]
        {
            left.segments -= lost.segments;
            left.bytes -= lost.bytes;
            *reason(drops) += lost.segments;
        }
    }

    /// Drops a packet with all its segments, because there is no memory to split it.
    fn exhausted(&mut self, slot: u16, packet: Packet, memory: &mut Memory) -> Option<Packet> {
        // The first segment was counted when its impairments were drawn.
        self.impairments.skip(&packet, packet.count().saturating_sub(1));
        self.dropped(slot, packet, memory, |drops| &mut drops.memory);
        None
    }

    /// Puts a packet into the queue. Splits it if it has more segments than a burst may have.
    fn admit(&mut self, slot: u16, mut packet: Packet, now: Time, memory: &mut Memory) {
        while let Some(burst) = self.settings.burst
            && packet.count() > burst.get()
        {
            match packet.split(burst.get(), memory) {
                Ok((piece, rest)) => {
                    self.admit_piece(slot, piece, now, memory);
                    packet = rest;
                }
                Err(packet) => {
                    return self.dropped(slot, packet, memory, |drops| &mut drops.memory);
                }
            }
        }
        self.admit_piece(slot, packet, now, memory);
    }

    /// Puts a packet into the queue, or straight under way if the line needs no queue. With
    /// drop-tail, drops the packet's segments for which the buffer has no room. With the
    /// harmonizer, makes room by drops from the longest queue.
    fn admit_piece(&mut self, slot: u16, mut packet: Packet, now: Time, memory: &mut Memory) {
        packet.slot = slot;
        if !self.settings.limited() && self.queue.segments() == 0 {
            self.flows.add_packet(slot);
            let arrived = packet.arrived;
            return depart(
                packet,
                arrived,
                &self.settings,
                &mut self.impairments,
                &mut self.transit,
            );
        }
        if self.settings.queue == Discipline::DropTail {
            let segments = packet.frame().segments;
            let room = self.settings.buffer.saturating_sub(self.occupancy(now));
            let fitting = segments.fitting(room, self.settings.overhead);
            if fitting == 0 {
                return self.dropped(slot, packet, memory, |drops| &mut drops.buffer);
            }
            if fitting < segments.count {
                packet.truncate(fitting, memory);
                self.count_drops(slot, segments.count - fitting, |drops| &mut drops.buffer);
            }
        }
        // After a change to a smaller buffer the queue may hold more than the buffer. The packets
        // in it stay.
        let limit = self.settings.buffer.max(self.occupancy(now));
        self.flows.add_packet(slot);
        self.queue.push(slot, packet, &mut self.flows, &self.settings, now);
        if self.settings.queue == Discipline::Harmonize {
            self.make_room(slot, limit, now, memory);
        }
        self.counters.queue_max = self.counters.queue_max.max(self.occupancy(now));
        let flow = self.flows.counters(slot);
        flow.queue_max = flow.queue_max.max(flow.queue);
    }

    /// Drops from the longest queue what exceeds `limit`, after a packet of the flow in `newest`
    /// has arrived. Also drops packets if less memory is free than the next packet may need. That
    /// packet's flow is unknown until it has been read, so memory must be free for it in any case.
    fn make_room(&mut self, newest: u16, limit: u64, now: Time, memory: &mut Memory) {
        loop {
            let exhausted = memory.free() < MAX_CELLS;
            let beyond = self.occupancy(now).saturating_sub(limit);
            if beyond == 0 && !exhausted {
                return;
            }
            let bytes = (!exhausted).then_some(beyond);
            let Self { queue, flows, settings, .. } = self;
            let Some(shed) = queue.shed(bytes, newest, flows, settings.overhead, memory) else {
                return;
            };
            if shed.packet {
                self.flows.drop_packet(shed.slot);
            }
            self.count_drops(shed.slot, shed.segments, |drops| match exhausted {
                true => &mut drops.memory,
                false => &mut drops.buffer,
            });
        }
    }

    fn dropped(
        &mut self,
        slot: u16,
        packet: Packet,
        memory: &mut Memory,
        reason: fn(&mut Drops) -> &mut u64,
    ) {
        self.count_drops(slot, packet.count(), reason);
        packet.free(memory);
    }

    fn count_drops(&mut self, slot: u16, segments: u32, reason: impl Fn(&mut Drops) -> &mut u64) {
        *reason(&mut self.counters.drops) += u64::from(segments);
        *reason(&mut self.flows.counters(slot).drops) += u64::from(segments);
    }

    fn serve(&mut self, now: Time) {
        let Self { queue, clock, settings, flows, impairments, transit, .. } = self;
        queue.serve(now, clock, settings, flows, |packet, end| {
            depart(packet, end, settings, impairments, transit)
        });
    }
}

/// Moves a packet to the packets under way. Its last bit leaves the transmitter at `end`.
fn depart(
    packet: Packet,
    end: Time,
    settings: &LineSettings,
    impairments: &mut Impairments,
    transit: &mut Transit,
) {
    let mut due = end + settings.delay;
    if settings.jitter > Duration::ZERO {
        due = due
            + Duration::from_nanos(
                impairments.jitter(&packet).below(crate::time::nanos(settings.jitter) + 1),
            );
    }
    match settings.reorder {
        Some(reorder) if packet.held => transit.hold(packet, due, reorder.by),
        _ => transit.push(packet, due),
    }
}
