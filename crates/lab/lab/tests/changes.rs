//! Lines whose settings change while packets wait and are under way.
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use crate::support;
use proptest::prelude::*;
use sprat_lab::Time;
use sprat_lab::frame::Flow;
use sprat_lab::line::{Counters, Discipline, Line, LineSettings, Loss, Reorder};
use sprat_lab::memory::Memory;
use std::collections::HashMap;
use std::time::Duration;
use support::arrivals::{Arrivals, CELLS, arrivals, bytes_of, rate, settings, share};
use support::{Sample, number_of, numbered, packet_at};

/// A list of settings, each with the nanoseconds after which it takes effect.
type Changes = Vec<(u64, LineSettings)>;

fn changes() -> impl Strategy<Value = Changes> {
    prop::collection::vec((0u64..20_000_000, settings()), 1..6).prop_map(|mut changes| {
        changes.sort_by_key(|(at, _)| *at);
        changes
    })
}

/// Makes settings under which no packet is lost, duplicated, corrupted or held back.
fn harmless(settings: LineSettings) -> LineSettings {
    let never = sprat_lab::chance::Probability::NEVER;
    LineSettings {
        loss: Loss::None,
        reorder: None,
        duplicate: never,
        corrupt: never,
        buffer: 1 << 30,
        ..settings
    }
}

/// A packet that left the line: its time, flow and first sequence number. A frame without a flow
/// has its number instead.
#[derive(Debug, PartialEq)]
struct Departure {
    due: Time,
    flow: Flow,
    sequence: u32,
    segments: u64,
}

/// Sends `arrivals` over a line whose settings change in the meantime. Polls the line after every
/// `every` events.
fn run_with_changes(
    first: &LineSettings,
    changes: &[(u64, LineSettings)],
    arrivals: &Arrivals,
    every: usize,
) -> (Vec<Departure>, Counters) {
    let mut memory = Memory::of_cells(CELLS);
    let mut line = Line::new(first.clone());
    let mut departures = Vec::new();
    let mut take = |line: &mut Line, memory: &mut Memory, now| {
        while let Some(packet) = line.pop(now) {
            let (flow, bytes) = (packet.frame().flow, packet.to_vec());
            let sequence = match flow.protocol {
                6 => u32::from_be_bytes(bytes[48..52].try_into().expect("four")),
                _ => number_of(&packet),
            };
            departures.push(Departure {
                due: packet.due,
                flow,
                sequence,
                segments: u64::from(packet.count()),
            });
            packet.free(memory);
        }
    };
    let (mut now, mut changes, mut events) = (Time::ZERO, changes.iter().peekable(), 0);
    for (number, &(gap, len, kind)) in arrivals.iter().enumerate() {
        let arrives = now + Duration::from_nanos(gap);
        while let Some((at, settings)) = changes.next_if(|(at, _)| Time(*at) <= arrives) {
            now = Time(*at).max(now);
            line.set(settings.clone(), now);
            events += 1;
            if events % every == 0 {
                take(&mut line, &mut memory, now);
            }
        }
        now = arrives;
        let packet = packet_at(&bytes_of(number as u32, len, kind), &mut memory, now);
        line.push(packet, now, &mut memory);
        events += 1;
        if events % every == 0 {
            take(&mut line, &mut memory, now);
        }
        let counted = line.counters(now);
        let left = counted.left.segments + counted.drops.total() + counted.on_line;
        assert_eq!(
            counted.arrived.segments + counted.duplicated,
            left,
            "every segment is somewhere: {counted:?}"
        );
        let waiting: u64 = counted.flows.iter().map(|(_, flow)| flow.queue).sum();
        assert!(waiting + counted.other_flows.queue <= counted.queue, "{counted:?}");
    }
    for (at, settings) in changes {
        now = Time(*at).max(now);
        line.set(settings.clone(), now);
    }
    while let Some(next) = line.next() {
        now = now.max(next);
        take(&mut line, &mut memory, now);
    }
    assert_eq!(memory.free(), memory.total(), "every cell is free again");
    (departures, line.counters(now))
}

proptest! {
    /// Whatever the settings change to, and whenever they change, all admitted packets leave, in
    /// order within each flow.
    #[test]
    fn a_change_loses_and_reorders_nothing(
        first in settings(),
        changes in changes(),
        arrivals in arrivals(),
        every in 1usize..10,
    ) {
        let changes: Changes =
            changes.into_iter().map(|(at, settings)| (at, harmless(settings))).collect();
        let (departures, counters) = run_with_changes(&harmless(first), &changes, &arrivals, every);
        prop_assert_eq!(counters.left, counters.arrived);
        prop_assert_eq!(
            departures.iter().map(|packet| packet.segments).sum::<u64>(),
            counters.arrived.segments
        );
        prop_assert_eq!((counters.on_line, counters.queue, counters.drops.total()), (0, 0, 0));
        prop_assert!(
            counters.flows.iter().all(|(_, flow)| flow.queue == 0 && flow.left == flow.arrived)
        );
        prop_assert!(departures.is_sorted_by_key(|packet| packet.due));
        let mut last = HashMap::new();
        for Departure { flow, sequence, .. } in departures {
            if let Some(before) = last.insert(flow, sequence) {
                prop_assert!(before < sequence, "{} behind {}", sequence, before);
            }
        }
    }

    /// If a line is polled less often between changes, the same packets leave at the same times.
    #[test]
    fn polling_between_changes_does_not_matter(
        first in settings(),
        changes in changes(),
        arrivals in arrivals(),
        every in 1usize..10,
    ) {
        let (one, other) = (
            run_with_changes(&first, &changes, &arrivals, every),
            run_with_changes(&first, &changes, &arrivals, usize::MAX),
        );
        prop_assert_eq!(one, other);
    }

    /// Whatever the discipline, the bits of waiting packets are sent once each: the last packet
    /// leaves at the same time.
    #[test]
    fn another_discipline_sends_no_bit_twice(
        bits in 1_000_000u64..10_000_000_000,
        flips in prop::collection::vec(0u64..20_000_000, 0..6),
        arrivals in arrivals(),
    ) {
        let line = |queue| LineSettings {
            rate: rate(bits),
            buffer: 1 << 30,
            queue,
            ..LineSettings::default()
        };
        let mut flips = flips;
        flips.sort_unstable();
        let disciplines = [Discipline::Harmonize, Discipline::DropTail].into_iter().cycle();
        let flips: Changes = flips.into_iter().zip(disciplines.map(line)).collect();
        let end = |changes: &[_]| {
            run_with_changes(&line(Discipline::DropTail), changes, &arrivals, 3)
                .0
                .last()
                .map(|packet| packet.due)
        };
        prop_assert_eq!(end(&flips), end(&[]));
    }

    /// The current transmission ends at its old time. The next one uses the new rate, to the
    /// nanosecond.
    #[test]
    fn a_rate_holds_from_the_next_packet_on(
        rates in prop::collection::vec((1_000_000u64..1_000_000_000_000, 0u64..20_000_000), 1..6),
        arrivals in arrivals(),
    ) {
        // Times below are in millionths of a nanosecond.
        const PARTS: u128 = 1_000_000;
        let line =
            |bits| LineSettings { rate: rate(bits), buffer: 1 << 30, ..LineSettings::default() };
        let mut times: Vec<_> = rates.iter().map(|(_, at)| *at).collect();
        times.sort_unstable();
        times[0] = 0;
        let rates: Vec<_> =
            rates.iter().map(|(bits, _)| *bits).zip(times).map(|(bits, at)| (at, bits)).collect();
        let changes: Changes = rates[1..].iter().map(|&(at, bits)| (at, line(bits))).collect();
        let (departures, _) = run_with_changes(&line(rates[0].1), &changes, &arrivals, 2);
        prop_assert_eq!(departures.len(), arrivals.len());
        let (mut now, mut free) = (0u128, 0u128);
        for (number, (&(gap, len, kind), departure)) in arrivals.iter().zip(&departures).enumerate()
        {
            now += u128::from(gap) * PARTS;
            let start = free.max(now);
            let begins = start / PARTS;
            // A transmission that begins at the moment of a change may use either rate.
            let edge = |at: &u64| begins.abs_diff(u128::from(*at)) <= rates.len() as u128;
            prop_assume!(!rates[1..].iter().any(|(at, _)| edge(at)));
            let bits = rates
                .iter()
                .rev()
                .find(|(at, _)| begins >= u128::from(*at))
                .expect("the first rate applies from 0 on")
                .1;
            let mut memory = Memory::of_cells(50);
            let packet = packet_at(&bytes_of(number as u32, len, kind), &mut memory, Time::ZERO);
            let wire = packet.frame().segments.wire_bytes(LineSettings::default().overhead);
            packet.free(&mut memory);
            free = start + u128::from(wire) * 8_000_000_000 * PARTS / u128::from(bits);
            let off = (free / PARTS).abs_diff(u128::from(departure.due.0));
            prop_assert!(off <= rates.len() as u128, "{} ns off", off);
        }
    }
}

#[test]
fn a_slow_transmission_does_not_fill_the_buffer_of_a_faster_line() {
    let mut memory = Memory::of_cells(CELLS);
    let slow = LineSettings { rate: rate(1_000_000), buffer: 1_000_000, ..LineSettings::default() };
    let mut line = Line::new(slow.clone());
    let long = Sample { payload: 60_000, ..Sample::default() }.bytes();
    line.push(packet_at(&long, &mut memory, Time::ZERO), Time::ZERO, &mut memory);
    let before = line.counters(Time(1)).queue;
    line.set(LineSettings { rate: rate(10_000_000_000), ..slow }, Time(1));
    assert_eq!(line.counters(Time(1)).queue, before, "the same bytes are still to be sent");
    for _ in 0..14 {
        line.push(packet_at(&long, &mut memory, Time(2)), Time(2), &mut memory);
    }
    assert_eq!(line.counters(Time(2)).drops.total(), 0, "there is room for a megabyte");
}

#[test]
fn a_flow_has_its_new_pace_from_the_next_segment_on() {
    let mut memory = Memory::of_cells(CELLS);
    let paced = |bits| LineSettings {
        queue: Discipline::Harmonize,
        flow_rate: rate(bits),
        ..LineSettings::default()
    };
    let mut line = Line::new(paced(1_000_000_000_000));
    let frame = |sequence| Sample { mss: 0, payload: 1_000, sequence, ..Sample::default() }.bytes();
    for sequence in 0..3 {
        line.push(packet_at(&frame(sequence), &mut memory, Time::ZERO), Time::ZERO, &mut memory);
    }
    let wire = u64::from(packet_at(&frame(9), &mut memory, Time::ZERO).ethernet_bytes()) + 24;
    let of = |line: &mut Line, now| line.pop(now).expect("it is time").due.0;
    assert_eq!(of(&mut line, Time(0)), 0);
    line.set(paced(1_000_000), Time(0));
    // The second frame begins when the first would have ended at the old rate. The third begins
    // when the second has ended at the new rate.
    let second = wire * 8 / 1_000;
    let due = line.next().expect("two wait");
    assert!(due.0 <= second, "{due:?}");
    assert_eq!(of(&mut line, Time(second)), second);
    assert!(line.pop(Time(second + wire * 8_000 - 1)).is_none());
    assert!((second + wire * 8_000).abs_diff(of(&mut line, Time(second + wire * 8_000 + 1))) <= 1);
}

#[test]
fn a_smaller_buffer_drops_no_waiting_packets() {
    let mut memory = Memory::of_cells(CELLS);
    let wide = LineSettings { rate: rate(1_000_000), buffer: 1_000_000, ..LineSettings::default() };
    let mut line = Line::new(wide.clone());
    for number in 0..100 {
        line.push(
            packet_at(&numbered(number, 1_000), &mut memory, Time::ZERO),
            Time::ZERO,
            &mut memory,
        );
    }
    line.set(LineSettings { buffer: 2_000, ..wide }, Time(1));
    assert_eq!(line.counters(Time(1)).drops.total(), 0);
    line.push(packet_at(&numbered(100, 1_000), &mut memory, Time(1)), Time(1), &mut memory);
    assert_eq!(line.counters(Time(1)).drops.buffer, 1, "a later packet finds the buffer full");
    let later = Time(10_000_000_000);
    let mut numbers = 0..100;
    while let Some(packet) = line.pop(later) {
        assert_eq!(Some(number_of(&packet)), numbers.next());
        packet.free(&mut memory);
    }
    assert_eq!(numbers.len(), 0);
}

#[test]
fn a_shorter_delay_does_not_reorder_packets() {
    let mut memory = Memory::of_cells(CELLS);
    let far = LineSettings { delay: Duration::from_millis(100), ..LineSettings::default() };
    let mut line = Line::new(far);
    line.push(packet_at(&numbered(0, 60), &mut memory, Time::ZERO), Time::ZERO, &mut memory);
    let by = Duration::from_millis(5);
    let near = LineSettings { delay: Duration::from_millis(1), ..LineSettings::default() };
    line.set(
        LineSettings { reorder: Some(Reorder { share: share(1.0), by }), ..near.clone() },
        Time(1),
    );
    line.push(packet_at(&numbered(1, 60), &mut memory, Time(1)), Time(1), &mut memory);
    line.set(near, Time(2));
    line.push(packet_at(&numbered(2, 60), &mut memory, Time(2)), Time(2), &mut memory);
    let mut departures = Vec::new();
    while let Some(packet) = line.pop(Time(200_000_000)) {
        departures.push((number_of(&packet), packet.due.0));
        packet.free(&mut memory);
    }
    assert_eq!(departures, [(0, 100_000_000), (2, 100_000_000), (1, 105_000_000)]);
}
