//! Lines: all departures follow from the times of arrival, and every segment is accounted for.
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]

use crate::support;
use proptest::prelude::*;
use sprat_lab::Time;
use sprat_lab::chance::Probability;
use sprat_lab::line::{
    Counters, Discipline, GilbertElliott, Line, LineSettings, Loss, Reorder, Timing,
};
use sprat_lab::memory::Memory;
use std::num::NonZeroU32;
use std::time::Duration;
use support::arrivals::{Arrivals, CELLS, SPACING, arrivals, bytes_of, rate, settings, share};
use support::{Sample, number_of, numbered, packet_at};

/// All packets that left a line, with their times.
struct Through {
    packets: Vec<(Time, Vec<u8>)>,
    counters: Counters,
}

/// Sends `arrivals` over a line. Polls it after every `every` arrivals, and at the end.
fn through(settings: &LineSettings, arrivals: &Arrivals, every: usize) -> Through {
    let mut memory = Memory::of_cells(CELLS);
    let mut line = Line::new(settings.clone());
    let mut packets = Vec::new();
    let mut now = Time::ZERO;
    let mut take = |line: &mut Line, memory: &mut Memory, now| {
        while let Some(packet) = line.pop(now) {
            assert!(packet.due <= now, "no packet leaves before it is due");
            packets.push((packet.due, packet.to_vec()));
            packet.free(memory);
        }
        assert!(line.next().is_none_or(|next| next > now || line.counters(now).on_line > 0));
    };
    for (number, &(gap, len, kind)) in arrivals.iter().enumerate() {
        now = now + Duration::from_nanos(gap);
        let packet =
            packet_at(&bytes_of(u32::try_from(number).unwrap(), len, kind), &mut memory, now);
        line.push(packet, now, &mut memory);
        if number % every == 0 {
            take(&mut line, &mut memory, now);
        }
        let counted = line.counters(now);
        let left = counted.left.segments + counted.drops.total() + counted.on_line;
        assert_eq!(
            counted.arrived.segments + counted.duplicated,
            left,
            "every segment is somewhere: {counted:?}"
        );
    }
    // Polls from event to event: `next` must never be too late.
    while let Some(next) = line.next() {
        let before = line.counters(next).left;
        take(&mut line, &mut memory, Time(next.0.max(now.0)));
        now = now.max(next);
        if line.counters(now).left == before {
            // `next` was too early, which is allowed. But then the next value must be later.
            assert!(
                line.next().is_none_or(|again| again > next),
                "it makes no progress at {next:?}"
            );
        }
    }
    assert_eq!(memory.free(), memory.total(), "every cell is free again");
    let counters = line.counters(now);
    assert_eq!(counters.on_line, 0);
    assert_eq!(counters.queue, 0);
    let flows: u64 =
        counters.flows.iter().map(|(_, flow)| flow.left.segments + flow.drops.total()).sum();
    assert_eq!(
        flows + counters.other_flows.left.segments,
        counters.left.segments + counters.drops.total()
    );
    assert!(counters.flows.iter().all(|(_, flow)| flow.queue == 0));
    Through { packets, counters }
}

proptest! {
    /// However seldom a line is polled, and whatever its settings are, the same packets leave at
    /// the same times.
    #[test]
    fn polling_does_not_change_times(
        settings in settings(),
        arrivals in arrivals(),
        every in 1usize..20,
    ) {
        let (one, other) =
            (through(&settings, &arrivals, every), through(&settings, &arrivals, usize::MAX));
        prop_assert_eq!(one.packets, other.packets);
        prop_assert_eq!(one.counters, other.counters);
    }

    /// Departures follow the formula, in whole numbers: in a busy period, bits are sent one after
    /// the other.
    #[test]
    fn departures_are_those_of_the_formula(
        arrivals in arrivals(),
        bits in 1_000_000u64..40_000_000_000,
        delay in 0u64..10_000_000,
        overhead in 0u16..30,
    ) {
        let delay = Duration::from_nanos(delay);
        let settings = LineSettings {
            delay,
            rate: rate(bits),
            buffer: 1 << 30,
            overhead,
            ..LineSettings::default()
        };
        let seen = through(&settings, &arrivals, 3);
        prop_assert_eq!(seen.packets.len(), arrivals.len());
        let (mut now, mut began, mut sent) = (0u64, 0u64, 0u128);
        let free = |began: u64, sent: u128| {
            began + u64::try_from(sent * 1_000_000_000 / u128::from(bits)).unwrap()
        };
        for (number, (&(gap, len, kind), (due, bytes))) in
            arrivals.iter().zip(&seen.packets).enumerate()
        {
            now += gap;
            if now > free(began, sent) {
                (began, sent) = (now, 0);
            }
            let mut memory = Memory::of_cells(50);
            let packet = packet_at(
                &bytes_of(u32::try_from(number).unwrap(), len, kind),
                &mut memory,
                Time::ZERO,
            );
            sent += u128::from(packet.frame().segments.wire_bytes(overhead)) * 8;
            prop_assert_eq!(due.0, free(began, sent) + u64::try_from(delay.as_nanos()).unwrap());
            prop_assert_eq!(bytes, &packet.to_vec());
            packet.free(&mut memory);
        }
    }

    /// Unless reordering is set, packets stay in order. Neither jitter nor turns change the order
    /// within a flow.
    #[test]
    fn order_is_kept(settings in settings(), arrivals in arrivals()) {
        let settings = LineSettings {
            reorder: None,
            duplicate: Probability::NEVER,
            corrupt: Probability::NEVER,
            ..settings
        };
        let seen = through(&settings, &arrivals, 2);
        prop_assert!(seen.packets.is_sorted_by_key(|(due, _)| *due));
        let mut last = std::collections::HashMap::new();
        for (_, bytes) in &seen.packets {
            let mut memory = Memory::of_cells(50);
            let packet = packet_at(bytes, &mut memory, Time::ZERO);
            let flow = packet.frame().flow;
            let sequence = match flow.protocol {
                6 => u32::from_be_bytes(bytes[48..52].try_into().unwrap()),
                _ => number_of(&packet),
            };
            packet.free(&mut memory);
            // The parts of one super-packet also have rising numbers.
            if let Some(before) = last.insert(flow, sequence) {
                prop_assert!(before < sequence, "{} behind {}", sequence, before);
            }
        }
    }

    /// A super-packet leaves exactly when its last frame would have left.
    #[test]
    fn super_packets_share_as_frames_do(
        arrivals in prop::collection::vec((0u64..1_000_000, 1usize..30_000, 1u8..5), 1..20),
        bits in 1_000_000u64..10_000_000_000,
    ) {
        let settings = LineSettings {
            rate: rate(bits),
            buffer: 1 << 30,
            queue: Discipline::Harmonize,
            ..LineSettings::default()
        };
        let whole = through(&settings, &arrivals, 1);
        let mut memory = Memory::of_cells(CELLS);
        let mut line = Line::new(settings);
        let (mut now, mut frames) = (Time::ZERO, 0);
        let mut ends = Vec::new();
        for (number, &(gap, len, kind)) in arrivals.iter().enumerate() {
            now = now + Duration::from_nanos(gap);
            let mut rest =
                packet_at(&bytes_of(u32::try_from(number).unwrap(), len, kind), &mut memory, now);
            frames += rest.count();
            while rest.count() > 1 {
                let (one, more) = rest.split(1, &mut memory).expect("memory");
                line.push(one, now, &mut memory);
                rest = more;
            }
            line.push(rest, now, &mut memory);
        }
        let mut last_of_each = std::collections::HashMap::new();
        while let Some(packet) = line.pop(Time(u64::MAX)) {
            ends.push(packet.due);
            let bytes = packet.to_vec();
            // The flag that marks the last frame of a super-packet.
            if bytes[10 + 14 + 20 + 13] & 8 != 0 {
                last_of_each.entry(packet.frame().flow).or_insert_with(Vec::new).push(packet.due);
            }
            packet.free(&mut memory);
        }
        prop_assert_eq!(ends.len(), frames as usize);
        let mut seen = std::collections::HashMap::new();
        for (due, bytes) in whole.packets {
            let packet = packet_at(&bytes, &mut memory, Time::ZERO);
            seen.entry(packet.frame().flow).or_insert_with(Vec::new).push(due);
            packet.free(&mut memory);
        }
        prop_assert_eq!(seen, last_of_each);
    }
}

#[test]
fn bursts_are_limited() {
    let settings = LineSettings {
        rate: rate(1_000_000_000),
        burst: NonZeroU32::new(3),
        ..LineSettings::default()
    };
    let seen = through(&settings, &vec![(0, 1448 * 10, 1)], 1);
    let frame = (1514 + 24) * 8;
    let dues: Vec<u64> = seen.packets.iter().map(|(due, _)| due.0).collect();
    assert_eq!(dues, [3 * frame, 6 * frame, 9 * frame, 10 * frame]);
    assert_eq!((seen.counters.arrived.segments, seen.counters.left.segments), (10, 10));
}

#[test]
fn a_full_buffer_drops_segments_not_super_packets() {
    let wire = 1514 + 24;
    let settings =
        LineSettings { rate: rate(1_000_000), buffer: 10 * wire, ..LineSettings::default() };
    let mut memory = Memory::of_cells(CELLS);
    let mut line = Line::new(settings);
    let sample = Sample { payload: 1448 * 16, ..Sample::default() };
    line.push(packet_at(&sample.bytes(), &mut memory, Time::ZERO), Time::ZERO, &mut memory);
    let counters = line.counters(Time::ZERO);
    assert_eq!((counters.drops.buffer, counters.on_line, counters.queue_max), (6, 10, 10 * wire));
    // When half of the first segment has left, no other segment fits. When all of it has left, one
    // fits.
    let frame_time = Duration::from_nanos(wire * 8 * 1_000);
    for (at, on_line) in [(frame_time / 2, 10), (frame_time, 11)] {
        let now = Time::ZERO + at;
        let one = Sample { payload: 1448, ..Sample::default() };
        line.push(packet_at(&one.bytes(), &mut memory, now), now, &mut memory);
        assert_eq!(line.counters(now).on_line, on_line, "after {at:?}");
    }
}

/// Returns the time from the arrival of the last bit to its departure, on an idle line.
fn latency(timing: Timing, len: usize) -> Duration {
    let settings = LineSettings { rate: rate(1_000_000_000), timing, ..LineSettings::default() };
    let mut memory = Memory::of_cells(100);
    let mut line = Line::new(settings);
    let now = Time(1_000_000_000);
    line.push(packet_at(&numbered(0, len), &mut memory, now), now, &mut memory);
    let packet = line.pop(Time(u64::MAX)).expect("it came");
    let latency = packet.due.since(now);
    packet.free(&mut memory);
    latency
}

#[test]
fn cut_through_does_not_wait_for_the_end() {
    for len in [60, 64, 512, 1514, 9014] {
        let frame = Duration::from_nanos((len as u64 + 24) * 8);
        assert_eq!(
            latency(Timing::StoreAndForward, len),
            frame,
            "the transmission takes one more frame time"
        );
        assert_eq!(
            latency(Timing::CutThrough, len),
            Duration::from_nanos(22 * 8),
            "preamble and header"
        );
    }
}

/// Sends `frames` frames, and returns the numbers of those that were lost.
fn lost(settings: &LineSettings, frames: u32) -> Vec<u32> {
    let mut memory = Memory::of_cells(100);
    let mut line = Line::new(settings.clone());
    let mut passed = vec![false; frames as usize];
    for number in 0..frames {
        let now = Time(u64::from(number));
        line.push(packet_at(&numbered(number, 60), &mut memory, now), now, &mut memory);
        while let Some(packet) = line.pop(now) {
            passed[number_of(&packet) as usize] = true;
            packet.free(&mut memory);
        }
    }
    (0..frames).filter(|&number| !passed[number as usize]).collect()
}

#[test]
fn loss_matches_its_share_and_its_seed() {
    const FRAMES: u32 = 100_000;
    for (probability, seed) in [(0.001, 7), (0.01, 8), (0.3, 9)] {
        let settings = LineSettings {
            loss: Loss::Random(share(probability)),
            seed,
            ..LineSettings::default()
        };
        let one = lost(&settings, FRAMES);
        let (mean, sigma) = (
            f64::from(FRAMES) * probability,
            (f64::from(FRAMES) * probability * (1.0 - probability)).sqrt(),
        );
        assert!(
            (one.len() as f64 - mean).abs() < 3.0 * sigma,
            "{} lost, {mean} expected",
            one.len()
        );
        // Another impairment does not change which frames are lost, but another seed does.
        let with_more = LineSettings { duplicate: share(0.1), ..settings.clone() };
        assert_eq!(lost(&with_more, FRAMES), one);
        assert_ne!(lost(&LineSettings { seed: seed + 1, ..settings }, FRAMES), one);
    }
}

/// Sends frames of a flow with this port, and the frames that `beside` returns, over a line with
/// losses. Returns the numbers of the flow's lost frames.
fn lost_beside(line: Line, source_port: u16, beside: impl Fn(u32) -> Vec<Vec<u8>>) -> Vec<u32> {
    const FRAMES: u32 = 4_000;
    let (mut line, mut memory) = (line, Memory::of_cells(200));
    let mut passed = vec![false; FRAMES as usize];
    for number in 0..FRAMES {
        let now = Time(u64::from(number));
        let sample =
            Sample { source_port, sequence: number, payload: 10, v6: true, ..Sample::default() };
        for bytes in beside(number).into_iter().chain([sample.bytes()]) {
            line.push(packet_at(&bytes, &mut memory, now), now, &mut memory);
        }
        while let Some(packet) = line.pop(now) {
            if packet.frame().flow.source_port == source_port {
                let sequence = packet.to_vec()[10 + 14 + 40 + 4..][..4].try_into().unwrap();
                passed[u32::from_be_bytes(sequence) as usize] = true;
            }
            packet.free(&mut memory);
        }
    }
    (0..FRAMES).filter(|&number| !passed[number as usize]).collect()
}

/// Returns an ARP request, and an IPv6 neighbour solicitation from the flow's source address.
fn discovery() -> [Vec<u8>; 2] {
    let mut arp = numbered(0, 60);
    arp[10 + 12..10 + 14].copy_from_slice(&[0x08, 0x06]);
    let mut solicitation =
        Sample { v6: true, mss: 0, options: false, payload: 20, ..Sample::default() }.bytes();
    solicitation[10 + 14 + 6] = 58;
    solicitation[10 + 14 + 40] = 135;
    [arp, solicitation]
}

/// Clients use ports above this one: each connection has a new port.
const CLIENT: u16 = 40_000;

#[test]
fn a_flows_losses_do_not_depend_on_other_flows() {
    let bursts = GilbertElliott {
        to_bad: share(0.01),
        to_good: share(0.25),
        loss_bad: Probability::ALWAYS,
        loss_good: Probability::NEVER,
    };
    for loss in
        [Loss::Random(share(0.1)), Loss::Bursts(bursts), Loss::Listed(vec![3, 77, 78, 2_000])]
    {
        let listed = matches!(loss, Loss::Listed(_));
        let line =
            || Line::new(LineSettings { loss: loss.clone(), seed: 7, ..LineSettings::default() });
        let alone = lost_beside(line(), CLIENT, |_| Vec::new());
        assert!(!alone.is_empty());
        let chatter = |number: u32| if number % 7 == 3 { discovery().to_vec() } else { Vec::new() };
        assert_eq!(
            lost_beside(line(), CLIENT, chatter),
            alone,
            "beside neighbour discovery: {loss:?}"
        );
        assert_eq!(
            lost_beside(line(), CLIENT + 1, |_| Vec::new()),
            alone,
            "over another connection: {loss:?}"
        );
        if listed {
            assert_eq!(alone, [2, 76, 77, 1_999]);
            continue; // those are counted over all flows
        }
        let other = |number: u32| {
            let sample =
                Sample { source_port: 53, sequence: number, payload: 10, ..Sample::default() };
            vec![sample.bytes(); (number % 3) as usize]
        };
        assert_eq!(lost_beside(line(), CLIENT, other), alone, "beside another flow: {loss:?}");
    }
}

#[test]
fn lines_of_one_seed_lose_different_segments() {
    let settings =
        LineSettings { loss: Loss::Random(share(0.1)), seed: 7, ..LineSettings::default() };
    let of = |salt| lost_beside(Line::new(settings.clone()).salted(salt), CLIENT, |_| Vec::new());
    let lines = [of(1), of(2), of(3)];
    assert_eq!(lines[0], of(1));
    for (one, other) in [(0, 1), (1, 2), (0, 2)] {
        // On each line, 400 of 4,000 frames are lost. By chance, about 40 of them are lost on both
        // lines, at any shift.
        for shift in -20i64..=20 {
            let same = lines[one].iter().filter(|&&number| {
                u32::try_from(i64::from(number) + shift)
                    .is_ok_and(|shifted| lines[other].contains(&shifted))
            });
            let same = same.count();
            assert!(same < 80, "{same} of {} at a shift of {shift}", lines[one].len());
        }
    }
}

#[test]
fn bursts_are_as_frequent_and_as_long_as_the_model_says() {
    let model = GilbertElliott {
        to_bad: share(0.01),
        to_good: share(0.25),
        loss_bad: Probability::ALWAYS,
        loss_good: Probability::NEVER,
    };
    let lost = lost(
        &LineSettings { loss: Loss::Bursts(model), seed: 3, ..LineSettings::default() },
        200_000,
    );
    let bursts = 1 + lost.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    let (rate, length) = (lost.len() as f64 / 200_000.0, lost.len() as f64 / bursts as f64);
    assert!((rate - 0.01 / 0.26).abs() < 0.004, "{rate} lost, {} expected", 0.01 / 0.26);
    assert!((length - 4.0).abs() < 0.4, "bursts of {length}, 4 expected");
}

#[test]
fn listed_segments_are_lost_and_no_others() {
    let settings = LineSettings { loss: Loss::Listed(vec![1, 5, 6]), ..LineSettings::default() };
    assert_eq!(lost(&settings, 100), [0, 4, 5]);
    // A segment of a super-packet also counts as one segment.
    let mut memory = Memory::of_cells(100);
    let mut line = Line::new(settings);
    let sample = Sample { payload: 1448 * 10, ..Sample::default() };
    line.push(packet_at(&sample.bytes(), &mut memory, Time::ZERO), Time::ZERO, &mut memory);
    let mut counts = Vec::new();
    while let Some(packet) = line.pop(Time::ZERO) {
        counts.push(packet.count());
        packet.free(&mut memory);
    }
    assert_eq!(counts, [3, 4]);
}

#[test]
fn held_segments_are_overtaken() {
    let reorder = Some(Reorder { share: share(0.1), by: Duration::from_micros(5) });
    let mut memory = Memory::of_cells(5000);
    let mut line = Line::new(LineSettings { reorder, seed: 5, ..LineSettings::default() });
    for number in 0..1000 {
        let now = Time(u64::from(number) * 1_000);
        line.push(packet_at(&numbered(number, 60), &mut memory, now), now, &mut memory);
    }
    let held = line.counters(Time::ZERO).reordered;
    assert!((60..140).contains(&held), "{held}");
    let mut last = 0;
    let mut late = 0;
    while let Some(packet) = line.pop(Time(u64::MAX)) {
        let number = number_of(&packet);
        late += u64::from(number < last);
        last = last.max(number);
        packet.free(&mut memory);
    }
    assert!(late >= held - 5 && late <= held, "{late} of {held} came late");
}

#[test]
fn settings_change_while_packets_are_under_way() {
    let mut memory = Memory::of_cells(CELLS);
    let slow = LineSettings {
        rate: rate(1_000_000),
        delay: Duration::from_millis(100),
        ..LineSettings::default()
    };
    let mut line = Line::new(slow.clone());
    let push = |line: &mut Line, memory: &mut Memory, number, now| {
        line.push(packet_at(&bytes_of(number, 1448, 1), memory, now), now, memory);
    };
    (0..10).for_each(|number| push(&mut line, &mut memory, number, Time::ZERO));
    // The line gets another discipline, ten times the rate, and no delay. No packet is lost or
    // reordered.
    let now = Time(20_000_000);
    line.set(
        LineSettings {
            rate: rate(10_000_000),
            delay: Duration::ZERO,
            queue: Discipline::Harmonize,
            ..slow.clone()
        },
        now,
    );
    (10..20).for_each(|number| push(&mut line, &mut memory, number, now));
    line.set(LineSettings { rate: None, ..slow }, Time(30_000_000));
    (20..30).for_each(|number| push(&mut line, &mut memory, number, Time(30_000_000)));
    let mut numbers = Vec::new();
    while let Some(packet) = line.pop(Time(u64::MAX)) {
        let bytes = packet.to_vec();
        numbers.push(u32::from_be_bytes(bytes[48..52].try_into().unwrap()) / SPACING);
        packet.free(&mut memory);
    }
    assert_eq!(numbers, (0..30).collect::<Vec<_>>());
    assert_eq!(memory.free(), memory.total());
}

#[test]
fn flows_beyond_the_limit_share_a_slot() {
    let mut memory = Memory::of_cells(CELLS);
    let mut line = Line::new(LineSettings {
        rate: rate(1_000_000_000),
        queue: Discipline::Harmonize,
        ..LineSettings::default()
    });
    for port in 0..2000 {
        let sample = Sample { source_port: port, ..Sample::default() };
        line.push(packet_at(&sample.bytes(), &mut memory, Time::ZERO), Time::ZERO, &mut memory);
    }
    while let Some(packet) = line.pop(Time(u64::MAX)) {
        packet.free(&mut memory);
    }
    let counters = line.counters(Time::ZERO);
    assert_eq!((counters.flows.len(), counters.left.segments), (sprat_lab::line::MAX_FLOWS, 2000));
    assert_eq!(counters.other_flows.left.segments, 2000 - sprat_lab::line::MAX_FLOWS as u64);
}
