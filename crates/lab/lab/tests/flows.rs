//! The flows that a line counts one by one: which flows have slots, and that counters add up.
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use crate::support;
use proptest::prelude::*;
use sprat_lab::Time;
use sprat_lab::chance::Probability;
use sprat_lab::line::{
    Counters, Discipline, FlowCounters, IDLE, Line, LineSettings, Loss, MAX_FLOWS, Rate,
};
use sprat_lab::memory::Memory;
use std::collections::HashMap;
use std::time::Duration;
use support::{Sample, packet_at};

/// Number of flows beyond the number of slots.
const MORE: u16 = 300;

struct Running {
    line: Line,
    memory: Memory,
    now: Time,
    /// Segments that arrived, by port.
    arrived: HashMap<u16, u64>,
}

impl Running {
    fn new(settings: LineSettings) -> Self {
        Self {
            line: Line::new(settings),
            memory: Memory::of_cells(6_000),
            now: Time::ZERO,
            arrived: HashMap::new(),
        }
    }

    fn send(&mut self, port: u16, payload: usize) {
        let sample = Sample { source_port: port, payload, ..Sample::default() };
        let packet = packet_at(&sample.bytes(), &mut self.memory, self.now);
        *self.arrived.entry(port).or_default() += u64::from(packet.count());
        self.line.push(packet, self.now, &mut self.memory);
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        while let Some(packet) = self.line.pop(self.now) {
            packet.free(&mut self.memory);
        }
    }

    /// Returns the counters after it has checked that they add up.
    fn counted(&self) -> Counters {
        let counters = self.line.counters(self.now);
        let sum = |of: fn(&FlowCounters) -> u64| {
            counters.flows.iter().map(|(_, flow)| of(flow)).sum::<u64>() + of(&counters.other_flows)
        };
        assert_eq!(sum(|flow| flow.arrived.segments), counters.arrived.segments);
        assert_eq!(sum(|flow| flow.arrived.bytes), counters.arrived.bytes);
        assert_eq!(sum(|flow| flow.left.segments), counters.left.segments);
        assert_eq!(sum(|flow| flow.left.bytes), counters.left.bytes);
        assert_eq!(sum(|flow| flow.drops.loss), counters.drops.loss);
        assert_eq!(sum(|flow| flow.drops.buffer), counters.drops.buffer);
        assert!(counters.flows.len() <= MAX_FLOWS, "{}", counters.flows.len());
        assert_eq!(counters.arrived.segments, self.arrived.values().sum::<u64>());
        for (flow, counted) in &counters.flows {
            assert!(
                counted.arrived.segments <= self.arrived[&flow.source_port],
                "{flow} has what was another's"
            );
        }
        counters
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn sums_stay_exact_when_flows_lose_their_slots(
        steps in prop::collection::vec(
            (0..MAX_FLOWS as u16 + MORE, 1u16..600, 1usize..4_000, 0u64..3_000), 1..60
        ),
        harmonize in any::<bool>(),
        loss in 0.0..0.2f64,
    ) {
        let settings = LineSettings {
            delay: Duration::from_millis(40),
            rate: Rate::new(100_000_000),
            buffer: 100_000,
            queue: if harmonize { Discipline::Harmonize } else { Discipline::DropTail },
            flow_rate: harmonize.then(|| Rate::new(20_000_000).expect("within limits")),
            loss: Loss::Random(Probability::new(loss).expect("a share")),
            ..LineSettings::default()
        };
        let mut running = Running::new(settings);
        for (first, count, payload, pause) in steps {
            for port in first..first + count {
                running.send(port, payload);
            }
            running.counted();
            running.wait(Duration::from_millis(pause));
            running.counted();
        }
        running.wait(Duration::from_secs(10));
        prop_assert_eq!(running.counted().on_line, 0);
        prop_assert_eq!(running.memory.free(), running.memory.total());
    }
}

/// Makes a line with as many flows as there are slots.
fn full() -> Running {
    let mut running = Running::new(LineSettings::default());
    (0..MAX_FLOWS as u16).for_each(|port| running.send(port, 100));
    running.wait(Duration::ZERO);
    assert_eq!(running.counted().flows.len(), MAX_FLOWS);
    running
}

#[test]
fn an_idle_flow_gives_its_slot_to_a_new_one() {
    const BUSY: u16 = 17;
    let mut running = full();
    running.wait(IDLE);
    running.send(BUSY, 100);
    for new in 2_000..2_500 {
        running.send(new, 100);
    }
    running.wait(Duration::ZERO);
    let counters = running.counted();
    assert_eq!(counters.flows_forgotten, 500);
    assert_eq!(
        counters.other_flows.left.segments, 500,
        "one segment of each flow that lost its slot"
    );
    let has = |port| counters.flows.iter().any(|(flow, _)| flow.source_port == port);
    assert!(has(BUSY), "a flow that was not idle keeps its slot");
    assert!((2_000..2_500).all(has));
}

#[test]
fn busy_flows_keep_their_slots_and_new_ones_share() {
    let mut running = full();
    running.wait(IDLE - Duration::from_millis(1));
    (3_000..3_100).for_each(|new| running.send(new, 100));
    running.wait(Duration::ZERO);
    let counters = running.counted();
    assert_eq!((counters.flows_forgotten, counters.other_flows.arrived.segments), (0, 100));
}

#[test]
fn flows_with_packets_on_the_line_keep_their_slots() {
    let second = Duration::from_secs(1);
    // A frame takes most of a second, so that the last one waits longer than the idle limit.
    let slow = LineSettings { rate: Rate::new(1_000), buffer: 1 << 30, ..LineSettings::default() };
    let mut running = Running::new(slow);
    (0..MAX_FLOWS as u16).for_each(|port| running.send(port, 1));
    running.wait(2 * IDLE);
    let left = running.counted().left.segments;
    (3_000..4_000).for_each(|new| running.send(new, 1));
    let counters = running.counted();
    assert!(counters.flows_forgotten <= left, "{} of {left}", counters.flows_forgotten);
    running.wait(3_000 * second);
    assert_eq!(running.counted().on_line, 0);
}
