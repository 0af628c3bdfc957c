//! One direction towards one output port: mishaps, a queue, a transmitter, and the way.
//!
//! ```text
//! push -> [loss, duplicates, corruption] -> [queue, buffer] -> [transmitter, rate] -> [delay, jitter] -> pop
//! ```
//!
//! A line has no clock. Whoever owns it says when a packet arrives and asks which have come through
//! by now. All times follow from those of arrival: asking late, or seldom, changes none of them.

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
use fate::Fates;
use flows::{Flows, traffic};
use queue::Queue;
use std::sync::Arc;
use std::time::Duration;
use transit::Transit;

pub use counters::{Counters, Drops, FlowCounters, Traffic};
pub use flows::{IDLE, MAX_FLOWS};
pub use settings::{
    DEFAULT_BUFFER, Discipline, GilbertElliott, Loss, MAX_BUFFER, MAX_DELAY, MAX_LISTED, MAX_RATE,
    MIN_RATE, Rate, Reorder, Settings, Timing,
};

/// A line; see the module.
#[derive(Debug)]
pub struct Line {
    settings: Settings,
    fates: Fates,
    queue: Queue,
    clock: Clock,
    transit: Transit,
    flows: Flows,
    counters: Counters,
    stamps: Option<Arc<Stamps>>,
}

impl Line {
    /// An empty line.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            fates: Fates::new(settings.seed, 0),
            queue: Queue::new(settings.queue),
            settings,
            clock: Clock::default(),
            transit: Transit::default(),
            flows: Flows::new(),
            counters: Counters::default(),
            stamps: None,
        }
    }

    /// Has it time round trips, together with the lines of the same box that have the same stamps.
    #[must_use]
    pub fn timed(self, stamps: Arc<Stamps>) -> Self {
        Self { stamps: Some(stamps), ..self }
    }

    /// Lets it draw other chances from its seed than lines with another salt do.
    #[must_use]
    pub fn salted(self, salt: u64) -> Self {
        Self { fates: self.fates.salted(salt), ..self }
    }

    /// What it does.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Has it do something else from now on. What has left, and what is being transmitted, keeps
    /// its time; what waits is under the new rules, but for the buffer, which nobody is thrown
    /// out of. Nothing overtakes what is under way: after a shorter delay packets come through
    /// no sooner than those before them.
    pub fn set(&mut self, settings: Settings, now: Time) {
        self.serve(now);
        self.fates.seed(settings.seed);
        let again =
            settings.queue != self.settings.queue || settings.overhead != self.settings.overhead;
        self.settings = settings;
        if again {
            self.queue.change(&self.settings, &mut self.flows);
        }
        self.serve(now);
    }

    /// Takes a packet that has arrived by now, at the time that it has; its way begins then. Times
    /// of calls must not go back.
    pub fn push(&mut self, packet: Packet, now: Time, memory: &mut Memory) {
        self.serve(now);
        let slot = self.flows.find(packet.frame().flow, now);
        if let Some(stamps) = &self.stamps {
            self.flows.time(slot, &packet, packet.arrived, stamps);
        }
        let came = traffic(&packet);
        self.counters.arrived.add(came);
        self.flows.counters(slot).arrived.add(came);
        if !fate::eventful(&self.settings) {
            self.fates.skip(&packet, packet.count());
            return self.admit(slot, packet, now, memory);
        }
        let mut rest = Some(packet);
        while let Some(packet) = rest.take() {
            rest = self.befall(slot, packet, now, memory);
        }
    }

    /// Drops a packet that arrives now, for it is too long for the port.
    pub fn too_big(&mut self, packet: Packet, now: Time, memory: &mut Memory) {
        let slot = self.flows.find(packet.frame().flow, now);
        let came = traffic(&packet);
        self.counters.arrived.add(came);
        self.flows.counters(slot).arrived.add(came);
        self.dropped(slot, packet, memory, |drops| &mut drops.too_big);
    }

    /// The next packet that has come through by `now`.
    pub fn pop(&mut self, now: Time) -> Option<Packet> {
        self.serve(now);
        let packet = self.transit.pop(now)?;
        self.counters.left.add(traffic(&packet));
        self.flows.leaves(&packet);
        Some(packet)
    }

    /// The port did not take a packet that has come through just now.
    pub fn refused(&mut self, packet: &Packet) {
        self.take_back(packet, |drops| &mut drops.refused);
    }

    /// There was no memory to cut a packet that had come through into what the port takes.
    pub fn uncut(&mut self, packet: &Packet) {
        self.take_back(packet, |drops| &mut drops.memory);
    }

    /// No packet comes through before this; none when nothing is on the line. Often the very time
    /// of the next.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        let waiting = self.queue.next_end(&self.clock, &self.settings, &self.flows);
        waiting.map(|end| end + self.settings.delay).into_iter().chain(self.transit.next()).min()
    }

    /// What became of everything so far, with what waits `now`.
    #[must_use]
    pub fn counters(&self, now: Time) -> Counters {
        let (flows, other_flows) = self.flows.told();
        Counters {
            on_line: self.queue.segments() + self.transit.segments(),
            queue: self.occupancy(now),
            flows,
            other_flows,
            flows_forgotten: self.flows.forgotten(),
            ..self.counters.clone()
        }
    }

    /// Bytes on the wire whose last bit has not left the transmitter.
    fn occupancy(&self, now: Time) -> u64 {
        self.queue.bytes() + self.clock.unsent(now)
    }

    /// Draws what becomes of the segments up to the first to which something happens, and of that
    /// one; gives back those behind.
    fn befall(
        &mut self,
        slot: u16,
        mut packet: Packet,
        now: Time,
        memory: &mut Memory,
    ) -> Option<Packet> {
        let count = packet.count();
        let struck = (0..count)
            .zip(self.fates.of(&packet, &self.settings))
            .find(|(_, fate)| !fate.is_plain());
        let Some((at, fate)) = struck else {
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
        if fate.lost {
            self.dropped(slot, one, memory, |drops| &mut drops.loss);
            return rest;
        }
        if fate.corrupted {
            let bits = self.fates.bits(&one);
            one.corrupt(bits);
            self.counters.corrupted += 1;
        }
        let twin = fate.twice.then(|| one.copy(memory));
        if fate.held {
            one.held = true;
            self.counters.reordered += 1;
        }
        self.admit(slot, one, now, memory);
        if let Some(twin) = twin {
            self.counters.duplicated += 1;
            match twin {
                Some(twin) => self.admit(slot, twin, now, memory),
                None => self.count_drops(slot, 1, |drops| &mut drops.memory),
            }
        }
        rest
    }

    /// Counts a packet that had come through among the drops.
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

    /// There is no memory to cut a packet: it is lost, with all that is behind.
    fn exhausted(&mut self, slot: u16, packet: Packet, memory: &mut Memory) -> Option<Packet> {
        self.fates.skip(&packet, packet.count().saturating_sub(1)); // the fate of the first was drawn
        self.dropped(slot, packet, memory, |drops| &mut drops.memory);
        None
    }

    /// Lets a packet into the queue, in pieces if it is longer than what may leave together.
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

    /// Lets into the queue what there is room for.
    fn admit_piece(&mut self, slot: u16, mut packet: Packet, now: Time, memory: &mut Memory) {
        packet.slot = slot;
        if !self.settings.limited() && self.queue.segments() == 0 {
            self.flows.enters(slot);
            let arrived = packet.arrived;
            return depart(packet, arrived, &self.settings, &mut self.fates, &mut self.transit);
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
        // After a change to a smaller buffer there may be more in it than it holds; that is not
        // thrown out.
        let limit = self.settings.buffer.max(self.occupancy(now));
        self.flows.enters(slot);
        self.queue.push(slot, packet, &mut self.flows, &self.settings, now);
        if self.settings.queue == Discipline::Harmonize {
            self.make_room(slot, limit, now, memory);
        }
        self.counters.queue_max = self.counters.queue_max.max(self.occupancy(now));
        let flow = self.flows.counters(slot);
        flow.queue_max = flow.queue_max.max(flow.queue);
    }

    /// Drops from the longest queue what is beyond `limit` after a packet of `newest` has come, and
    /// what takes the memory that the next packet needs: which flow that is of cannot be seen
    /// before it is read.
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
                self.flows.gone(shed.slot);
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
        let Self { queue, clock, settings, flows, fates, transit, .. } = self;
        queue.serve(now, clock, settings, flows, |packet, end| {
            depart(packet, end, settings, fates, transit)
        });
    }
}

/// Sends a packet, whose last bit leaves at `end`, on its way.
fn depart(
    packet: Packet,
    end: Time,
    settings: &Settings,
    fates: &mut Fates,
    transit: &mut Transit,
) {
    let mut due = end + settings.delay;
    if settings.jitter > Duration::ZERO {
        due = due
            + Duration::from_nanos(
                fates.jitter(&packet).below(crate::time::nanos(settings.jitter) + 1),
            );
    }
    match settings.reorder {
        Some(reorder) if packet.held => transit.hold(packet, due, reorder.by),
        _ => transit.push(packet, due),
    }
}
