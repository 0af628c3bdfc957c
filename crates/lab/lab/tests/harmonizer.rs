//! The harmonizer: flows take turns on a line and get equal shares, and a flow that sends less than
//! its share loses nothing.
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use crate::support;
use proptest::prelude::*;
use sprat_lab::Time;
use sprat_lab::line::{Discipline, Line, LineSettings};
use sprat_lab::memory::Memory;
use std::time::Duration;
use support::arrivals::{CELLS, rate};
use support::{Sample, packet_at};

/// Bytes on the wire by which a flow may be ahead of another flow that also waits: the rest of a
/// turn, and a frame.
const TURN: u64 = 2 * (1514 + 24);

/// The corresponding bytes if the flow was idle before, which makes its turn longer.
const LONG_TURN: u64 = 9 * (1514 + 24);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// The harmonizer's guarantee: a flow that sends less than its share loses nothing, whatever
    /// the other flows send.
    #[test]
    fn a_modest_flow_loses_nothing_whatever_others_send(
        greedy in prop::collection::vec((1usize..30_000, 20_000u64..400_000), 1..8),
        modest_payload in 1usize..1449,
        seed in any::<u64>(),
    ) {
        const MODEST: u16 = 99;
        let bits = 100_000_000;
        let flows = greedy.len() as u64 + 1;
        // The buffer has room for one packet of each flow, the least that any flow needs.
        let buffer = flows * 40_000;
        let settings = LineSettings {
            rate: rate(bits),
            buffer,
            queue: Discipline::Harmonize,
            ..LineSettings::default()
        };
        let mut memory = Memory::of_cells(CELLS);
        let mut line = Line::new(settings);
        // The flow sends a frame each time that its share of the rate has carried two frames.
        let gap = 2 * flows * (modest_payload as u64 + 66 + 24) * 8_000_000_000 / bits / 1_000;
        let mut next: Vec<_> =
            greedy.iter().map(|&(payload, gap)| (seed % 1_000, payload, gap, 1_448)).collect();
        next.push((0, modest_payload, gap.max(1) * 1_000, 0));
        for number in 0..3_000u32 {
            let (flow, &(at, payload, gap, mss)) =
                next.iter().enumerate().min_by_key(|(_, next)| next.0).expect("some");
            next[flow].0 += gap;
            let now = Time(at);
            let port = if flow == greedy.len() { MODEST } else { flow as u16 };
            let sample =
                Sample { source_port: port, payload, mss, sequence: number, ..Sample::default() };
            line.push(packet_at(&sample.bytes(), &mut memory, now), now, &mut memory);
            while let Some(packet) = line.pop(now) {
                if packet.frame().flow.source_port == MODEST {
                    // The packet waits for a turn of each other flow, and for the frame that is
                    // being sent.
                    let waited = packet.due.since(packet.arrived).as_nanos() as u64;
                    let most = (flows + 1) * LONG_TURN * 8_000_000_000 / bits;
                    prop_assert!(waited <= most, "it waited for {} ns of {}", waited, most);
                }
                packet.free(&mut memory);
            }
        }
        let counters = line.counters(Time(u64::MAX));
        prop_assert!(counters.queue_max <= buffer, "{} bytes waited", counters.queue_max);
        let modest =
            counters.flows.iter().find(|(flow, _)| flow.source_port == MODEST).expect("it came").1;
        prop_assert_eq!(modest.drops.total(), 0, "{:?}", modest);
        while let Some(packet) = line.pop(Time(u64::MAX)) {
            packet.free(&mut memory);
        }
        prop_assert_eq!(memory.free(), memory.total());
    }

    /// Flows that always have something to send get equal shares in bytes, whatever their frames
    /// and super-packets are.
    #[test]
    fn shares_are_of_bytes(
        frames in prop::collection::vec((1usize..8_900, 1u16..1_449, any::<bool>()), 2..6),
    ) {
        let settings = LineSettings {
            rate: rate(1_000_000_000),
            buffer: 4_000_000,
            queue: Discipline::Harmonize,
            ..LineSettings::default()
        };
        let mut memory = Memory::of_cells(CELLS);
        let mut line = Line::new(settings);
        let mut left = vec![0u64; frames.len()];
        let mut now = Time::ZERO;
        for number in 0..2_000u32 {
            let counters = line.counters(now);
            for (flow, &(payload, mss, whole)) in frames.iter().enumerate() {
                let queue =
                    counters.flows.iter().find(|(one, _)| usize::from(one.source_port) == flow);
                if queue.is_none_or(|(_, flow)| flow.queue < 40_000) {
                    let mss = if whole { 0 } else { mss.max(100) };
                    let sample = Sample {
                        source_port: flow as u16,
                        payload,
                        mss,
                        sequence: number,
                        ..Sample::default()
                    };
                    line.push(packet_at(&sample.bytes(), &mut memory, now), now, &mut memory);
                }
            }
            now = now + Duration::from_micros(1);
            while let Some(packet) = line.pop(now) {
                packet.free(&mut memory);
            }
        }
        let counters = line.counters(now);
        for (flow, counted) in &counters.flows {
            left[usize::from(flow.source_port)] = counted.left.bytes + 24 * counted.left.segments;
        }
        let (least, most) = (left.iter().min().expect("some"), left.iter().max().expect("some"));
        // A packet leaves whole: up to 9 KB of one packet may be under way.
        prop_assert!(most - least <= TURN + 2 * 9_100, "{:?}", left);
    }
}

#[test]
fn a_late_flow_gets_its_share_at_once() {
    let bits = 1_000_000_000;
    let settings = LineSettings {
        rate: rate(bits),
        buffer: 2_000_000,
        queue: Discipline::Harmonize,
        ..LineSettings::default()
    };
    let mut memory = Memory::of_cells(CELLS);
    let mut line = Line::new(settings);
    let push = |line: &mut Line, memory: &mut Memory, port, number, now| {
        let sample =
            Sample { source_port: port, payload: 1448, sequence: number, ..Sample::default() };
        line.push(packet_at(&sample.bytes(), memory, now), now, memory);
    };
    // The old flow offers twice the rate of the line, and its queue fills the buffer.
    let frame = Duration::from_nanos((1514 + 24) * 8);
    let (mut now, mut number) = (Time::ZERO, 0);
    let old = |line: &mut Line, memory: &mut Memory, now: &mut Time, number: &mut u32| {
        (0..2).for_each(|_| push(line, memory, 1, *number, *now));
        *number += 2;
        *now = *now + frame;
        while let Some(packet) = line.pop(*now) {
            packet.free(memory);
        }
    };
    (0..3_000).for_each(|_| old(&mut line, &mut memory, &mut now, &mut number));
    assert!(line.counters(now).queue + 2 * 1538 > 2_000_000, "it is full");
    let dropped = line.counters(now).drops.buffer;
    // The new flow offers half of the line's rate, which is its share.
    for round in 0..1_000 {
        if round % 2 == 0 {
            push(&mut line, &mut memory, 2, round, now);
        }
        old(&mut line, &mut memory, &mut now, &mut number);
    }
    let counters = line.counters(now);
    let new = counters.flows.iter().find(|(flow, _)| flow.source_port == 2).expect("it came").1;
    assert_eq!((new.arrived.segments, new.drops.total()), (500, 0));
    assert!(new.left.segments >= 498 && new.queue_max <= 2 * 1538, "{new:?}");
    assert!(counters.drops.buffer > dropped, "the old flow loses packets");
    while let Some(packet) = line.pop(Time(u64::MAX)) {
        packet.free(&mut memory);
    }
}

/// A flow that sends its window in bursts, as a new TCP connection does, gets its share over a
/// round trip: the credit that it saved while it was idle speeds up a burst.
#[test]
fn saved_credit_speeds_up_a_burst() {
    let bits = 100_000_000;
    let settings = LineSettings {
        rate: rate(bits),
        buffer: 2_000_000,
        queue: Discipline::Harmonize,
        ..LineSettings::default()
    };
    let mut memory = Memory::of_cells(CELLS);
    let mut line = Line::new(settings);
    let frame = Duration::from_nanos((1514 + 24) * 8_000_000_000 / bits);
    let mut now = Time::ZERO;
    let push = |line: &mut Line, memory: &mut Memory, port, now| {
        let sample = Sample { source_port: port, payload: 1448, ..Sample::default() };
        line.push(packet_at(&sample.bytes(), memory, now), now, memory);
    };
    // Returns how long a burst of 100 frames takes after an idle time, while three other flows
    // always send.
    let mut burst = |line: &mut Line, memory: &mut Memory, rounds: u32| {
        let mut left = 100;
        for round in 0..rounds + 1_000 {
            (1..4).for_each(|port| push(line, memory, port, now));
            if round == rounds {
                (0..100).for_each(|_| push(line, memory, 4, now));
            }
            now = now + frame;
            while let Some(packet) = line.pop(now) {
                left -= u32::from(packet.frame().flow.source_port == 4);
                packet.free(memory);
            }
            if left == 0 {
                return round - rounds;
            }
        }
        panic!("{left} are left");
    };
    let first = burst(&mut line, &mut memory, 0);
    assert!((396..=404).contains(&first), "a quarter of the rate: {first} frames");
    let saved = burst(&mut line, &mut memory, 500);
    assert!(saved < 180, "most of the rate: {saved} frames");
    let unsaved = burst(&mut line, &mut memory, 1);
    assert!(unsaved > 250, "little was left: {unsaved} frames");
    while let Some(packet) = line.pop(Time(u64::MAX)) {
        packet.free(&mut memory);
    }
}

/// If there is no memory for the next packet, packets of the longest queue are dropped too. This
/// can happen before the buffer is full, because small frames take more memory than buffer.
#[test]
fn exhausted_memory_drops_from_the_longest_queue() {
    let settings = LineSettings {
        rate: rate(1_000_000),
        buffer: 1 << 30,
        queue: Discipline::Harmonize,
        ..LineSettings::default()
    };
    let mut memory = Memory::of_cells(500);
    let mut line = Line::new(settings);
    let push = |line: &mut Line, memory: &mut Memory, port, number| {
        let sample =
            Sample { source_port: port, payload: 1, sequence: number, ..Sample::default() };
        line.push(packet_at(&sample.bytes(), memory, Time::ZERO), Time::ZERO, memory);
    };
    for number in 0..2_000 {
        push(&mut line, &mut memory, 1, number);
        if number % 100 == 0 {
            push(&mut line, &mut memory, 2, number);
        }
    }
    let counters = line.counters(Time::ZERO);
    let dropped = |port| {
        counters
            .flows
            .iter()
            .find(|(flow, _)| flow.source_port == port)
            .expect("it came")
            .1
            .drops
            .memory
    };
    assert!(dropped(1) > 1_000, "{counters:?}");
    assert_eq!(dropped(2), 0);
    while let Some(packet) = line.pop(Time(u64::MAX)) {
        packet.free(&mut memory);
    }
    assert_eq!(memory.free(), memory.total());
}

/// Frames of several flows arrive at the same time: each flow gets its turn, and the line is never
/// idle.
#[test]
fn flows_take_turns_on_a_precise_schedule() {
    let settings = LineSettings {
        rate: rate(1_000_000_000),
        queue: Discipline::Harmonize,
        ..LineSettings::default()
    };
    let mut memory = Memory::of_cells(CELLS);
    let mut line = Line::new(settings);
    // Flow 1 sends ten times as many frames as each other flow, and sends them first.
    for (flow, frames) in [(1u16, 100), (2, 10), (3, 10)] {
        for number in 0..frames {
            let sample =
                Sample { source_port: flow, sequence: number, payload: 1448, ..Sample::default() };
            line.push(packet_at(&sample.bytes(), &mut memory, Time::ZERO), Time::ZERO, &mut memory);
        }
    }
    let mut ports = Vec::new();
    for number in 1..=120u64 {
        let packet = line.pop(Time(u64::MAX)).expect("still some");
        assert_eq!(packet.due.0, number * (1514 + 24) * 8, "at a nanosecond a bit");
        ports.push(packet.frame().flow.source_port);
        packet.free(&mut memory);
    }
    // The first frame had begun before the others arrived. After it, the flows take turns.
    assert_eq!(ports[..7], [1, 1, 2, 3, 1, 2, 3]);
    let late = ports.iter().rposition(|&port| port == 3).expect("there");
    assert_eq!(late, 30, "one frame, and ten turns of three flows");
    assert!(ports[31..].iter().all(|&port| port == 1));
}

#[test]
fn a_flow_keeps_to_its_own_rate() {
    let queue = Discipline::Harmonize;
    let settings = LineSettings {
        rate: rate(10_000_000_000),
        flow_rate: rate(1_000_000_000),
        queue,
        ..LineSettings::default()
    };
    let mut memory = Memory::of_cells(CELLS);
    let mut line = Line::new(settings);
    for number in 0..40u32 {
        let sample =
            Sample { source_port: 1 + (number % 2) as u16, payload: 1448, ..Sample::default() };
        line.push(packet_at(&sample.bytes(), &mut memory, Time::ZERO), Time::ZERO, &mut memory);
    }
    let mut last = [None::<Time>; 3];
    while let Some(packet) = line.pop(Time(u64::MAX)) {
        let port = usize::from(packet.frame().flow.source_port);
        if let Some(before) = last[port].replace(packet.due) {
            let gap = packet.due.since(before).as_nanos();
            // The frames of two flows that start at the same time follow one another. A bit takes a
            // tenth of a nanosecond.
            assert!((12_304 - 1_231..=12_304 + 1_231).contains(&gap), "{gap} ns between frames");
        }
        packet.free(&mut memory);
    }
    let end = last.iter().flatten().max().expect("some came").0;
    assert!((19 * 12_304..20 * 12_304).contains(&end), "two flows, each at its rate: {end}");
}
